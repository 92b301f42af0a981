"""The calls of tools and of agents in a result."""

import pytest

from tests.cast import add, calculator
from treadle import Agent, Runner, ScriptedModel
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio


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
