"""A restart of the database during the recovery of tasks stranded them for ever."""

import asyncio

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core.events import END_STATES
from treadle.models import call, text
from treadle.ports import TaskFilter
from treadle.testing.audit import audit_store
from treadle.testing.postgres import PostgresServer

pytestmark = pytest.mark.anyio


@pytest.mark.full
@pytest.mark.parametrize("tasks", [25, 250])
async def test_all_tasks_end_after_a_restart_of_the_server_during_their_recovery(tasks):
    gate = asyncio.Event()

    @tool(idempotent=True)
    async def work() -> str:
        """Work, once the gate is open."""
        await gate.wait()
        await asyncio.sleep(0.3)
        return "worked"

    agent = Agent(ScriptedModel([call("work"), text("Done.")]), name="worker", tools=[work])
    with PostgresServer() as server:
        first = Runner(server.url)
        for number in range(tasks):
            await first.start(agent, "Work", task_id=f"t{number}")
        await first.aclose()
        gate.set()
        async with Runner(server.url, agents=[agent], adopt=True) as runner:
            await asyncio.sleep(0.2)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(60):
                while True:
                    rows = await runner.store.rows(TaskFilter(limit=tasks))
                    if all(row.state in END_STATES for row in rows):
                        break
                    await asyncio.sleep(0.1)
            assert [row.state for row in rows] == ["completed"] * tasks
            assert await audit_store(runner.store) == []
