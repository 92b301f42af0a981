"""Watching, attaching and leaving: no channel stays open, and no watcher is cut off when another watcher leaves."""

from __future__ import annotations

import asyncio

import pytest

from tests.cast import Gate, gate_agent
from treadle import Agent, Runner, ScriptedModel
from treadle.testing import clock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


async def test_leaving_an_attached_stream_does_not_cut_off_later_watchers() -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    async with Runner("memory:") as runner, asyncio.timeout(5):
        handle = await runner.start(agent, "Go.", task_id="t")
        async with runner.run_stream(agent, "Go.", task_id="t"):
            await asyncio.sleep(0.01)
        seen: list[str] = []

        async def watch() -> None:
            seen.extend([event.kind async for event in handle.events(deltas=False)])

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.01)
        gate.let_go.set()
        await watching
        assert seen[-1] == "task_ended"


async def test_reading_stopped_tasks_leaves_no_channels_open() -> None:
    agent = Agent(ScriptedModel(["done"]))
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "Go.")
        await runner.pause(task)
        async for _ in runner.handle(task).events():
            pass
        await runner.resume(task)
        await runner.handle(task).result()
        assert not runner._driver.owned.channels._channels  # pyright: ignore[reportPrivateUsage]
