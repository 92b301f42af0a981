"""A task that goes in circles is stopped, with every worker; a task that makes progress is not."""

from typing import Any

import pytest

from tests.runner.acts import assert_journal_makes_sense, assert_well_formed, only
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, StepContext, StepResult, tool
from treadle.llm.scripted import call, text, turn

pytestmark = pytest.mark.anyio

STATES = {"final_answer": "degraded", "fail": "failed", "pause": "paused"}


@tool(read_only=True)
async def look(place: int) -> str:
    """Look somewhere."""
    if place < 0:
        raise LookupError(f"there is no place {place}")
    return "nothing here"


def circling(*places: int, worker: Any = None) -> Agent[Any]:
    """Return an agent that looks at these places in turn, for ever; without tools it answers."""

    def say(request: Any) -> Any:
        place = places[request.turn % len(places)]
        if "No tool can be called any more" in request.instructions:
            return text("I give up." if worker is None else ANSWERS[worker])
        return CALLS[worker](place)

    options = {} if worker is None else {"worker": worker}
    return Agent(ScriptedModel(say), name="seeker", tools=[look], **options)


CALLS: dict[Any, Any] = {
    None: lambda place: call("look", place=place),
    "react": lambda place: text(f'Thought: Again.\nAction: look\nAction Input: {{"place": {place}}}'),
    "planner": lambda place: text(f'{{"thought": "", "name": "look", "arguments": {{"place": {place}}}}}'),
}
ANSWERS = {
    "react": "Answer: I give up.",
    "planner": '{"thought": "", "name": "finish", "arguments": {"answer": "I give up."}}',
}


def repeats(n: int, **options: Any) -> RunOptions:
    return RunOptions(limits=Limits(repeats=n, steps=12), **options)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("worker", [None, "react", "planner"])
@pytest.mark.parametrize(("places", "calls"), [((1,), 3), ((1, 2), 5), ((-1,), 3), ((-1, 1), 5)])
async def test_a_task_that_goes_in_circles_is_stopped(
    runner: Runner, worker: Any, places: tuple[int, ...], calls: int
) -> None:
    agent = circling(*places, worker=worker)
    result = await runner.run(agent, "Find it", options=repeats(3))
    assert (result.state, result.final_text) == ("degraded", "I give up.")
    assert len(result.tool_executions) == calls
    (why,) = result.degraded_reasons
    assert why.startswith("limit reached: repeats: no progress: look {")
    reached = await only(runner, result.task_id, "limit_reached")
    assert [(event.limit, event.allowed, event.used) for event in reached] == [("repeats", 3, 3)]
    model: Any = agent.model
    assert "No tool can be called any more: no progress: look" in model.requests[-1].instructions
    assert_well_formed(result.messages)
    await assert_journal_makes_sense(runner, result.task_id)


@pytest.mark.parametrize("on_limit", ["final_answer", "fail", "pause"])
async def test_the_limit_on_repeats_is_handled_like_every_limit(runner: Runner, on_limit: Any) -> None:
    result = await runner.run(circling(1), "Find it", options=repeats(3, on_limit=on_limit))
    assert result.state == STATES[on_limit]
    assert len(result.tool_executions) == 3
    if on_limit == "fail":
        assert result.error is not None
        assert (result.error.source, result.error.kind) == ("limit", "repeats")
        assert "called 3 times" in result.error.message
    again = await runner.resume(result.task_id, options=repeats(5))
    assert again.state == STATES[on_limit]
    assert len(again.tool_executions) == 5
    await assert_journal_makes_sense(runner, result.task_id)


async def test_a_task_that_goes_in_circles_stops_by_default(runner: Runner) -> None:
    result = await runner.run(circling(1), "Find it")
    assert (result.state, result.steps) == ("degraded", 5)
    [why] = result.degraded_reasons
    assert why.startswith("limit reached: repeats: no progress: look {")
    assert why.endswith("was called 5 times with the same result each time")
    several = await runner.run(circling(1, 2, 3), "Find it")
    assert (several.state, len(several.tool_executions)) == ("degraded", 13), (
        "three calls in turn, the fifth time"
    )
    await assert_journal_makes_sense(runner, several.task_id)


async def test_the_limit_on_repeats_can_be_taken_away(runner: Runner) -> None:
    result = await runner.run(circling(1), "Find it", options=RunOptions(limits=Limits(steps=12, repeats=0)))
    assert result.steps == 12
    assert result.degraded_reasons == ("limit reached: steps",)


async def test_a_tool_that_writes_is_not_called_two_hundred_times() -> None:
    written: list[int] = []

    @tool
    def write(number: int) -> str:
        """Write a number."""
        written.append(number)
        return "written"

    model = ScriptedModel(lambda request: call("write", number=1) if request.tools else text("Stopped."))
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, name="writer", tools=[write]), "Write it once")
    assert (result.state, result.final_text, len(written)) == ("degraded", "Stopped.", 5)


async def test_each_call_of_a_turn_counts_as_a_repeat(runner: Runner) -> None:
    def say(request: Any) -> Any:
        return turn("", [call("look", place=1), call("look", place=2)]) if request.tools else text("Done.")

    agent = Agent(ScriptedModel(say), name="seeker", tools=[look])
    result = await runner.run(agent, "Find it", options=repeats(3))
    assert [run.arguments["place"] for run in result.tool_executions] == [1, 2] * 3


async def test_a_call_with_a_new_result_each_time_is_no_circle(runner: Runner) -> None:
    seen = 0

    @tool(read_only=True)
    async def poll() -> int:
        nonlocal seen
        seen += 1
        return seen

    model = ScriptedModel(lambda request: call("poll") if request.turn < 8 else text("It is there."))
    result = await runner.run(Agent(model, name="poller", tools=[poll]), "Wait for it", options=repeats(2))
    assert (result.state, seen) == ("completed", 8)


async def test_a_message_lets_a_task_paused_in_circles_continue(runner: Runner) -> None:
    def say(request: Any) -> Any:
        user_messages = [message.text for message in request.messages if message.role == "user"]
        return text("It is at home.") if "Look at home." in user_messages else call("look", place=1)

    agent = Agent(ScriptedModel(say), name="seeker", tools=[look])
    result = await runner.run(agent, "Find it", options=repeats(2, on_limit="pause"))
    assert result.state == "paused"
    assert (await runner.resume(result.task_id)).state == "paused", "nothing is new"
    await runner.send(result.task_id, "Look at home.")
    result = await runner.resume(result.task_id)
    assert (result.state, result.final_text) == ("completed", "It is at home.")
    await assert_journal_makes_sense(runner, result.task_id)


async def test_an_undo_takes_repeats_back(runner: Runner) -> None:
    agent = circling(1)
    task = await runner.create_task(agent, "Find it", options=repeats(3, on_limit="pause"))
    await runner.run_step(task)
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_step(task)
    assert await only(runner, task.task_id, "limit_reached") == []
    result = await runner.resume(task)
    assert (result.state, len(result.tool_executions)) == ("paused", 3)


async def test_calls_that_a_model_makes_in_a_step_function_count_as_repeats(runner: Runner) -> None:
    async def loop(ctx: StepContext) -> StepResult:
        while True:
            answer = await ctx.call_model()
            if not answer.message.tool_calls:
                return StepResult(answer.message.text, is_last=True)
            await ctx.call_tools(answer)

    agent = Agent(ScriptedModel(lambda request: call("look", place=1)), name="own", tools=[look], worker=loop)
    result = await runner.run(agent, "Find it", options=repeats(3))
    assert (result.state, len(result.tool_executions)) == ("degraded", 3)
    assert "no progress" in result.degraded_reasons[0]
    await assert_journal_makes_sense(runner, result.task_id)


async def test_calls_that_a_step_function_makes_itself_do_not_count_as_repeats(runner: Runner) -> None:
    async def loop(ctx: StepContext) -> StepResult:
        for _ in range(5):
            await ctx.call_tool("look", {"place": 1})
        return StepResult((await ctx.call_model()).message.text, is_last=True)

    agent = Agent(ScriptedModel(["Done."]), name="own", tools=[look], worker=loop)
    result = await runner.run(agent, "Find it", options=repeats(2))
    assert (result.state, len(result.tool_executions)) == ("completed", 5)


def test_a_first_call_repeats_nothing() -> None:
    with pytest.raises(ValueError, match=r"Limits\.repeats must be 2 or more, or 0"):
        Limits(repeats=1)
