"""What every test shares: one event loop backend, and property tests that say how to repeat them."""

import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

if sys.dont_write_bytecode:
    # Else each worker, and each of the hundreds of processes that tests start, compiles all it imports anew. Still
    # nothing is written beside sources.
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode = False
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import settings

from treadle import Runner
from treadle.stores.memory import MemoryStore
from treadle.testing.postgres import PostgresServer

settings.register_profile("ci", deadline=None, print_blob=True, derandomize=False)
settings.register_profile("full", settings.get_profile("ci"), max_examples=2_000)
settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Chosen here, once, so that the summary can name it; xdist hands it on to its workers.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = random.randrange(2**32)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(
        f"repeat the property tests with --hypothesis-seed={config.option.hypothesis_seed}"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker tests that stand together, which share fixtures and imports; idle workers take from others."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real server for the tests of this process; each takes a schema of its own."""
    with PostgresServer() as server:
        yield server


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
