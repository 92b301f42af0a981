"""The outputs of steps."""

import pytest

from tests.cast import add, calculator
from tests.runner.acts import roles_and_texts, step_to_answer
from treadle import Agent, Runner, ScriptedModel
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


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


def test_a_step_and_a_result_read_as_one_line():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), text("3")]), tools=[add])
    runner = Runner("memory:")
    task = runner.sync.create_task(agent, "1 + 2?")
    assert str(runner.sync.run_step(task)) == "s1 completed: add ok"
    assert str(runner.sync.run_step(task)) == "3"
    assert str(runner.sync.finalize(task)) == "3"
