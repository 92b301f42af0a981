"""A system clock that was set back stopped timers; set forward or back, it counted driven time wrong.

A retry of one second took as long as the clock was set back, and after two hours the task was given back as waiting.
"""

import asyncio
from typing import Any

import pytest

from tests.cast import nap
from treadle import Agent, Limits, NextStep, RunOptions, ScriptedModel, StepContext, StepResult
from treadle.errors import ModelError
from treadle.models import call, fail, text
from treadle.testing import clock
from treadle.testing.audit import audit_store

JUMPS = [-7_200.0, -30.0, 30.0, 7_200.0]


class Again:
    """A model whose failures are worth another try after so many seconds."""

    def __init__(self, wait: float, items: Any = None) -> None:
        self.inner, self.wait, self.asked = ScriptedModel(items or [fail(503), text("Here.")]), wait, []
        self.name = self.inner.name

    async def stream(self, request: Any) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        try:
            async for item in self.inner.stream(request):
                yield item
        except ModelError as error:
            error.again_in = self.wait
            raise


def now() -> float:
    return asyncio.get_running_loop().time()


def set_later(system: clock.SystemClock, seconds: float, jump: float) -> None:
    asyncio.get_running_loop().call_later(seconds, system.set_forward, jump)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("wait", [1.0, pytest.param(40.0, marks=pytest.mark.full)])
def test_a_retry_waits_as_long_as_it_is_meant_to(store: Any, jump: float, wait: float) -> None:
    async def story() -> None:
        model, system = Again(wait), clock.SystemClock()
        async with clock.runner(store, clock=system) as runner:
            set_later(system, wait / 2, jump)
            result = await runner.run(Agent(model), "Where?")
            assert (result.state, result.final_text) == ("completed", "Here.")
            assert now() == pytest.approx(wait, abs=0.01)
            assert await audit_store(runner.store) == []

    clock.run(story())


@pytest.mark.parametrize("jump", JUMPS)
def test_a_request_of_a_function_waits_as_long_beside_another_that_works(jump: float) -> None:
    model, system = Again(40.0), clock.SystemClock()

    async def steps(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=(NextStep("ask"), NextStep("work")))
        if ctx.name == "ask":
            return StepResult(await ctx.call_model("Where?"), is_last=True)
        for n in range(25):
            await asyncio.sleep(1)
            await ctx.once(f"{n}", lambda: 0)
        return StepResult("worked")

    async def story() -> None:
        async with clock.runner(clock=system) as runner:
            set_later(system, 10, jump)
            assert (await runner.run(Agent(model, worker=steps), "Go.")).state == "completed"
            assert model.asked[1] - model.asked[0] == pytest.approx(40, abs=0.01)

    clock.run(story())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("jump", JUMPS)
def test_an_adopter_adopts_a_waiting_task_when_its_wait_or_the_clock_ends(store: Any, jump: float) -> None:
    async def story() -> None:
        model, system = Again(90.0), clock.SystemClock()
        agent = Agent(model, name="patient")
        async with clock.runner(store, agents=[agent], clock=system, adopt=True) as runner:
            assert (await runner.run(agent, "Where?", task_id="t")).state == "waiting"
            set_later(system, 45, jump)
            while (await runner.get_task("t")).state != "completed":  # noqa: ASYNC110  an adopter drives it
                await asyncio.sleep(0.5)
            # The journal of a task that waits for longer than the clock was set back does not show that it was.
            latest = 90 - jump if -90 < jump < 0 else 90
            assert (45 if jump > 0 else 90) <= model.asked[1] <= latest + 2
            assert await audit_store(runner.store) == []

    clock.run(story())


def test_a_task_resumed_after_the_clock_was_set_back_waits_no_longer_than_it_was_meant_to(store: Any) -> None:
    async def story() -> None:
        model, system = Again(90.0), clock.SystemClock()
        agent = Agent(model, name="patient")
        async with clock.runner(store, agents=[agent], clock=system) as runner:
            assert (await runner.run(agent, "Where?", task_id="t")).state == "waiting"
        system.set_forward(-7_200)
        for seconds in (50, 50):
            async with clock.runner(store, agents=[agent], clock=system) as runner:
                state = (await runner.resume("t")).state
            await asyncio.sleep(seconds)
        assert state == "completed"
        assert 90 <= model.asked[1] <= 140

    clock.run(story())


@pytest.mark.parametrize("jump", JUMPS)
def test_driven_time_is_counted_as_it_passed(jump: float) -> None:
    async def story() -> None:
        system, agent = (
            clock.SystemClock(),
            Agent(ScriptedModel([call("nap", seconds=60)] * 2 + [text("Fresh.")]), tools=[nap]),
        )
        options = RunOptions(limits=Limits(seconds=100), on_limit="fail")
        async with clock.runner(clock=system) as runner:
            set_later(system, 10, jump)
            task = await runner.create_task(agent, "Rest.", options=options)
            await runner.run_step(task)
            assert now() == pytest.approx(60, abs=0.01)
            result = await runner.resume(task)
            assert (result.state, now()) == ("failed", pytest.approx(100, abs=0.01))

    clock.run(story())
