"""A cancel at the moment when a step completed was lost, or the task never ended."""

import asyncio
import random
import time

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

TIMES = 80


async def test_a_cancel_at_any_instant_around_completion_ends_the_task_once_and_soon(tmp_path):
    chance = random.Random(34)

    @tool(read_only=True)
    async def nap(milliseconds: float) -> str:
        """Sleep a little."""
        await asyncio.sleep(milliseconds / 1e3)
        return "slept"

    def turns(request):
        return call("nap", milliseconds=chance.uniform(0, 8)) if request.turn == 0 else text("Done.")

    agent = Agent(ScriptedModel(turns), name="napper", tools=[nap])
    slowest, states = 0.0, []
    async with (
        Runner(tmp_path / "journal.db", agents=[agent]) as driving,
        Runner(tmp_path / "journal.db") as other,
    ):

        async def one(number):
            nonlocal slowest
            handle = await driving.start(agent, "Go", task_id=f"t{number}")
            await asyncio.sleep(chance.uniform(0, 0.02))
            began = time.monotonic()
            cancelled = await (other if number % 2 else driving).cancel(f"t{number}")
            assert (await handle.result()).state == cancelled.state
            slowest = max(slowest, time.monotonic() - began)
            states.append(cancelled.state)

        for begin in range(0, TIMES, 10):
            await asyncio.gather(*[one(number) for number in range(begin, begin + 10)])
        assert set(states) == {"cancelled", "completed"}, "both sides of the moment were met"
        assert len(states) == TIMES
        assert slowest < 5.0, "and a busy machine is given some time"
        assert await audit_store(driving.store) == []
