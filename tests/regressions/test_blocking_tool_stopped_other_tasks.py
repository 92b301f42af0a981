"""A tool that blocked its thread stopped all other tasks of the process."""

import asyncio
import time

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


@tool(read_only=True)
def block() -> str:
    time.sleep(1)
    return "done"


async def test_other_tasks_go_on_while_a_tool_blocks_its_thread() -> None:
    blocking = Agent(ScriptedModel([call("block"), text("so")]), name="blocking", tools=[block])
    quick = Agent(ScriptedModel(["so"]), name="quick")
    async with Runner("memory:") as runner:
        running = asyncio.ensure_future(runner.run(blocking, "go"))
        await asyncio.sleep(0.05)
        runs = 0
        while not running.done():
            await runner.run(quick, "go")
            runs += 1
            await asyncio.sleep(0.01)
        assert (await running).state == "completed"
    assert runs >= 5  # tens of them, on a machine of its own
