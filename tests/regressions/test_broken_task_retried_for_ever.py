"""A task whose own code raises before it begins is paused after some tries, and says why; it is not tried for ever."""

import asyncio
from typing import Any

import pytest

from tests.races.acts import leave_behind
from treadle import Agent, Runner, ScriptedModel
from treadle.drivers import adoption as adopting
from treadle.drivers.adoption import Adoption
from treadle.errors import StoreUnavailable
from treadle.ports import Claim
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store
from treadle.testing.wrappers import WrappedStore

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "RETRY_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(adopting, "PAUSE_SECONDS", 0.01)


class Instructions:
    """Instructions of an agent that can be made to work."""

    def __init__(self) -> None:
        self.work = False
        self.asked = 0

    def tell(self, ctx: Any) -> str:
        self.asked += 1
        if not self.work:
            raise ValueError("no such template: greeting")
        return "Be kind."


async def made(store: Any, agent: Agent[Any]) -> str:
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "Hi")
        await leave_behind(store, task.task_id)
    return task.task_id


async def test_a_task_whose_instructions_raise_is_paused_and_can_be_resumed_when_they_work() -> None:
    store, instructions, adoptions = MemoryStore(), Instructions(), list[Adoption]()
    agent = Agent(ScriptedModel(["Hello."]), name="greeter", instructions=instructions.tell)
    task = await made(store, agent)
    async with Runner(store, agents=[agent]) as runner:
        runner.begin_adopting(tell=adoptions.append)
        async with asyncio.timeout(20):
            while (await store.row(task)).state != "paused":  # noqa: ASYNC110  the adopter looks by itself
                await asyncio.sleep(0.02)
        times_asked = instructions.asked
        await asyncio.sleep(0.3)
        assert instructions.asked == times_asked == 5, "it is let be"
        kinds = [adoption.kind for adoption in adoptions if adoption.kind in ("failed", "given_up")]
        assert kinds == ["failed"] * 4 + ["given_up"]
        assert "5 times in a row: ValueError: no such template: greeting" in adoptions[-1].text
        result = await runner.result(task)
        assert (result.state, (await runner.get_task(task)).state) == ("paused", "paused")
        instructions.work = True
        assert (await runner.resume(task)).state == "completed"
        assert await audit_store(store) == []


async def test_a_task_that_the_store_keeps_from_being_driven_is_not_paused() -> None:
    class Fails(WrappedStore):
        left = 12

        async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
            if self.left > 0:
                self.left -= 1
                raise StoreUnavailable("the disk is full")
            return await self._store.claim(task_id, enter=enter)

    inside = MemoryStore()
    agent = Agent(ScriptedModel(["Hello."]), name="greeter")
    task = await made(inside, agent)
    adoptions = list[Adoption]()
    async with Runner(Fails(inside), agents=[agent]) as runner:
        runner.begin_adopting(tell=adoptions.append)
        async with asyncio.timeout(20):
            while (await inside.row(task)).state != "completed":  # noqa: ASYNC110  the adopter looks by itself
                await asyncio.sleep(0.02)
    assert "given_up" not in [adoption.kind for adoption in adoptions]
