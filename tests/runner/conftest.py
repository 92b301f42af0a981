"""What the tests of the runner share: one store of each kind, and a runner on it."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from treadle import Runner
from treadle.stores.memory import MemoryStore
from treadle.testing.postgres import PostgresServer


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store that several runners may be made on, one after the other or side by side."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.in_schema(f"t{sha256(str(tmp_path).encode()).hexdigest()[:20]}")
    return MemoryStore() if request.param == "memory" else tmp_path / "journal.db"


@pytest.fixture
async def runner(store: Any) -> AsyncIterator[Runner]:
    async with Runner(store) as runner:
        yield runner
