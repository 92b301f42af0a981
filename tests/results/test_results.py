"""Results and steps as callers see them."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from tests.runner.acts import Gate, gate_agent, happened
from tests.runner.cases import (
    Ledger,
    add,
    calculator,
    roles_and_texts,
    sayer,
    step_to_answer,
)
from treadle import Agent, Breakpoint, FailurePolicy, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import TaskEndedBadly, TaskFailed, TaskUnfinished
from treadle.llm.scripted import call, fail, text

pytestmark = pytest.mark.anyio


async def test_a_result_has_the_state_of_the_task(runner: Runner) -> None:
    result = await runner.run(calculator(), "What is (121 * 3) + 42?", thread_id="talk")
    assert (result.thread_id, result.state, result.output, result.final_text) == (
        "talk",
        "completed",
        "405",
        "405",
    )
    assert (result.error, result.degraded_reasons, result.pending, result.cost) == (None, (), (), None)
    assert (result.subagent_executions, result.sources, result.artifacts) == ((), (), ())
    assert len(result.messages) == 6
    first = result.tool_executions[0]
    assert (first.name, first.call_id, first.arguments) == ("multiply", "s1-0", {"a": 121, "b": 3})
    assert (first.outcome, first.output, first.error, first.agent) == ("ok", 363, None, "math")
    assert (first.depth, first.path) == (0, ("math",))
    assert first.latency is not None
    assert first.latency >= 0
    assert (result.usage.model_calls, result.usage.tool_calls) == (3, 2)
    assert result.usage.per_agent["math"].total_tokens == result.usage.total_tokens > 0
    assert result.raise_for_state() is result


async def test_the_final_text_never_holds_error_prose(runner: Runner) -> None:
    failed = await runner.run(sayer(fail(500, message="kaboom")), "?")
    assert (failed.final_text, failed.output) == ("", None)
    options = RunOptions(on_failure=FailurePolicy(model="degrade"))
    degraded = await runner.run(sayer(fail(500, message="kaboom")), "?", options=options)
    assert (degraded.state, degraded.final_text) == ("degraded", "")
    assert "kaboom" in degraded.degraded_reasons[0]


async def test_a_partial_answer_is_kept_when_the_model_fails_at_the_end(runner: Runner) -> None:
    options = RunOptions(on_failure=FailurePolicy(model="degrade"))
    agent = Ledger().agent(["Let me see.", call("look", what="a")], fail(500))
    result = await runner.run(agent, "?", options=options)
    assert (result.state, result.final_text) == ("degraded", "Let me see.")


async def test_a_step_output_holds_everything_the_step_did(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    out = await runner.run_step(task)
    assert out.task_id == task.task_id
    assert (out.step.step_id, out.step.index, out.step.attempt) == ("s1", 1, 1)
    assert [part.text for part in out.step.input] == ["?"]
    assert (out.output, out.error, out.pending) == (None, None, ())
    assert [(info.step_id, info.index, info.status) for info in out.next_steps] == [("s2", 2, "next")]
    assert roles_and_texts(out.messages) == [("user", "?"), ("assistant", "multiply"), ("tool", "363")]
    assert [(run.name, run.call_id, run.output) for run in out.tool_executions] == [("multiply", "s1-0", 363)]
    assert (out.usage.model_calls, out.usage.tool_calls) == (1, 1)
    assert out.usage.total_tokens > 0
    assert out.duration >= 0
    last = (await step_to_answer(runner, task))[-1]
    assert (last.output, str(last), last.next_steps) == ("405", "405", ())
    assert roles_and_texts(last.messages) == [("assistant", "405")]


async def test_a_running_task_that_no_process_drives_is_between_steps(runner: Runner) -> None:
    gate = Gate(read_only=True)
    task = await runner.create_task(gate_agent(gate), "?")
    stepping = asyncio.ensure_future(runner.run_step(task))
    await gate.entered.wait()
    for view in (
        await runner.get_task(task),
        await runner.result(task),
        (await runner.list_tasks()).items[0],
    ):
        assert (view.state, view.driven, view.state_text) == ("running", True, "running")
    gate.let_go.set()
    await stepping
    for view in (
        await runner.get_task(task),
        await runner.result(task),
        (await runner.list_tasks()).items[0],
    ):
        assert (view.state, view.driven, view.state_text) == ("running", False, "between steps")
    assert str(await runner.result(task)) == "between steps. Next: `resume` or `run_step` goes on"
    result = await runner.resume(task, agent=gate_agent(gate))
    assert (result.state, result.driven, result.state_text) == ("completed", False, "completed")


@tool(needs_approval=True)
def pay(cents: int) -> str:
    """Pay an amount."""
    return "paid"


@pytest.mark.parametrize(
    ("script", "options", "printed"),
    [
        (
            [call("pay", cents=1)],
            RunOptions(),
            "waiting: pay waits for an approval: its tool asks for it. Next: `approve` or `deny` decides it",
        ),
        (
            [call("add", a=1, b=2)],
            RunOptions(break_on=[Breakpoint(tool="add")]),
            "paused: before the tool add. Next: `resume` goes on",
        ),
        (
            [call("add", a=1, b=2), call("add", a=1, b=3)],
            RunOptions(limits=Limits(steps=1), on_limit="pause"),
            "paused: limit reached: steps. Next: `resume` goes on",
        ),
        (
            [call("add", a=1, b=2), call("add", a=1, b=3)],
            RunOptions(limits=Limits(steps=1)),
            "degraded: limit reached: steps. Next: `fork` or `undo_step` tries again, with other limits",
        ),
        ([fail(400, message="no such model")], RunOptions(), "failed: no such model"),
        (["Done."], RunOptions(), "Done."),
    ],
)
async def test_a_result_without_an_answer_is_printed_with_its_reason_and_the_next_verb(
    runner: Runner, script: Any, options: RunOptions, printed: str
) -> None:
    result = await runner.run(Agent(ScriptedModel(script), tools=[pay, add]), "Go.", options=options)
    assert str(result) == printed
    if result.final_text:
        assert result.answer == printed
    else:
        with pytest.raises((TaskEndedBadly, TaskUnfinished), match=re.escape(printed)) as raised:
            _ = result.answer
        assert type(raised.value) is {"failed": TaskFailed, "degraded": TaskEndedBadly}.get(
            result.state, TaskUnfinished
        )


async def test_a_paused_task_is_printed_with_the_reason_that_a_person_gave(runner: Runner) -> None:
    gate = Gate(read_only=True)
    handle = await runner.start(gate_agent(gate), "go")
    await gate.entered.wait()
    pausing = asyncio.ensure_future(handle.pause(reason="lunch"))
    await happened(handle, "pause_requested")
    gate.let_go.set()
    result = await pausing
    assert (str(result), result.stop_reason) == ("paused: lunch. Next: `resume` goes on", "lunch")
    assert str(await runner.resume(handle.task_id)) == "The end."


@pytest.mark.parametrize("falsy", [0, False, None, []])
async def test_a_falsy_answer_is_an_answer(runner: Runner, falsy: Any) -> None:
    agent = Agent(ScriptedModel([json.dumps({"answer": falsy})]), output_type=int | bool | list[int] | None)
    agent = agent.replace(output_mode="native")
    assert (await runner.run(agent, "Go.")).answer == falsy


async def test_a_result_and_its_steps_have_times(runner: Runner) -> None:
    before = time.time_ns() // 1000
    task = await runner.create_task(calculator(), "?")
    assert ((await runner.result(task)).started_at, (await runner.result(task)).ended_at) == (None, None)
    first = await runner.run_step(task)
    stepped = await runner.result(task)
    assert (stepped.started_at, stepped.ended_at) == (first.started_at, None)
    [upcoming] = await runner.get_upcoming_steps(task)
    assert (upcoming.started_at, upcoming.ended_at) == (None, None)
    result = await runner.resume(task)
    steps = await runner.get_completed_steps(task)
    times = [before, *[time for step in steps for time in (step.started_at, step.ended_at)], result.ended_at]
    assert None not in times
    assert times == sorted(times)
    assert times[-1] <= time.time_ns() // 1000
    assert result.started_at == steps[0].step.started_at
    assert steps[0].duration == (steps[0].ended_at - steps[0].started_at) / 1e6
    assert 0 < result.duration <= (result.ended_at - before) / 1e6
    assert await runner.result(task) == result, "it is the same when it is read from the journal"
    fork = await runner.fork(task, at="s1")
    assert ((await runner.result(fork)).started_at, (await runner.result(fork)).ended_at) == (None, None)
    forked = await runner.resume(fork)
    assert result.ended_at < forked.started_at == (await runner.get_step(fork, 2)).started_at
    await runner.undo_step(task)
    assert (await runner.result(task)).ended_at is None, "it has not ended any more"


async def test_the_calls_of_a_child_are_among_those_of_its_parent(runner: Runner) -> None:
    leaf = calculator(name="leaf")
    stem = Agent(
        ScriptedModel(
            [[call("add", a=1, b=2), call("leaf", input="compute")], call("add", a=3, b=4), "stem"]
        ),
        name="stem",
        tools=[add],
        subagents=[leaf],
    )
    root = Agent(
        ScriptedModel([[call("stem", input="go"), call("add", a=5, b=6)], "root"]),
        name="root",
        tools=[add],
        subagents=[stem],
    )
    result = await runner.run(root, "?", task_id="job")
    seen = [(run.name, run.output, run.depth, run.path, run.task_id) for run in result.tool_executions]
    below = ("root", "stem"), "job.s1-0"
    lowest = ("root", "stem", "leaf"), "job.s1-0.s1-1"
    assert seen == [
        ("stem", "stem", 0, ("root",), "job"),
        ("add", 3, 1, *below),
        ("leaf", "405", 1, *below),
        ("multiply", 363, 2, *lowest),
        ("add", 405, 2, *lowest),
        ("add", 7, 1, *below),
        ("add", 11, 0, ("root",), "job"),
    ]
    assert all(run.agent == run.path[-1] for run in result.tool_executions)
    assert len({(run.task_id, run.call_id) for run in result.tool_executions}) == 7
    assert await runner.result("job") == result
    assert len(seen) == result.usage.tool_calls
    fork = await runner.fork("job", at="s1")
    assert [run.task_id for run in (await runner.result(fork)).tool_executions[1:3]] == ["job.s1-0"] * 2
    await runner.undo_step("job", to=0, force=True)
    assert (await runner.result("job")).tool_executions == ()


async def test_a_result_stays_valid_after_its_task_was_deleted(runner: Runner) -> None:
    result = await runner.run(calculator(), "?")
    await runner.delete_task(result.task_id)
    assert result.final_text == "405"
    assert [run.output for run in result.tool_executions] == [363, 405]


def test_a_step_and_a_result_read_as_one_line():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), text("3")]), tools=[add])
    runner = Runner("memory:")
    task = runner.sync.create_task(agent, "1 + 2?")
    assert str(runner.sync.run_step(task)) == "s1 completed: add ok"
    assert str(runner.sync.run_step(task)) == "3"
    assert str(runner.sync.finalize(task)) == "3"
