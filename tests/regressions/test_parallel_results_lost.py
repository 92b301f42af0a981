"""Calls of one answer that ended at the same moment lost each other's results."""

import asyncio

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.messages import ToolResult
from treadle.llm.scripted import Turn, call, text
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


async def test_sixteen_calls_that_end_together_have_sixteen_results_each_time() -> None:
    barrier = asyncio.Barrier(16)

    @tool
    async def together(n: int) -> int:
        await barrier.wait()
        return n

    answer = Turn()
    for n in range(16):
        answer += call("together", n=n)
    model = ScriptedModel([answer, text("so")])
    async with Runner("memory:") as runner:
        for _ in range(20):
            result = await runner.run(Agent(model, tools=[together]), "go")
            assert [execution.output for execution in result.tool_executions] == [*range(16)]
            parts = model.requests[-1].messages[-1].parts
            assert [part.text for part in parts if isinstance(part, ToolResult)] == [
                str(n) for n in range(16)
            ]
        assert await audit_store(runner.store, Evidence(ended=True)) == []
