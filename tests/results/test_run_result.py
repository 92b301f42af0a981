"""The result of a run, as callers see it and as it is printed."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.cast import Gate, Ledger, add, calculator, gate_agent, sayer
from tests.runner.acts import happened
from treadle import Agent, Breakpoint, FailurePolicy, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import TaskEndedBadly, TaskFailed, TaskUnfinished
from treadle.llm.scripted import call, fail

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
            "degraded: limit reached: steps. Next: `resume` with larger limits goes on",
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


async def test_a_result_stays_valid_after_its_task_was_deleted(runner: Runner) -> None:
    result = await runner.run(calculator(), "?")
    await runner.delete_task(result.task_id)
    assert result.final_text == "405"
    assert [run.output for run in result.tool_executions] == [363, 405]
