"""An adopter read all tasks that waited for other drivers before it took its own, and served tenants by their names."""

import asyncio
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.models import turn
from treadle.stores.memory import MemoryStore
from treadle.testing.wrappers import WrappedStore
from treadle.wiring import open_store

pytestmark = pytest.mark.anyio

BACKLOG = 300
OURS: Agent[Any] = Agent(ScriptedModel(["Done."]), name="ours")
THEIRS: Agent[Any] = Agent(ScriptedModel(["Done."]), name="theirs")


class Counted(WrappedStore):
    """A store that counts the rows which it names to an adopter."""

    rows = 0

    async def orphans(self, limit: int, **options: Any) -> Any:
        return self._counted(await self._store.orphans(limit, **options))

    async def adoptable(self, query: Any) -> Any:
        return self._counted(await self._store.adoptable(query))

    async def unadoptable(self, query: Any) -> Any:
        return self._counted(await self._store.unadoptable(query))

    def _counted(self, rows: Any) -> Any:
        self.rows += len(rows)
        return rows


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return open_store(shutil.copy(request.getfixturevalue("empty_journal"), tmp_path))
    server = request.getfixturevalue("postgres")
    return open_store(server.in_schema(f"b{sha256(str(tmp_path).encode()).hexdigest()[:20]}"))


async def submit_backlog(runner: Any, agent: Agent[Any], count: int, first: str) -> None:
    for start in range(0, count, 100):
        await asyncio.gather(
            *[runner.submit(agent, "Go", task_id=f"{first}{n:05}") for n in range(start, start + 100)]
        )


async def ended(runner: Runner, task_id: str) -> None:
    while (await runner.get_task(task_id)).state != "completed":  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("theirs", ["of an agent that is not here", "of a tenant at its cap"])
async def test_an_adopter_reads_no_backlog_that_it_may_not_take(opened: Any, theirs: str) -> None:
    store = Counted(opened)

    staying: Agent[Any] = Agent(ScriptedModel([turn("Done.", delay=3_600)]), name="staying")
    async with Runner(store, agents=[OURS, staying]) as runner:
        if theirs == "of a tenant at its cap":
            await submit_backlog(runner.scoped(tenant="big"), staying, BACKLOG, "a")
        else:
            await submit_backlog(runner, THEIRS, BACKLOG, "a")
        await runner.scoped(tenant="zoo").submit(OURS, "Go", task_id="z")
        store.rows = 0
        runner.begin_adopting(at_most=10, per_tenant=2)
        async with asyncio.timeout(60):
            await ended(runner.scoped(tenant="zoo"), "z")
        assert store.rows < BACKLOG / 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("big", ["big", "zbig"])
async def test_a_tenant_with_few_tasks_waits_for_no_backlog_of_another_whatever_their_names(
    opened: Any, big: str
) -> None:
    adopted: list[str] = []

    def tell(adoption: Any) -> None:
        if adoption.kind == "adopted":
            adopted.append(adoption.tenant)

    async with Runner(opened, agents=[OURS]) as runner:
        await submit_backlog(runner.scoped(tenant=big), OURS, 200, "t")
        small = runner.scoped(tenant="small")
        for number in range(10):
            await small.submit(OURS, "Go", task_id=f"t{number}")
        runner.begin_adopting(at_most=4, tell=tell)
        async with asyncio.timeout(60):
            for number in range(10):
                await ended(small, f"t{number}")
        assert adopted.count(big) < 100, adopted
