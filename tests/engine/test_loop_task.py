"""The loop task: it takes turns, is replaced when an effect keeps it, and survives cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Thread

import pytest

from treadle.engine.loop_task import LoopTask

pytestmark = pytest.mark.anyio


class Turns:
    """A drive whose turns are what a test passes; the last one ends it."""

    def __init__(self, *turns: Callable[[], Awaitable[object]]) -> None:
        self.turns = list(turns)
        self.interrupted: list[str] = []
        self.over = False

    async def turn(self) -> bool:
        await self.turns.pop(0)()
        return not self.turns

    async def end(self) -> None:
        self.over = True

    def interrupt(self, by: str, reason: str) -> None:
        self.interrupted.append(reason)

    def is_settled(self) -> bool:
        return not self.turns


async def nothing() -> None:
    pass


async def test_turns_are_taken_until_the_last_one() -> None:
    turns = Turns(nothing, nothing, nothing)
    assert await LoopTask().run(turns) is None
    assert (turns.turns, turns.over, turns.interrupted) == ([], True, [])


async def test_an_error_of_a_turn_is_returned_once_the_drive_has_ended() -> None:
    async def fails() -> None:
        raise ValueError("broken")

    turns = Turns(fails, nothing)
    error = await LoopTask().run(turns)
    assert (str(error), turns.over) == ("broken", True)


async def test_a_wait_ends_when_it_is_woken_or_its_time_is_over() -> None:
    loop_task = LoopTask()

    async def wakes_itself() -> None:
        asyncio.get_running_loop().call_soon(loop_task.wake)
        await loop_task.wait()

    async def is_woken_by_a_thread() -> None:
        Thread(target=loop_task.wake_from_anywhere).start()
        await loop_task.wait()

    turns = Turns(wakes_itself, is_woken_by_a_thread, lambda: loop_task.wait(0.001))
    async with asyncio.timeout(5):
        assert await loop_task.run(turns) is None


async def test_a_task_that_was_replaced_takes_no_further_turn() -> None:
    loop_task, opened, taken = LoopTask(), asyncio.Event(), list[asyncio.Task[None] | None]()

    async def detached() -> None:
        taken.append(asyncio.current_task())
        loop_task.spawn()  # as for an effect that keeps this task
        await opened.wait()

    async def second() -> None:
        taken.append(asyncio.current_task())
        opened.set()
        await asyncio.sleep(0)

    turns = Turns(detached, second, nothing)
    assert await loop_task.run(turns) is None
    assert len(set(taken)) == 2


async def test_a_cancelled_caller_interrupts_the_drive_which_goes_on_to_its_end() -> None:
    loop_task, entered = LoopTask(), asyncio.Event()

    async def waits() -> None:
        entered.set()
        await loop_task.wait(0.01)

    turns = Turns(waits, nothing)

    async def caller() -> BaseException | None:
        return await loop_task.run(turns)

    task = asyncio.create_task(caller())
    await entered.wait()
    task.cancel()
    assert isinstance(await task, asyncio.CancelledError)
    assert (turns.interrupted, turns.turns) == (["the caller was cancelled or gone"], [])


async def test_a_cancelled_loop_task_interrupts_the_drive_which_goes_on_to_its_end() -> None:
    loop_task = LoopTask()

    async def is_cancelled() -> None:
        assert loop_task.task is not None
        loop_task.task.cancel()
        await loop_task.wait()

    turns = Turns(is_cancelled, nothing)
    assert await loop_task.run(turns) is None
    assert (turns.interrupted, turns.turns) == (["the event loop was stopped"], [])
