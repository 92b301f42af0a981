"""Owning a task for the length of a block: claim it, give it back at rest, and try again where that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from treadle.core.state import TaskState
from treadle.drivers.task_cache import OwnedTask, TaskCache
from treadle.engine.inbox import SURVIVED
from treadle.errors import Fenced, StoreUnavailable, TreadleError, UndoUnfinished
from treadle.ports import InboxItem

GIVING_BACK: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between tries to give back a task whose store cannot be written; the last one again and again."""


class TaskOwnership:
    """Owns tasks for its callers, one block at a time.

    Args:
        desk: who owns what in this process.
        attend: reads a task's inbox, and gives the task back once nothing is left in it.
        clock: microseconds since 1970, UTC.
    """

    def __init__(
        self, desk: TaskCache, attend: Callable[[OwnedTask], Awaitable[Any]], clock: Callable[[], int]
    ) -> None:
        self._desk = desk
        self._attend = attend
        self._clock = clock
        self._giving_back: dict[
            str, tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle | asyncio.Task[bool]]
        ] = {}
        """the next try of each, or the one that is under way"""

    @asynccontextmanager
    async def own(self, task_id: str, *, enter: bool = False) -> AsyncGenerator[OwnedTask]:
        """Own a task for the length of a block; it is given back at rest, whatever happens.

        With `enter`, its thread is asked for at once, as a drive of a step or to the end will need it.
        """
        owned = await self._claim(task_id, enter=enter)
        async with self.releasing(owned):
            yield owned

    @asynccontextmanager
    async def acquire_outside_undo(self, task_id: str, *, enter: bool = False) -> AsyncGenerator[OwnedTask]:
        """Own a task like `own`; raises `UndoUnfinished` while an undo has begun and not ended.

        What was said about such an undo may still lie unread, and is all it waited for: it is read first.
        """
        owned = await self._claim(task_id, enter=enter)
        if owned.state.undo is not None:
            async with self.releasing(owned):
                pass
            _check_no_undo(owned.state)
            owned = await self._claim(task_id, enter=enter)
        async with self.releasing(owned):
            yield owned

    async def _claim(self, task_id: str, *, enter: bool = False) -> OwnedTask:
        try:
            return await self._desk.claim(task_id, enter=enter)
        except BaseException:
            self._release_later(task_id)
            raise

    @asynccontextmanager
    async def releasing(self, owned: OwnedTask) -> AsyncGenerator[None]:
        """Give an owned task back at the end of a block, once its inbox is read."""
        try:
            yield
        finally:
            await self.give_back(owned)

    async def give_back(self, owned: OwnedTask) -> None:
        """Give an owned task back, once its inbox is read."""
        if owned.writer.loop.is_closed():
            self._desk.drop_owned(owned)  # nothing can be awaited any more
            return
        try:
            if not owned.writer.released and owned.writer.failure is None:
                await self._attend(owned)
        finally:
            self._desk.drop_owned(owned)
            self._release_later(owned.state.task_id)
            if isinstance(owned.writer.failure, Fenced):
                await self._report_alive(owned)
            elif owned.writer.released and owned.drive is not None and owned.drive.inbox_unread:
                await self._read_late(owned.state.task_id)

    async def _read_late(self, task_id: str) -> None:
        """Read what reached a task between its release in the store and the moment at which this process knew of it."""
        with suppress(TreadleError):  # the next owner reads it
            if await self._desk.store.inbox(task_id):
                async with self.own(task_id):
                    pass

    async def _report_alive(self, owned: OwnedTask) -> None:
        """Say of a task that was taken from this driver, to whoever drives it now, that it did not die of it."""
        task_id, epoch = owned.state.task_id, owned.writer.epoch
        with suppress(TreadleError):  # unheard, it counts as dead
            row = await self._desk.store.row(task_id)
            if row.driver is not None and row.epoch > epoch:
                item = InboxItem(f"{SURVIVED}-{epoch}", SURVIVED, {"epoch": epoch}, self._clock())
                await self._desk.store.post(task_id, item)

    def _release_later(self, task_id: str, tries: int = 0) -> None:
        """See to it that a task which could not be given back is, as soon as its store can be written again."""
        if task_id not in self._desk.unreleased or (tries == 0 and task_id in self._giving_back):
            return
        seconds = GIVING_BACK[min(tries, len(GIVING_BACK) - 1)]
        loop = asyncio.get_running_loop()
        self._giving_back[task_id] = loop, loop.call_later(seconds, self._try_again, task_id, tries)

    def _try_again(self, task_id: str, tries: int) -> None:
        def tried(work: asyncio.Task[bool]) -> None:
            if not work.cancelled() and work.exception() is None and not work.result():
                self._release_later(task_id, tries + 1)
            else:
                self._giving_back.pop(task_id, None)

        loop = asyncio.get_running_loop()
        work = loop.create_task(self.given_back(task_id))
        self._giving_back[task_id] = loop, work
        work.add_done_callback(tried)

    async def given_back(self, task_id: str) -> bool:
        """Try to give back a task that could not be before; False if the store still cannot be written."""
        if self._desk.is_owned(task_id) or task_id not in self._desk.unreleased:
            return True
        try:
            async with self.own(task_id):
                pass
        except StoreUnavailable:
            return False
        except TreadleError:
            return True  # no try would succeed: whoever asks for the task is told why
        return True

    async def close(self) -> None:
        """Try for a last time to give back what could not be, and stop trying."""
        for loop, later in list(self._giving_back.values()):
            with suppress(RuntimeError):  # its loop is closed, and it with it
                loop.call_soon_threadsafe(later.cancel)
        for task_id in list(self._desk.unreleased):
            await self.given_back(task_id)
        self._desk.close()


def _check_no_undo(state: TaskState) -> None:
    """Raise `UndoUnfinished` while an undo has begun and not ended."""
    if state.undo is not None:
        raise UndoUnfinished(
            f"task {state.task_id}: an undo to step {state.undo.to} has begun and not ended; call undo_step again, "
            "or settle the compensation it waits for",
            task_id=state.task_id,
        )
