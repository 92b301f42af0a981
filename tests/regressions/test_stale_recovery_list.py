"""A stale list of tasks to recover let a second driver run tasks that it no longer owned."""

import asyncio

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.stores.sqlite import SQLiteStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


class SlowToClaim(SQLiteStore):
    """A store whose list of orphans is old by the time it arrives."""

    def __init__(self, path):
        super().__init__(path)
        self.listed, self.go_on = asyncio.Event(), asyncio.Event()

    async def adoptable(self, query):
        orphans = await super().adoptable(query)
        if orphans:
            self.listed.set()
            await self.go_on.wait()
        return orphans


async def test_a_driver_that_claims_a_listed_orphan_after_another_drove_it_runs_nothing_of_it(tmp_path):
    done, entered = [], asyncio.Event()

    @tool
    async def charge() -> str:
        """Charge once."""
        done.append(1)
        return "charged"

    @tool(read_only=True)
    async def wait() -> str:
        """Wait, the first time."""
        if not entered.is_set():
            entered.set()
            await asyncio.sleep(60)
        return "waited"

    agent = Agent(
        ScriptedModel([call("wait"), call("charge"), text("Done.")]), name="a", tools=[wait, charge]
    )
    path = tmp_path / "journal.db"
    first = Runner(path)
    await first.start(agent, "Go", task_id="t")
    await entered.wait()
    await first.aclose()
    late = SlowToClaim(path)
    async with Runner(late, agents=[agent], adopt=True), Runner(path, agents=[agent]) as quick:
        await late.listed.wait()
        assert (await quick.resume("t")).state == "completed"
        epoch = (await quick.store.row("t")).epoch
        late.go_on.set()
        await asyncio.sleep(0.5)
        assert done == [1]
        assert (await quick.get_task("t")).state == "completed"
        assert (await quick.store.row("t")).epoch <= epoch + 1
        assert await audit_store(quick.store) == []
