"""A policy, a router or a pipeline put data into a task that no journal gives back; it was accepted."""

from typing import Any

import pytest

from treadle import Agent, Handoff, Node, Pipeline, Policy, Route, Runner, ScriptedModel, tool
from treadle.errors import ConfigurationError
from treadle.models import call
from treadle.policy.verdicts import Replace

pytestmark = pytest.mark.anyio


def deep() -> Any:
    value: Any = 1
    for _ in range(3_000):
        value = [value]
    return value


BAD = {"NaN": float("nan"), "half a character": "\ud800", "an object": object(), "deep": deep()}
each_bad = pytest.mark.parametrize("bad", BAD.values(), ids=BAD)


@pytest.mark.parametrize(
    "arguments",
    [*[{"order": bad} for bad in BAD.values()], ["order"], "order"],
    ids=[*BAD, "a list", "a text"],
)
async def test_by_a_policy(arguments: Any) -> None:
    @tool
    async def pay(order: Any) -> str:
        return "paid"

    def replaces(request: Any) -> Any:
        return Replace(arguments) if request.kind == "tool" else None

    agent = Agent(ScriptedModel([call("pay", order="A-1"), "Done."]), tools=[pay])
    async with Runner("memory:", policy=Policy(replaces)) as runner:
        result = await runner.run(agent, "go")
        assert not (await runner.verify()).findings
    (execution,) = result.tool_executions
    assert execution.outcome == "denied"
    assert execution.error is not None
    assert "the policy replaced its arguments by data that cannot be stored" in execution.error.message
    assert execution.arguments == {"order": "A-1"}


@each_bad
async def test_by_a_router(bad: Any) -> None:
    other = Agent(ScriptedModel(["Hello."]), name="other")
    agent = Agent(
        ScriptedModel(["Hi."]),
        router=lambda ctx: Route("other", arguments={"reason": bad}),
        handoffs=[Handoff(other)],
    )
    async with Runner("memory:", agents=[other]) as runner:
        result = await runner.run(agent, "go")
        assert not (await runner.verify()).findings
    assert result.state == "failed"


@each_bad
def test_by_a_pipeline(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="input must be JSON data"):
        Pipeline([Node("one", tool(len_of), input={"value": bad})])


def len_of(value: Any) -> int:
    """Return a length."""
    return len(value)
