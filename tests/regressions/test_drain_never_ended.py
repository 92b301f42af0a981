"""A drain that came between the search for orphans and the first turn of a task did not end."""

import asyncio
from typing import Any

import pytest

from tests.cast import sayer
from tests.races.acts import leave_behind
from treadle import Runner
from treadle.ports import AdoptionQuery, TaskRow
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.wrappers import WrappedStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


class Watched(WrappedStore):
    """A store that has the runner drained so many rounds of the event loop before it names an orphan."""

    rounds = 0
    runner: Runner
    draining: asyncio.Future[Any] | None = None

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        orphans = await self._store.adoptable(query)
        if orphans and self.draining is None:
            self.draining = asyncio.ensure_future(self.runner.drain())
            for _ in range(self.rounds):
                await asyncio.sleep(0)
        return orphans


@pytest.mark.parametrize("rounds", range(8))
async def test_a_drain_that_comes_just_as_an_orphan_is_found_ends(rounds: int) -> None:
    inside, agent = MemoryStore(), sayer("Hello.")
    async with Runner(inside) as maker:
        task = await maker.create_task(agent, "Hi")
        await leave_behind(inside, task.task_id)
    store = Watched(inside)
    store.rounds = rounds
    runner = store.runner = Runner(store, agents=[agent])
    await runner.__aenter__()
    runner.begin_adopting()
    while store.draining is None:  # noqa: ASYNC110  the adopter looks twice a second
        await asyncio.sleep(0.01)
    ended, _ = await asyncio.wait([store.draining], timeout=10)
    assert ended, "the drain goes round and round"
    assert (await inside.row(task.task_id)).driver is None
    await runner.aclose()
