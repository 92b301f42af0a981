"""A task whose driver crashed between two steps blocked a queue with a concurrency of one."""

import asyncio
import sys

import pytest

from tests.forked import completed
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text

pytestmark = pytest.mark.anyio

CRASHES = """
import asyncio, os, sys
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text

@tool(read_only=True)
def count() -> int:
    return 1

def turns(request):
    if request.turn == 1:
        os._exit(9)
    return call("count")

async def main():
    agent = Agent(ScriptedModel(turns), name="counter", tools=[count])
    async with Runner(sys.argv[1]) as runner:
        for name in ("a", "b"):
            await runner.start(agent, "Count", task_id=name)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_tasks_whose_driver_crashed_between_two_steps_are_finished_one_after_the_other(tmp_path):
    store = tmp_path / "journal.db"
    crashed = await asyncio.to_thread(completed, [sys.executable, "-c", CRASHES, str(store)])
    assert crashed.returncode == 9

    @tool(read_only=True)
    def count() -> int:
        """Count."""
        return 1

    agent = Agent(ScriptedModel([call("count"), text("One.")]), name="counter", tools=[count])
    async with Runner(store, agents=[agent]) as runner:
        runner.begin_adopting(at_most=1)
        async with asyncio.timeout(10):
            while [(await runner.get_task(name)).state for name in ("a", "b")] != ["completed"] * 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
