"""ReAct's last answer at a limit: "no tool may be used any more", and below it "To use a tool, write exactly ..."."""

import pytest

from treadle import Agent, Limits, Runner, ScriptedModel, tool
from treadle.agents.dialects.react import CALL_FORMAT, HEADER

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_only_requests_with_tools_explain_calls() -> None:
    model = ScriptedModel(['Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}', "Answer: 3"])
    agent = Agent(model, tools=[add], worker="react", limits=Limits(steps=1))
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "1 + 2?")
    first, last = (request.instructions for request in model.requests)
    assert (result.state, result.final_text) == ("degraded", "3")
    assert CALL_FORMAT in HEADER
    assert CALL_FORMAT in first
    assert "no tool may be used any more" in last
    assert "To use a tool" not in last
    assert last == HEADER.replace(CALL_FORMAT, "").replace("{tools}", last.split("\n")[3])
