"""A process that had a store open wrote on after a newer version had migrated it to tables that it does not know."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.drivers.adoption import Adoption
from treadle.errors import StoreFormatError, TreadleError
from treadle.models import call, text
from treadle.ports import AT_ONCE, InboxItem
from treadle.testing.conformance.owner import Owner, until
from treadle.testing.postgres import PostgresServer
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio


class Migrated:
    """A store that two versions have open: its address, and what the newer one does to it."""

    def __init__(self, path: Path | None, server: PostgresServer | None, schema: str) -> None:
        self._path, self._server, self._schema = path, server, schema

    @property
    def url(self) -> str:
        if self._server is not None:
            return f"{self._server.in_schema(self._schema)}&lease=0.5"
        return f"sqlite:///{self._path}?lease=0.5"

    def migrate(self, *, opens: bool = False) -> None:
        """Raise the format of the tables; with `opens`, this version may use them all the same."""
        if self._server is not None:
            table = f"{self._schema}.treadle_format"
            with psycopg.connect(self._server.url, autocommit=True) as connection:
                connection.execute(f"UPDATE {table} SET version = 99".encode())
                if not opens:
                    connection.execute(f"UPDATE {table} SET opens = 99".encode())
            return
        file = apsw.Connection(str(self._path))
        file.set_busy_timeout(30_000)
        file.execute("PRAGMA user_version = 99").fetchall()
        if not opens:
            file.execute("UPDATE compatible SET opens = 99").fetchall()
        file.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Migrated:
    if request.param == "sqlite":
        return Migrated(tmp_path / "journal.db", None, "")
    return Migrated(None, request.getfixturevalue("postgres"), f"later_{tmp_path.name[-20:].strip('_')}")


class Desk:
    """An agent whose first call ends when it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go, self.calls = asyncio.Event(), asyncio.Event(), list[str]()

        @tool(read_only=True)
        async def look(what: str) -> str:
            """Look."""
            self.calls.append(what)
            self.entered.set()
            await self.let_go.wait()
            return what

        model = ScriptedModel([call("look", what="a"), call("look", what="b"), text("Done.")])
        self.agent: Agent[Any] = Agent(model, name="desk", tools=[look])


@pytest.mark.parametrize("adopts", [True, False], ids=["adopted", "run"])
async def test_the_tasks_of_an_older_driver_are_released_when_it_reads_the_format_of_a_later_one(
    store: Migrated, adopts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    desk, told = Desk(), list[Adoption]()
    async with Runner(store.url, agents=[desk.agent]) as runner:
        if adopts:
            runner.begin_adopting(tell=told.append)
            await runner.submit(desk.agent, "Go.", task_id="t")
        else:
            handle = await runner.start(desk.agent, "Go.", task_id="t")
        await desk.entered.wait()
        with caplog.at_level(logging.ERROR, "treadle.tasks"):
            store.migrate()
            await until(lambda: _is(bool(caplog.records)))
        desk.let_go.set()
        if adopts:
            await until(lambda: _is(told[-1].kind == "stopped"))
            assert [adoption.kind for adoption in told] == ["adopted", "outdated", "stopped"]
        else:
            assert (await handle.result()).state == "interrupted"
        (record,) = caplog.records
        assert "has format 99" in record.getMessage()
        assert "upgrade treadle" in record.getMessage()
        row = await runner.store.row("t")
        assert (row.driver, row.due_at, desk.calls) == (None, AT_ONCE, ["a"])
        kinds = [event.kind for event in await runner.get_events("t")]
        assert "tool_ended" in kinds, "what was under way is recorded"
        for refused in (runner.resume("t"), runner.run(desk.agent, "Go."), runner.fork("t")):
            with pytest.raises(StoreFormatError, match="has format 99"):
                await refused


async def test_an_older_process_without_tasks_gets_none(store: Migrated) -> None:
    driver, older = open_store(store.url), open_store(store.url)
    await driver.open()
    await older.open()
    await (await Owner.create(driver, "t")).release()
    store.migrate()
    for refused in (older.claim("t"), Owner.create(older, "u")):
        with pytest.raises(TreadleError, match="has format 99"):
            await refused
    with pytest.raises(StoreFormatError):
        await older.post("t", InboxItem("i", "send", {}, 1))
    with pytest.raises(StoreFormatError):
        await older.delete("t")
    await driver.close()
    await older.close()


async def test_a_migration_that_an_older_version_can_use_stops_nothing(store: Migrated) -> None:
    driver, older = open_store(store.url), open_store(store.url)
    await driver.open()
    await older.open()
    await (await Owner.create(driver, "t")).release()
    store.migrate(opens=True)
    await (await Owner.claim(older, "t")).release()
    await Owner.create(older, "u")
    await driver.close()
    await older.close()


async def _is(value: bool) -> bool:
    return value
