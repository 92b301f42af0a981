"""`drive`: a driver process."""

import asyncio
import os
import sys

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.cli.drive import _drive
from treadle.cli.screen import Screen
from treadle.models import call, text
from treadle.stores.memory import MemoryStore


@tool(read_only=True)
async def rest() -> str:
    """Rest."""
    await asyncio.sleep(60)
    return "rested"


@pytest.mark.anyio
async def test_a_driver_with_a_closed_output_pipe_releases_its_tasks(monkeypatch):
    agent = Agent(ScriptedModel([call("rest"), text("done")]), name="rester", tools=[rest])
    store = MemoryStore()
    reading, writing = os.pipe()
    os.close(reading)
    async with Runner(store, agents=[agent]) as first, Runner(store, agents=[agent]) as second:
        handle = await first.start(agent, "hi")
        await first.drain()
        with os.fdopen(writing, "w") as pipe, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", pipe)
            with pytest.raises(BrokenPipeError):
                await asyncio.wait_for(_drive(second, Screen(json=False), at_most=5, grace=0.0), 10)
            os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())
        task = await second.get_task(handle.task_id)
        assert (task.state, task.driven) == ("interrupted", False)
