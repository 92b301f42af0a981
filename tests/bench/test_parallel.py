"""Calls of one turn run at the same time."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text, turn

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def nap(number: int) -> int:
    """Sleep for a fifth of a second."""
    await asyncio.sleep(0.2)
    return number


async def test_fifty_calls_of_a_fifth_of_a_second_take_nowhere_near_ten_seconds() -> None:
    script = [turn(calls=[call("nap", number=n) for n in range(50)]), text("done")]
    agent = Agent(ScriptedModel(script), name="many", tools=[nap])
    async with Runner("memory:") as runner:
        begin = perf_counter()
        result = await runner.run(agent, "all of them")
        took = perf_counter() - begin
    assert [done.output for done in result.tool_executions] == list(range(50))
    assert took < 5.0
