"""A task went on after its caller had left a run or a step through a cancel scope.

A cancel scope, as web frameworks use them at a disconnect, cancels its task again at every await. The block of a stream
was left at the second of these cancellations, while the task was still being stopped.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class Slow:
    """An agent whose tool takes a while to stop."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.stopped = False

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.began.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.2)
                self.stopped = True
                raise
            return "waited"

        self.agent = Agent(ScriptedModel([call("wait"), text("Done.")]), name="slow", tools=[wait])


async def run(runner: Runner, slow: Slow) -> None:
    await runner.run(slow.agent, "Wait", task_id="it")


async def run_stream(runner: Runner, slow: Slow) -> None:
    async with runner.run_stream(slow.agent, "Wait", task_id="it") as stream:
        async for _ in stream:
            pass


async def stream_step(runner: Runner, slow: Slow) -> None:
    await runner.create_task(slow.agent, "Wait", task_id="it")
    async with runner.stream_step("it", agent=slow.agent) as stream:
        async for _ in stream:
            pass


async def run_step(runner: Runner, slow: Slow) -> None:
    await runner.create_task(slow.agent, "Wait", task_id="it")
    await runner.run_step("it", agent=slow.agent)


async def by_a_scope(work: Coroutine[Any, Any, None], slow: Slow) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: work)
        await slow.began.wait()
        group.cancel_scope.cancel()


async def by_two_cancels(work: Coroutine[Any, Any, None], slow: Slow) -> None:
    running = asyncio.ensure_future(work)
    await slow.began.wait()
    for _ in range(2):
        running.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.sampled(3)
@pytest.mark.parametrize("leave", [by_a_scope, by_two_cancels])
@pytest.mark.parametrize("drive", [run, run_stream, run_step, stream_step])
async def test_the_task_has_stopped_when_the_caller_is_out(
    drive: Callable[[Runner, Slow], Coroutine[Any, Any, None]],
    leave: Callable[[Coroutine[Any, Any, None], Slow], Coroutine[Any, Any, None]],
) -> None:
    slow, store = Slow(), MemoryStore()
    async with Runner(store) as runner:
        async with asyncio.timeout(10):
            await leave(drive(runner, slow), slow)
        row = await store.row("it")
        assert (slow.stopped, row.state, row.driver) == (True, "interrupted", None)


async def test_a_stream_cancelled_while_it_is_left_raises_once_the_task_has_stopped() -> None:
    slow, store = Slow(), MemoryStore()
    async with Runner(store) as runner:
        with anyio.move_on_after(10) as scope:
            async with runner.run_stream(slow.agent, "Wait", task_id="it"):
                await slow.began.wait()
                scope.cancel()
        assert scope.cancelled_caught
        assert (slow.stopped, (await store.row("it")).driver) == (True, None)
