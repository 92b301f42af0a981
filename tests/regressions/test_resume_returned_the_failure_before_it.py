"""A resume that came while a failed task was being released returned the failure, and drove nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.llm.scripted import fail
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Slow(MemoryStore):
    """Acknowledges the first end of a task once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()
        self.acknowledge: Callable[[], None] = lambda: None

    def commit(self, commit: Any, done: Callable[[Any], None]) -> None:
        if commit.state != "failed" or self.written.is_set():
            return super().commit(commit, done)
        self.written.set()
        return super().commit(commit, lambda verdict: setattr(self, "acknowledge", lambda: done(verdict)))


async def test_a_failed_task_that_is_being_released_is_driven_by_each_resume_once() -> None:
    store, model = Slow(), ScriptedModel([fail(400), fail(400), "Done."])
    agent: Agent[Any] = Agent(model, name="desk")
    async with Runner(store, agents=[agent]) as runner:
        running = asyncio.ensure_future(runner.run(agent, "Go.", task_id="t"))
        await store.written.wait()
        assert (await store.row("t")).state == "failed"
        resumed = [asyncio.ensure_future(runner.resume("t")) for _ in range(3)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(each.done() for each in resumed)
        store.acknowledge()
        assert (await running).state == "failed"
        assert [(await each).state for each in resumed] == ["failed"] * 3
        assert len(model.requests) == 2, "they are one resume"
        assert (await runner.resume("t")).state == "completed"
