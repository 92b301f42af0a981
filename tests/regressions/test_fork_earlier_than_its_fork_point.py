"""A fork made after the clock was set back began earlier than the event it was forked at.

Its times went backwards, and what its prefix waited for was as far away as the clock had been set back: a retry of
90 seconds was still waited for two hours later.
"""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, Task
from treadle.errors import ModelError
from treadle.models import fail, text
from treadle.testing import clock
from treadle.testing.audit import audit_store, journal_of


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


class AskedAgainLater:
    """A model whose failures are worth another try after so many seconds."""

    def __init__(self, wait: float) -> None:
        self.inner, self.wait = ScriptedModel([fail(503), text("Here."), text("There.")]), wait
        self.name = self.inner.name

    async def stream(self, request: Any) -> Any:
        try:
            async for item in self.inner.stream(request):
                yield item
        except ModelError as error:
            error.again_in = self.wait
            raise


class SystemClock:
    """A machine's clock that was set by so many seconds."""

    ahead = 0.0

    def __call__(self) -> int:
        return clock.now() + int(self.ahead * 1e6)


async def forked_after_the_clock_was_set(runner: Runner, system: SystemClock, jump: float) -> Task:
    """Return a fork of a task that waits to ask its model again, made 10 s after its failure."""
    waiting = await runner.run(Agent(AskedAgainLater(90.0), name="patient"), "Where?", task_id="t")
    assert waiting.state == "waiting"
    await asyncio.sleep(10)
    system.ahead += jump
    events = (await journal_of(runner.store, await runner.store.row("t"))).events
    return await runner.fork("t", at=next(event.seq for event in events if event.kind == "model_failed"))


@pytest.mark.parametrize("jump", [-7_200.0, -30.0, 7_200.0])
def test_no_event_of_a_fork_is_earlier_than_its_fork_point(jump: float) -> None:
    async def story() -> None:
        system = SystemClock()
        async with Runner("memory:", clock=system) as runner:
            fork = await forked_after_the_clock_was_set(runner, system, jump)
            events = (await journal_of(runner.store, await runner.store.row(fork.task_id))).events
            times = [event.time for event in events]
            assert times == sorted(times)
            assert await audit_store(runner.store) == []

    clock.run(story())


@pytest.mark.parametrize("jump", [-7_200.0, -30.0])
def test_a_fork_waits_no_longer_than_its_parent(jump: float) -> None:
    async def story() -> None:
        system = SystemClock()
        async with Runner("memory:", clock=system) as runner:
            fork = await forked_after_the_clock_was_set(runner, system, jump)
            assert (await runner.resume(fork)).state == "waiting"
            await asyncio.sleep(90)
            assert (await runner.resume(fork)).state == "completed"
            assert await audit_store(runner.store) == []

    clock.run(story())
