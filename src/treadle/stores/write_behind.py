"""A store whose writes go through one `WriterThread`: the common methods of SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final, Generic, TypeVar
from weakref import finalize

from treadle.errors import StoreUnavailable
from treadle.ports import (
    AT_ONCE,
    AdoptionQuery,
    Claim,
    Commit,
    CommitDone,
    Committed,
    InboxItem,
    JournalStore,
    Record,
    StoreChanges,
    TaskRow,
    ThreadMember,
    Wake,
)
from treadle.stores.query_reader import QueryReader
from treadle.stores.watchers import Watchers
from treadle.stores.writer_thread import BARRIER, Item, WriterThread

W = TypeVar("W", bound=WriterThread)

DISOWN_RETRY_SECONDS: Final = (0.1, 10.0)
"""Seconds before the second try to give a claim back, and maximum between later tries."""


class WriteBehindStore(QueryReader, JournalStore, Generic[W]):
    """A `JournalStore` that queues its writes; a subclass creates the writer, and reads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._writer: W | None = None
        self._closed = False
        self._fenced = 0
        self._watchers = Watchers()
        """get this object's own writes at once; the writer reports them later"""

    def _new_writer(self) -> W:
        """Start and return a writer."""
        raise NotImplementedError

    def _close_readers(self) -> None:
        """Close the reading connections after the running reads."""
        raise NotImplementedError

    @property
    def fenced(self) -> int:
        """See `JournalStore.fenced`."""
        return self._fenced + (self._writer.fenced if self._writer is not None else 0)

    async def open(self) -> None:
        """Make the store usable, also after `close`; raise `StoreUnavailable` or `StoreFormatError`."""
        with self._lock:
            self._closed = False
        ready = self._active().ready
        if not ready.done() or ready.exception() is not None:
            await asyncio.wrap_future(ready)

    async def close(self) -> None:
        """Write all queued items and close; idempotent."""
        with self._lock:
            writer, self._writer, self._closed = self._writer, None, True
        if writer is None or writer.pid != os.getpid():
            return
        self._close_readers()
        writer.stop(self._closed_error())
        await asyncio.wrap_future(writer.stopped)
        self._fenced += writer.fenced

    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Queue a commit; see `JournalStore.commit`. Raises `StoreUnavailable` once the store is closed."""
        if commit.release and len(self._watchers) > 1:
            done = self._waking_watchers(done, commit.task_id)
        self._active().submit(Item("commit", commit, done, asyncio.get_running_loop()))

    def _waking_watchers(self, done: CommitDone, task_id: str) -> CommitDone:
        def done_and_woken(result: Committed | Exception) -> None:
            done(result)
            self._watchers.wake(StoreChanges(frozenset((task_id,))))

        return done_and_woken

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner; see `JournalStore.claim`."""
        writer = self._active()
        future: asyncio.Future[Claim] = self._submit(writer, "claim", (task_id, enter))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # The claim may still succeed; an owner without a caller would hold the task for ever.
            future.add_done_callback(lambda ended: self._disown_later(writer, task_id, ended))
            raise

    def _disown_later(self, writer: W, task_id: str, ended: asyncio.Future[Claim]) -> None:
        if not ended.cancelled() and ended.exception() is None:
            self._disown(writer, task_id, ended.result().epoch)

    def _disown(self, writer: W, task_id: str, epoch: int, after: float = DISOWN_RETRY_SECONDS[0]) -> None:
        """Give back a claim that no caller waits for; retry while the store cannot be written."""
        loop = asyncio.get_running_loop()

        def done(result: Exception | None) -> None:
            if isinstance(result, StoreUnavailable):
                later = min(2 * after, DISOWN_RETRY_SECONDS[1])
                loop.call_later(after, self._disown, writer, task_id, epoch, later)

        with suppress(StoreUnavailable):  # it is closed, and its tasks were released
            writer.submit(Item("disown", (task_id, epoch), done, loop))

    async def post(self, task_id: str, item: InboxItem) -> bool:
        """Put an item into a task's inbox; see `JournalStore.post`."""
        new = await self._submit(self._active(), "post", (task_id, item))
        self._watchers.wake(StoreChanges(mail=(task_id,)))
        return new

    async def delete(self, task_id: str) -> None:
        """Remove a task and its children; see `JournalStore.delete`."""
        deleted = await self._submit(self._active(), "delete", task_id)
        self._watchers.wake(StoreChanges(None, deleted=frozenset(deleted or ())))

    async def delete_thread(self, thread_id: str) -> None:
        """Remove a thread and all its tasks; see `JournalStore.delete_thread`."""
        deleted = await self._submit(self._active(), "delete_thread", thread_id)
        self._watchers.wake(StoreChanges(None, deleted=frozenset(deleted or ())))

    async def revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        """Revoke an approval for later calls; see `JournalStore.revoke`."""
        return await self._submit(self._active(), "revoke", (grant_id, time, by))

    async def restore(self, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem] = ()) -> None:
        """Insert a task with its whole journal; see `JournalStore.restore`."""
        await self._submit(self._active(), "restore", (row, records, inbox))
        self._watchers.wake(StoreChanges(frozenset((row.task_id,))))

    async def restore_thread(self, thread_id: str, version: int, members: Sequence[ThreadMember]) -> None:
        """Insert a thread; see `JournalStore.restore_thread`."""
        await self._submit(self._active(), "restore_thread", (thread_id, version, members))

    async def orphans(
        self, limit: int, *, after: str | None = None, until: int = AT_ONCE, indirect: bool = False
    ) -> list[TaskRow]:
        """Return tasks that no process drives and one should; see `JournalStore.orphans`."""
        return await self._query(self.queries.orphans, limit, after, until, indirect)

    async def adoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return orphans that a process may drive now; see `JournalStore.adoptable`."""
        return await self._query(self.queries.adoptable, query)

    async def unadoptable(self, query: AdoptionQuery) -> list[TaskRow]:
        """Return one orphan of each agent and format that the process may not drive; see `JournalStore.unadoptable`."""
        return await self._query(self.queries.unadoptable, query)

    def _submit(self, writer: W, operation: str, argument: Any = None) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def done(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        writer.submit(Item(operation, argument, done, loop))
        return future

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` soon after another connection wrote, from the writer's thread; see `JournalStore.watch`."""
        stop, forget = self._active().watch(wake), self._watchers.add(wake)

        def end() -> None:
            forget()
            stop()

        return end

    async def _wait_for_queue(self) -> None:
        """Wait until all queued items are written, so that a read sees them."""
        writer = self._active()
        if writer.finished != writer.queued or not writer.ready.done():
            await self._submit(writer, BARRIER)

    def _active(self) -> W:
        """The running writer; the first use starts it."""
        writer = self._writer
        if writer is not None and writer.closing is None and writer.pid == os.getpid():
            return writer
        with self._lock:
            if self._closed:
                raise self._closed_error()
            if self._writer is None or self._writer.closing is not None or self._writer.pid != os.getpid():
                self._writer = self._new_writer()
                # A store that is dropped without close() must not leave its thread behind.
                finalize(self, self._writer.stop, self._closed_error()).atexit = False
            return self._writer

    def _closed_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self.url} is closed: open() it first")
