"""A fork made after the clock was set back began earlier than the event it was forked at.

Its times went backwards, and what its prefix waited for was as far away as the clock had been set back: a retry of
90 seconds was still waited for two hours later.
"""

import asyncio

import pytest

from tests.regressions.test_clock_change_broke_timers import Again
from treadle import Agent, Runner, Task
from treadle.models import fail, text
from treadle.testing import clock
from treadle.testing.audit import audit_store, journal_of


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


async def forked_after_the_clock_was_set(runner: Runner, system: clock.SystemClock, jump: float) -> Task:
    """Return a fork of a task that waits to ask its model again, made 10 s after its failure."""
    model = Again(90.0, [fail(503), text("Here."), text("There.")])
    waiting = await runner.run(Agent(model, name="patient"), "Where?", task_id="t")
    assert waiting.state == "waiting"
    await asyncio.sleep(10)
    system.set_forward(jump)
    events = (await journal_of(runner.store, await runner.store.row("t"))).events
    return await runner.fork("t", at=next(event.seq for event in events if event.kind == "model_failed"))


@pytest.mark.parametrize("jump", [-7_200.0, -30.0, 7_200.0])
def test_no_event_of_a_fork_is_earlier_than_its_fork_point(jump: float) -> None:
    async def story() -> None:
        system = clock.SystemClock()
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
        system = clock.SystemClock()
        async with Runner("memory:", clock=system) as runner:
            fork = await forked_after_the_clock_was_set(runner, system, jump)
            assert (await runner.resume(fork)).state == "waiting"
            await asyncio.sleep(90)
            assert (await runner.resume(fork)).state == "completed"
            assert await audit_store(runner.store) == []

    clock.run(story())
