"""Results and steps as callers see them."""

import pytest

from tests.runner.cases import (
    Ledger,
    add,
    calculator,
    roles_and_texts,
    sayer,
    step_to_answer,
)
from treadle import Agent, FailurePolicy, Runner, RunOptions, ScriptedModel
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


async def test_a_result_stays_valid_after_its_task_was_deleted(runner: Runner) -> None:
    result = await runner.run(calculator(), "?")
    await runner.delete_task(result.task_id)
    assert result.final_text == "405"
    assert [run.output for run in result.tool_executions] == [363, 405]


def test_a_step_and_a_result_read_as_one_line():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), text("3")]), tools=[add])
    runner = Runner("memory:")
    task = runner.sync.create_task(agent, "1 + 2?")
    assert str(runner.sync.run_step(task)) == "s1 running: add ok"
    assert str(runner.sync.run_step(task)) == "3"
    assert str(runner.sync.finalize(task)) == "3"
