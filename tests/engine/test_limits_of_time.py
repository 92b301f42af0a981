"""The limit in seconds, in virtual time: what it cancels and what it counts."""

import asyncio
from typing import Any

import pytest

from tests.cast import Gate, look
from tests.engine.test_limits import ON_LIMIT, STATES
from tests.runner.acts import assert_journal_makes_sense, assert_well_formed
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel
from treadle.llm.layers.fallback import Fallback
from treadle.llm.scripted import call, fail, text, turn
from treadle.testing import clock

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def seconds() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("on_limit", ON_LIMIT)
async def test_seconds_cancel_what_is_in_flight(runner: Runner, on_limit: Any) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([turn("Looking.", call("work")), "never"]), name="slow", tools=[gate.tool])
    began = seconds()
    result = await runner.run(agent, "go", options=RunOptions(limits=Limits(seconds=200), on_limit=on_limit))
    assert seconds() - began == pytest.approx(200, abs=1)
    assert result.state == STATES[on_limit]
    assert gate.cancelled == 1
    assert len(agent.model.requests) == 1  # type: ignore[union-attr]
    if on_limit == "final_answer":
        assert result.final_text == "Looking."
    if on_limit != "pause":
        assert_well_formed(result.messages)
    await assert_journal_makes_sense(runner, result.task_id)


async def test_seconds_cancel_a_model_in_the_middle_of_its_answer(runner: Runner) -> None:
    agent = Agent(ScriptedModel([text("never", delay=3_000)]), name="slow")
    began = seconds()
    result = await runner.run(agent, "go", options=RunOptions(limits=Limits(seconds=100)))
    assert seconds() - began == pytest.approx(100, abs=1)
    assert (result.state, result.final_text) == ("degraded", "")


async def test_seconds_hold_for_the_last_answer_too(runner: Runner) -> None:
    def say(request: Any) -> Any:
        return call("look") if request.tools else text("never", delay=3_000)

    agent = Agent(ScriptedModel(say), name="slow", tools=[look])
    began = seconds()
    result = await runner.run(agent, "go", options=RunOptions(limits=Limits(steps=1, seconds=300)))
    assert seconds() - began == pytest.approx(300, abs=1)
    assert result.state == "degraded"
    await assert_journal_makes_sense(runner, result.task_id)


class SlowToLoad:
    """A model whose packages take so many seconds to import, the first time."""

    name = "slow_to_load"

    def __init__(self, takes: float) -> None:
        self.takes, self.inner, self.loads = takes, ScriptedModel(lambda request: "Done."), 0

    async def until_loaded(self) -> None:
        if not self.loads:
            self.loads += 1
            await asyncio.sleep(self.takes)

    async def stream(self, request: Any) -> Any:
        await self.until_loaded()
        async for item in self.inner.stream(request):
            yield item


@pytest.mark.parametrize("is_inside", [False, True], ids=["the model", "a model inside"])
async def test_the_first_import_of_a_provider_does_not_use_up_the_seconds(
    runner: Runner, is_inside: bool
) -> None:
    model = SlowToLoad(300)
    agent = Agent(Fallback([ScriptedModel([fail(503)]), model]) if is_inside else model, name="a")
    result = await runner.run(agent, "go", options=RunOptions(limits=Limits(seconds=100)))
    assert (result.state, model.loads) == ("completed", 1)


async def test_the_first_import_of_a_subagents_provider_does_not_use_up_the_seconds(runner: Runner) -> None:
    model = SlowToLoad(300)
    helper = Agent(model, name="helper", description="Helps.")
    lead = Agent(ScriptedModel([call("helper", input="go"), "Done."]), name="lead", subagents=[helper])
    result = await runner.run(lead, "go", options=RunOptions(limits=Limits(seconds=100)))
    assert (result.state, model.loads) == ("completed", 1)


async def test_the_first_import_in_a_later_process_does_not_use_up_the_seconds(store: Any) -> None:
    limits = RunOptions(limits=Limits(seconds=100))
    async with clock.runner(store) as runner:
        await runner.create_task(Agent(SlowToLoad(0), name="a"), "go", task_id="t", options=limits)
    model = SlowToLoad(300)
    async with clock.runner(store) as runner:
        result = await runner.resume("t", agent=Agent(model, name="a"))
        assert (result.state, model.loads) == ("completed", 1)


async def test_without_a_limit_of_time_nothing_waits_for_an_import(runner: Runner) -> None:
    model = SlowToLoad(300)
    began = seconds()
    handle = await runner.start(Agent(model, name="a"), "go")
    assert seconds() - began < 300
    assert (await handle.result()).state == "completed"


async def test_seconds_count_only_time_that_is_driven(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "Done."]), name="slow", tools=[gate.tool])
    limits = RunOptions(limits=Limits(seconds=600))
    handle = await runner.start(agent, "go", options=limits)
    await gate.entered.wait()
    await handle.interrupt()
    await asyncio.sleep(700)
    gate.let_go.set()
    assert (await handle.resume()).state == "completed"


async def test_seconds_are_counted_over_all_attempts(runner: Runner) -> None:
    gate = Gate(read_only=True)
    agent = Agent(ScriptedModel([call("work"), "Done."]), name="slow", tools=[gate.tool])
    handle = await runner.start(agent, "go", options=RunOptions(limits=Limits(seconds=1_000)))
    for _ in range(2):
        await gate.entered.wait()
        await asyncio.sleep(350)
        await handle.interrupt()
        gate.entered.clear()
        if gate.starts < 2:
            asyncio.ensure_future(handle.resume())  # noqa: RUF006
    began = seconds()
    result = await runner.resume(handle.task_id)
    assert result.state == "degraded"
    assert seconds() - began == pytest.approx(300, abs=1)
