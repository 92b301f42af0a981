"""A task whose parallel calls ended in another order after a crash was retried for ever."""

import random

import pytest

from treadle import Agent, ScriptedModel, tool
from treadle.errors import StoreUnavailable
from treadle.llm.scripted import Turn, call, text
from treadle.ports import Commit, CommitDone
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.wrappers import WrappedStore


class Cut(WrappedStore):
    """A store that is unavailable after so many commits, as for a crashed process."""

    def __init__(self, commits: int) -> None:
        super().__init__(MemoryStore())
        self.left = commits

    def commit(self, commit: Commit, done: CommitDone) -> None:
        self.left -= 1
        if self.left < 0:
            done(StoreUnavailable("gone"))
        else:
            self._store.commit(commit, done)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(10))
def test_a_task_recovers_with_any_order_of_ends_of_its_calls(seed: int) -> None:
    import asyncio

    dice = random.Random(seed)

    @tool(idempotent=True)
    async def wait(n: int) -> int:
        await asyncio.sleep(dice.random())
        return n

    answer = Turn()
    for n in range(4):
        answer += call("wait", n=n)
    agent = Agent(ScriptedModel([answer, answer, text("so")]), tools=[wait])

    async def story() -> None:
        for commits in range(2, 12):
            store = Cut(commits)
            runner = clock.runner(store)
            try:
                await runner.run(agent, "go", task_id="t")
            except StoreUnavailable:
                store.left = 1_000
            inner = store._store
            await inner.close()
            await inner.open()
            async with clock.runner(inner, agents=[agent]) as second:
                result = await second.run(agent, "go", task_id="t")
                assert result.state == "completed"
                assert await audit_store(inner, Evidence(ended=True)) == []

    clock.run(story())
