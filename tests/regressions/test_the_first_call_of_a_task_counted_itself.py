"""The subject `tool_calls` counted the calls of the present answer: `at_least 1` denied the first call of a task."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from treadle import Agent, EffectRequest, FailurePolicy, Policy, Rule, Runner, RunOptions, ScriptedModel, tool
from treadle.models import call, text
from treadle.replay import record
from treadle.testing import policies

pytestmark = pytest.mark.anyio

MOST = 5
"""How many calls the longest answer makes."""


@tool(read_only=True)
async def look(n: int) -> int:
    """Look; the later ones are back first."""
    for _ in range(MOST - n):
        await anyio.lowlevel.checkpoint()
    return n


def agent(*answers: int, name: str = "looker", **settings: Any) -> Agent[None]:
    """Return an agent whose answers make so many calls each, which are numbered."""
    numbers = iter(range(MOST))
    calls = [[call("look", n=next(numbers)) for _ in range(count)] for count in answers]
    return Agent(ScriptedModel([*calls, text("Seen.")]), name=name, tools=[look], **settings)


@pytest.mark.parametrize("answers", [(4,), (1, 1, 1, 1), (2, 2), (1, 3), (3, 1)])
async def test_each_call_sees_how_many_came_before_it_however_they_are_shared_out(
    store: Any, answers: tuple[int, ...]
):
    seen: dict[int, int] = {}

    def note(request: EffectRequest) -> None:
        seen[request.arguments["n"]] = request.tool_calls  # type: ignore[index]  # pyright: ignore[reportArgumentType]

    async with Runner(store, policy=Policy(Rule("note", note, tool="look"))) as runner:
        await runner.run(agent(*answers), "Look")
    assert seen == {0: 0, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("answers", [(4,), (1, 1, 1, 1), (2, 2)])
async def test_a_rule_allows_the_same_calls_at_once_and_one_at_a_time(store: Any, answers: tuple[int, ...]):
    policy = Policy(Rule("three", "deny", tool="look", when={"tool_calls": {"above": 2}}))
    async with Runner(store, policy=policy) as runner:
        result = await runner.run(agent(*answers), "Look")
    assert [it.outcome for it in result.tool_executions] == ["ok", "ok", "ok", "denied"]


async def test_the_first_call_is_not_the_second():
    policy = Policy(Rule("once", "deny", tool="look", when={"tool_calls": {"at_least": 1}}))
    async with Runner("memory:", policy=policy) as runner:
        result = await runner.run(agent(1, 1), "Look")
    assert [it.outcome for it in result.tool_executions] == ["ok", "denied"]


async def test_a_request_to_a_model_sees_all_calls_of_the_answers_before_it():
    seen: list[int] = []
    rule = Rule("note", lambda request: seen.append(request.tool_calls), model="*")
    async with Runner("memory:", policy=Policy(rule)) as runner:
        await runner.run(agent(2, 1), "Look")
    assert seen == [0, 2, 3]


async def test_a_typed_answer_beside_calls_counts_for_none_of_them():
    seen: list[int] = []
    rule = Rule("note", lambda request: seen.append(request.tool_calls), tool="look")
    model = ScriptedModel(
        [
            [call("final_answer", answer="x"), call("look", n=1)],
            call("look", n=2),
            call("final_answer", answer=1),
        ]
    )
    typed = Agent(model, name="typed", tools=[look], output_type=int, output_mode="tool")
    async with Runner("memory:", policy=Policy(rule)) as runner:
        result = await runner.run(typed, "Look")
    assert (result.output, seen, result.usage.tool_calls) == (1, list(range(len(seen))), len(seen))


async def test_a_call_that_is_repeated_after_a_failure_comes_after_the_failed_one():
    seen: list[int] = []
    rule = Rule("note", lambda request: seen.append(request.tool_calls), tool="shaky")

    @tool(read_only=True)
    def shaky(n: int) -> int:
        """Fail at first."""
        if len(seen) <= 2:
            raise ValueError("not yet")
        return n

    model = ScriptedModel([[call("shaky", n=0), call("shaky", n=1)], text("Done.")])
    shaken = Agent(model, name="shaken", tools=[shaky])
    options = RunOptions(on_failure=FailurePolicy(tool="fail"))
    async with Runner("memory:", agents=[shaken], policy=Policy(rule)) as runner:
        result = await runner.run(shaken, "Go", options=options)
        result = await runner.resume(result.task_id)
    assert result.state == "completed"
    assert sorted(seen) == seen == list(range(len(seen)))


async def test_a_policy_is_tested_on_a_recorded_task_with_the_same_counts():
    policy = Policy(Rule("three", "deny", tool="look", when={"tool_calls": {"above": 2}}))
    async with Runner("memory:") as runner:
        result = await runner.run(agent(3, 1), "Look")
        recording = await record(runner, result.task_id)
    effects = await policies.judged(policy, recording, agent(3, 1))
    assert [it.rules for it in effects] == [(), (), (), ("three",)]
