"""Watching, attaching and leaving: no channel stays open, and no watcher is cut off when another watcher leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call
from treadle.testing import clock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


def waiting_agent(release: asyncio.Event) -> Agent[Any]:
    @tool(read_only=True)
    async def wait() -> str:
        await release.wait()
        return "waited"

    return Agent(ScriptedModel([call("wait"), "done"]), tools=[wait])


async def test_leaving_an_attached_stream_does_not_cut_off_later_watchers() -> None:
    release = asyncio.Event()
    agent = waiting_agent(release)
    async with Runner("memory:") as runner, asyncio.timeout(5):
        handle = await runner.start(agent, "Go.", task_id="t")
        async with runner.run_stream(agent, "Go.", task_id="t"):
            await asyncio.sleep(0.01)
        seen: list[str] = []

        async def watch() -> None:
            seen.extend([event.kind async for event in handle.events(deltas=False)])

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.01)
        release.set()
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
