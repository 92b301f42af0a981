"""A storm of killed servers under the clients of several protocols; `make full` has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.protocols.storm import ProtocolStorm
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes may open."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.in_schema(f"s{abs(hash(str(tmp_path))):x}")


@pytest.mark.parametrize(
    ("streams", "kills"), [(6, 1), pytest.param(1_000, 200, marks=pytest.mark.full)], ids=["some", "many"]
)
async def test_no_client_of_killed_servers_loses_or_doubles_anything(
    url: str, tmp_path: Path, streams: int, kills: int, request: pytest.FixtureRequest
):
    seed: int = request.config.option.hypothesis_seed
    storm = ProtocolStorm(tmp_path, url, streams, kills, readers=min(streams, 25), seed=seed)
    await storm.run()
    print(await storm.check())
