"""Typed answers in the life of a task: read once, kept as data, and the same however the task is driven."""

from typing import Any

import pytest

from tests.runner.acts import kinds, only
from tests.runner.typed_cases import IN_ROME, ROME, WORKERS, City, Even, Point, every_mode, scripted
from treadle import Agent, Breakpoint, FailurePolicy, Limits, Runner, RunOptions, ScriptedModel
from treadle.core import events as e
from treadle.errors import CallNotFound, ConfigurationError, StepFailed
from treadle.models import call, turn

pytestmark = pytest.mark.anyio


def two_modes(test: Any) -> Any:
    """Run a test in two of the modes: the rules are the same in each (`tests/agents/decide/test_typed_answers.py`)."""
    return pytest.mark.sampled(2)(every_mode(test))


@two_modes
async def test_stepping_gives_the_typed_answer_of_the_free_run(runner: Runner, mode: Any) -> None:
    agent = scripted(City, mode, {"name": "Rome"}, call("look", where="map"), IN_ROME)
    ran = await runner.run(agent, "Where?")
    task = await runner.create_task(agent, "Where?")
    outputs = [await runner.run_step(task)]
    while not outputs[-1].is_last:
        outputs.append(await runner.run_step(task))
    result = await runner.finalize(task)
    assert [out.is_last for out in outputs] == [False, False, True]
    assert [out.output for out in outputs] == [None, None, ROME]
    assert [len(out.tool_executions) for out in outputs] == [0, 1, 0]
    assert (result.output, result.messages) == (ran.output, ran.messages) == (ROME, ran.messages)
    assert await kinds(runner, task.task_id) == await kinds(runner, ran.task_id)


@two_modes
async def test_an_undone_answer_is_requested_again_after_the_wrong_one_before_it(
    runner: Runner, mode: Any
) -> None:
    agent = scripted(Point, mode, {}, {"x": 1}, name="points")
    task = (await runner.run(agent, "Where?")).task_id
    await runner.undo_step(task)
    undone = await runner.result(task)
    assert (undone.state, undone.output, undone.steps) == ("running", None, 1)
    assert "x: missing" in str(undone.messages[-1])
    again = await runner.resume(task)
    assert (again.state, again.output, again.steps) == ("completed", Point(1.0), 2)
    await runner.undo_step(task, to=0)
    once_more = await runner.resume(task)
    assert (once_more.output, once_more.steps) == (Point(1.0), 2)


@two_modes
async def test_undo_restores_the_retries_of_the_undone_step(runner: Runner, mode: Any) -> None:
    agent = scripted(Point, mode, {}, {}, {"x": 1}, output_retries=1)
    task = await runner.create_task(agent, "Where?")
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.run_step(task)
    with pytest.raises(StepFailed):
        await runner.run_step(task)


@two_modes
async def test_a_fork_of_an_answered_task_gives_its_own_answer(runner: Runner, mode: Any) -> None:
    agent = scripted(Point, mode, {}, {"x": 1})
    first = await runner.run(agent, "Where?")
    same_place = await runner.resume(await runner.fork(first.task_id))
    assert same_place.output == Point(1.0)
    other = agent.replace(model=scripted(Point, mode, {}, {"x": 2}).model)
    elsewhere = await runner.resume(await runner.fork(first.task_id, at="s1", agent=other), agent=other)
    assert (elsewhere.output, (await runner.result(first.task_id)).output) == (Point(2.0), Point(1.0))


@two_modes
async def test_a_resumed_step_that_failed_by_wrong_answers_has_all_its_retries_again(
    runner: Runner, mode: Any
) -> None:
    agent = scripted(Even, mode, {"n": 1}, {"n": 3}, {"n": 5}, {"n": 6}, output_retries=1)
    failed = await runner.run(agent, "Even?")
    assert (failed.state, failed.steps) == ("failed", 1)
    assert failed.error is not None
    assert (failed.error.source, failed.error.kind) == ("model", "invalid_output")
    assert "n: should be even, got 3" in failed.error.message
    result = await runner.resume(failed.task_id)
    assert (result.state, result.output, result.usage.model_calls) == ("completed", Even(n=6), 4)


async def test_the_error_of_an_answer_by_call_names_the_other_modes(runner: Runner) -> None:
    errors = {}
    for mode in ("tool", "native", "prompt"):
        agent = Agent(ScriptedModel(["Rome."]), output_type=City, output_mode=mode, output_retries=0)
        errors[mode] = (await runner.run(agent, "Where?")).error.message
    assert 'try output_mode="native"' in errors["tool"]
    assert "output_mode" not in errors["native"] + errors["prompt"]


async def test_a_step_that_fails_by_wrong_answers_keeps_its_tool_calls(runner: Runner) -> None:
    beside = turn(calls=[call("look", where="map"), call("final_answer", n=1)])
    agent = scripted(Even, "tool", beside, beside, {"n": 2}, output_retries=0)
    failed = await runner.run(agent, "Even?")
    assert [run.call_id for run in failed.tool_executions] == ["s1-0"]
    again = await runner.resume(failed.task_id)
    assert [run.call_id for run in again.tool_executions] == ["s1-0", "s1-2"]
    result = await runner.resume(failed.task_id)
    assert (result.output, result.usage.tool_calls) == (Even(n=2), 2)


@pytest.mark.parametrize(("policy", "state"), [("degrade", "degraded"), ("pause", "paused")])
@two_modes
async def test_the_failure_policy_of_models_applies_to_wrong_answers(
    runner: Runner, mode: Any, policy: Any, state: str
) -> None:
    options = RunOptions(on_failure=FailurePolicy(model=policy))
    agent = scripted(Point, mode, {}, {"x": 1}, output_retries=0)
    stopped = await runner.run(agent, "Where?", options=options)
    assert (stopped.state, stopped.output) == (state, None)
    assert (await runner.resume(stopped.task_id, options=options)).output == Point(1.0)


@two_modes
async def test_at_a_limit_a_last_typed_answer_is_requested(runner: Runner, mode: Any) -> None:
    agent = scripted(Point, mode, call("look", where="map"), {"x": 1}, {"x": 2}, limits=Limits(steps=1))
    result = await runner.run(agent, "Where?")
    assert (result.state, result.output) == ("degraded", Point(1.0))
    last_request = agent.model.requests[-1]  # pyright: ignore[reportAttributeAccessIssue]
    assert [spec.name for spec in last_request.tools] == (["final_answer"] if mode == "tool" else [])
    if mode not in WORKERS:
        assert last_request.tool_choice == ("final_answer" if mode == "tool" else "none")
    assert (last_request.output_schema is not None) == (mode == "native")
    more = await runner.resume(result.task_id, options=RunOptions(limits=Limits(steps=5)))
    assert (more.state, more.output) == ("completed", Point(2.0))


@two_modes
async def test_a_last_answer_of_the_wrong_type_is_not_an_answer(runner: Runner, mode: Any) -> None:
    agent = scripted(Point | None, mode, call("look", where="map"), "far", limits=Limits(steps=1))
    result = await runner.run(agent, "Where?")
    assert (result.state, result.output, result.final_text) == ("degraded", None, "")
    assert result.degraded_reasons == ("limit reached: steps; the last answer was not of the output type",)


@two_modes
async def test_a_wrong_answer_in_the_last_allowed_step_is_followed_by_a_last_answer(
    runner: Runner, mode: Any
) -> None:
    agent = scripted(Point, mode, {}, {"x": 1}, limits=Limits(steps=1))
    result = await runner.run(agent, "Where?")
    assert (result.state, result.output, result.steps) == ("degraded", Point(1.0), 1)


async def test_the_call_that_gives_the_answer_does_not_count_as_a_tool_call(runner: Runner) -> None:
    agent = scripted(Point, "tool", call("look", where="map"), {"x": 1}, limits=Limits(tool_calls=1))
    result = await runner.run(agent, "Where?")
    assert (result.state, result.output, result.usage.tool_calls) == ("completed", Point(1.0), 1)


async def test_the_call_that_gives_the_answer_cannot_be_edited_replaced_or_paused_at(runner: Runner) -> None:
    giving = turn(calls=call("final_answer", x=1), delay=0.05)
    agent = scripted(Point, "tool", giving)
    handle = await runner.start(agent, "Where?", options=RunOptions(break_on=[Breakpoint(before_tool="*")]))
    async for event in handle.events():
        if event.kind == "model_started":
            break
    assert (await handle.pause()).state == "paused"
    with pytest.raises(CallNotFound):
        await runner.edit_call(handle.task_id, "s1-0", {"x": 7})
    done = await runner.resume(handle.task_id)
    assert (done.state, done.output) == ("completed", Point(1.0))
    with pytest.raises(CallNotFound):
        await runner.fork(handle.task_id, replace={"s1-0": {"x": 7}})


@two_modes
async def test_input_after_a_typed_answer_is_read_before_the_next_answer(runner: Runner, mode: Any) -> None:
    agent = scripted(Point, mode, {"x": 1}, {"x": 2})
    task = await runner.create_task(agent, "Where?")
    assert (await runner.run_step(task)).is_last
    assert (await runner.run_step(task, input="Look again.")).output == Point(2.0)
    assert (await runner.finalize(task)).output == Point(2.0)


@two_modes
async def test_a_thread_continues_after_a_typed_answer(runner: Runner, mode: Any) -> None:
    agent = scripted(Point, mode, {}, {"x": 1})
    first = await runner.run(agent, "Where?", thread_id="talk")
    listener = ScriptedModel(["Yes."])
    later = await runner.run(Agent(listener), "Sure?", thread_id=first.thread_id)
    assert later.output == later.final_text == "Yes."
    assert '"x":1' in str(listener.requests[0].messages[-2].text).replace(" ", "")


async def test_without_a_type_the_output_is_the_text(runner: Runner) -> None:
    result = await runner.run(Agent(ScriptedModel(["4"]), output_type=str), "How many?")
    assert (result.output, result.final_text) == ("4", "4")


async def test_a_model_declares_the_output_mode_that_auto_uses(runner: Runner) -> None:
    class Native(ScriptedModel):
        output_mode = "native"

    class Odd(ScriptedModel):
        output_mode = "telepathy"

    for model, seen in (
        (Native(['{"x": 1}']), ("native",)),
        (ScriptedModel([call("final_answer", x=1)]), ("tool",)),
    ):
        assert (await runner.run(Agent(model, output_type=Point), "Where?")).output == Point(1.0)
        request = model.requests[0]
        assert ("native" if request.output_schema else "tool" if request.tools else "prompt",) == seen
    with pytest.raises(ConfigurationError, match="telepathy"):
        await runner.run(Agent(Odd([]), output_type=Point), "Where?")


async def test_the_journal_holds_the_typed_answer_in_the_event_of_the_model_answer(runner: Runner) -> None:
    result = await runner.run(scripted(Point, "tool", {}, {"x": 1}), "Where?")
    wrong, right = [event.typed for event in await only(runner, result.task_id, "model_returned")]
    assert (wrong.output, wrong.call, right) == (
        None,
        "s1-0",
        e.TypedAnswer({"x": 1.0, "y": 0.0}, None, "s2-0"),
    )
