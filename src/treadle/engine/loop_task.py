"""The asyncio task in which a drive takes its turns, waits and is woken.

A drive has one *loop task* at a time, but not always the same one. A single effect runs inline, in the loop task
itself, since its own asyncio task would often cost more than the effect. If the drive is needed meanwhile, for the
inbox, a timeout or a stop, the loop task stays with the effect. A new loop task then continues:

    loop task A    turn ... turn ... run effect 1 ....................... effect 1 ends, and so does the task
                                         |
                                 wake(): detach the effect, spawn
                                         |
    loop task B                          turn ... turn ... wait, woken by the end of effect 1 ... turn

Invariant: only the asyncio task in `task` takes turns. A loop task that finds another one there ends.

A cancelled loop task was not necessarily the target. The event loop may be closing, or a timer that a tool left hit the
wrong task. The drive is then interrupted and takes its turns to the end, so that the task stays resumable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Protocol


class Drive(Protocol):
    """The interface of a drive to its loop task."""

    over: bool
    """Whether the drive has ended. `end` sets it."""

    async def turn(self) -> bool:
        """Take one turn. Return True if it was the last one."""
        ...

    async def end(self) -> None:
        """Stop running effects, and set `over`."""
        ...

    def interrupt(self, by: str, reason: str) -> None:
        """Interrupt the task."""
        ...

    def is_settled(self) -> bool:
        """Return whether the task has ended or was released, so that no turn is left."""
        ...


class LoopTask:
    """The asyncio task that takes the turns of one drive, replaced when an effect needs it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._drive: Drive | None = None
        self._variables: Context | None = None
        """the context variables of the caller; callbacks that wake the drive have others"""

        self._waker: asyncio.Future[None] | None = None
        self._finish: asyncio.Future[None] | None = None
        self._fault: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.detach_inline: Callable[[], None] = nothing
        """leaves the loop task to its inline effect, if any, and spawns another loop task"""

    async def run(self, drive: Drive) -> BaseException | None:
        """Take turns until the drive is over. Return a fault or the caller's cancellation to raise."""
        cancelled: asyncio.CancelledError | None = None
        self._drive, self._variables = drive, copy_context()
        self.spawn()
        while not drive.over:
            self._finish = self._loop.create_future()
            try:
                await self._finish
            except asyncio.CancelledError as error:
                cancelled = error
                drive.interrupt("caller", "the caller was cancelled or gone")
        self.task = self._variables = self._drive = None
        return self._fault or cancelled

    def spawn(self) -> None:
        """Start a new loop task for the drive. The previous one, if any, stays with its effect."""
        if self._drive is None:
            return
        # Created this way, the task never begins before `self.task` is set, even with an eager task factory.
        self.task = asyncio.Task(self._run(self._drive), loop=self._loop, context=self._variables)
        self.task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        """Replace a loop task that was cancelled before it began, for instance by a closing event loop."""
        drive = self._drive
        if drive is not None and task is self.task and not drive.over and not self._loop.is_closed():
            drive.interrupt("caller", "the event loop was stopped")
            self.spawn()

    async def _run(self, drive: Drive) -> None:
        """Take turn after turn until the drive is over, or another loop task has it."""
        me, is_last = self.task, False
        if me is not None:
            me.remove_done_callback(self._on_done)
        try:
            while self.task is me and not is_last:
                try:
                    is_last = await drive.turn()
                except asyncio.CancelledError:
                    drive.interrupt("caller", "the event loop was stopped")
                    is_last = drive.is_settled()
        except BaseException as error:
            if self.task is not me or self._loop.is_closed():
                raise
            self._fault = error
        if self.task is me:
            try:
                await drive.end()
            finally:
                if self._finish is not None and not self._finish.done():
                    self._finish.set_result(None)

    # ----------------------------------------------------------------------------------------- waiting

    async def wait(self, at_most: float | None = None) -> None:
        """Wait until `wake` is called, for at most `at_most` seconds."""
        self._waker = self._loop.create_future()
        timer = self._loop.call_later(at_most, self.wake) if at_most is not None else None
        try:
            await self._waker
        finally:
            self._waker = None
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Have the drive take its next turn now, even if the loop task awaits an effect."""
        self.detach_inline()
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def wake_from_anywhere(self) -> None:
        """Call `wake` in the event loop of the drive, from any thread."""
        self.call_soon(self.wake)

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        """Call a function in the event loop of the drive, from any thread."""
        with suppress(RuntimeError):  # its loop is closed, so the drive is over
            self._loop.call_soon_threadsafe(callback, *args)


def nothing() -> None:
    """Do nothing."""
