"""Which answers are told to read like calls: those that end a step, of agents that no dialect reads."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call

pytestmark = pytest.mark.anyio

CALL = '{"name": "look", "arguments": {}}'


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


async def warnings(*answers: Any, tools: Any = (look,), **settings: Any) -> tuple[str, ...]:
    agent = Agent(ScriptedModel([*answers]), name="looker", tools=tools, **settings)
    async with Runner("memory:") as runner:
        return (await runner.run(agent, "Look")).warnings


async def test_an_answer_that_is_a_call_is_told():
    assert len(await warnings(CALL)) == 1
    assert len(await warnings(f"  {CALL}\n")) == 1


async def test_an_agent_without_that_tool_means_its_json():
    assert await warnings(CALL, tools=()) == ()


async def test_a_native_call_is_no_text():
    assert await warnings(call("look"), "Seen.") == ()


async def test_a_typed_answer_that_was_accepted_is_an_answer():
    assert await warnings(CALL, output_type=dict[str, Any], output_mode="native") == ()
