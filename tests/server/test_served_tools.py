"""A tool served by itself: its calls are tasks, under the rules of the runner."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cast import add, look, pay, save, scripted_agent
from treadle import Policy, Rule, Runner
from treadle.errors import ConfigurationError
from treadle.server import tool_agent
from treadle.server.served_tools import served_spec

pytestmark = pytest.mark.anyio


async def test_a_task_is_one_call_of_the_tool():
    async with Runner("memory:") as runner:
        result = await runner.run(tool_agent(add), '{"a": 1, "b": 2}')
        assert (result.state, result.output) == ("completed", 3)
        (execution,) = result.tool_executions
        assert (execution.name, execution.arguments) == ("add", {"a": 1, "b": 2})
        assert (await runner.run(tool_agent(look), "{}")).output == "seen"


@pytest.mark.parametrize("given", ["look around", "[]", "3", '{"a": 1}'])
async def test_wrong_arguments_fail_the_task(given: str):
    async with Runner("memory:") as runner:
        result = await runner.run(tool_agent(add), given)
        assert result.state == "failed"
        assert result.error is not None


async def test_approvals_and_policies_hold():
    policy = Policy(Rule("no", "deny", tool="save", reason="not today"))
    async with Runner("memory:", policy=policy) as runner:
        denied = await runner.run(tool_agent(save), '{"note": "x"}')
        assert denied.state == "failed"
        assert denied.error is not None
        assert "not today" in denied.error.message
        waits = await runner.run(tool_agent(pay), json.dumps({"amount": 3}))
        assert [item.kind for item in waits.pending] == ["approval"]
        await runner.approve(waits.task_id)
        paid = await runner.resume(waits.task_id)
        assert (paid.state, paid.output) == ("completed", "paid 3")


def test_only_such_an_agent_has_a_served_tool():
    assert served_spec(tool_agent(pay)) == pay.spec
    assert served_spec(scripted_agent(name="shop", tools=[pay])) is None


def test_it_takes_a_tool():
    given: Any
    for given in (lambda: 3, "pay", None):
        with pytest.raises(ConfigurationError, match="@tool"):
            tool_agent(given)
