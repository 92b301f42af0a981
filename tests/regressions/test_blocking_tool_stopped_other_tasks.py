"""A tool that blocked its thread stopped all other tasks of the process."""

import asyncio
import threading

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


async def test_other_tasks_go_on_while_a_tool_blocks_its_thread() -> None:
    entered, others_ran = threading.Event(), threading.Event()

    @tool(read_only=True)
    def block() -> str:
        entered.set()
        return "let go" if others_ran.wait(20) else "alone"

    blocking = Agent(ScriptedModel([call("block"), text("so")]), name="blocking", tools=[block])
    quick = Agent(ScriptedModel(["so"]), name="quick")
    async with Runner("memory:") as runner:
        running = asyncio.ensure_future(runner.run(blocking, "go"))
        await asyncio.to_thread(entered.wait, 20)
        for _ in range(5):
            await runner.run(quick, "go")
        others_ran.set()
        assert (await running).tool_executions[0].output == "let go"
