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
    monkeypatch.setattr(adopting, "SCAN_SECONDS", 0.05)


class Sessions:
    """A function of the user that can be made to work."""

    def __init__(self) -> None:
        self.work = False
        self.asked = 0

    def open(self, task: Any) -> str:
        self.asked += 1
        if not self.work:
            raise ValueError("no such session")
        return "a session"


async def made(store: Any, agent: Agent[Any]) -> str:
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "Hi")
        await leave_behind(store, task.task_id)
    return task.task_id


async def test_a_task_whose_instructions_raise_fails_and_is_not_retried() -> None:
    store, sessions = MemoryStore(), Sessions()
    agent = Agent(ScriptedModel(["Hello."]), name="greeter", instructions=sessions.open)
    task = await made(store, agent)
    async with Runner(store, agents=[agent]) as runner:
        runner.begin_adopting()
        async with asyncio.timeout(20):
            while (await store.row(task)).state != "failed":  # noqa: ASYNC110  the adopter looks by itself
                await asyncio.sleep(0.02)
        result = await runner.result(task)
        assert result.error is not None
        assert "ValueError: no such session" in result.error.traceback
        sessions.work = True
        assert (await runner.resume(task)).state == "completed"
        assert sessions.asked == 2
        assert await audit_store(store) == []


async def test_a_task_whose_context_cannot_be_made_is_paused_and_can_be_resumed_when_it_can() -> None:
    store, sessions, adoptions = MemoryStore(), Sessions(), list[Adoption]()
    agent = Agent(ScriptedModel(["Hello."]), name="greeter")
    task = await made(store, agent)
    async with Runner(store, agents=[agent], context_factory=sessions.open) as runner:
        runner.begin_adopting(tell=adoptions.append)
        async with asyncio.timeout(20):
            while (await store.row(task)).state != "paused":  # noqa: ASYNC110  the adopter looks by itself
                await asyncio.sleep(0.02)
        times_asked = sessions.asked
        await asyncio.sleep(0.3)
        assert sessions.asked == times_asked == 5, "it is let be"
        kinds = [adoption.kind for adoption in adoptions if adoption.kind in ("failed", "given_up")]
        assert kinds == ["failed"] * 4 + ["given_up"]
        assert "5 times in a row: " in adoptions[-1].text
        assert "ValueError: no such session" in adoptions[-1].text
        result = await runner.result(task)
        assert (result.state, (await runner.get_task(task)).state) == ("paused", "paused")
        sessions.work = True
        assert (await runner.resume(task)).state == "completed"
        assert await audit_store(store) == []


async def test_a_task_that_the_store_keeps_from_being_driven_is_not_paused() -> None:
    class Fails(WrappedStore):
        left = 6

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
