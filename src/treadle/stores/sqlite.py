"""A journal store in one SQLite file: the default. Durable against a killed process and a power cut.

Writes go through the writer thread (`sqlite_writer`), reads run where they are asked: a point read costs some 30 us,
a hop to a thread more than that, and long reads let the event loop breathe between pages.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import finalize

import apsw

from treadle.errors import ConfigurationError, StoreUnavailable, TreadleError
from treadle.ports import (
    Claim,
    Commit,
    CommitDone,
    Committed,
    InboxItem,
    JournalStore,
    Record,
    TaskFilter,
    TaskRow,
    ThreadMember,
)
from treadle.stores import sqlite_reading
from treadle.stores.sqlite_schema import Connection, connect_reader, unavailable
from treadle.stores.sqlite_writer import NOTHING, Item, Writer, refuse_inherited

T = TypeVar("T")


class SQLiteStore(JournalStore):
    """A `JournalStore` in a SQLite file.

    Args:
        path: the file; it and its folder are made if need be, for the owner only.

    Do not open the same file with the standard library's `sqlite3` in a process that holds it through this store:
    closing one drops the other's locks.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not str(path) or str(path) == ":memory:":
            raise ConfigurationError("SQLiteStore needs a file; for a store in memory use MemoryStore()")
        self._path = Path(path).expanduser().absolute()
        self._lock = Lock()
        self._writer: Writer | None = None
        self._closed = False
        self._readers: deque[Connection] = deque()
        self._watchers: dict[object, Callable[[Sequence[str]], None]] = {}

    @property
    def url(self) -> str:
        """`sqlite:///` and the absolute path."""
        return f"sqlite:///{self._path}"

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def open(self) -> None:
        """Make the store usable, also after `close`; raises `StoreUnavailable` or `StoreFormatError`."""
        with self._lock:
            self._closed = False
        ready = self._active().ready
        if not ready.done() or ready.exception() is not None:
            await asyncio.wrap_future(ready)

    async def close(self) -> None:
        """Write what is queued and close; idempotent."""
        with self._lock:
            writer, self._writer, self._closed = self._writer, None, True
        if writer is None or writer.pid != os.getpid():
            return
        while self._readers:
            self._readers.pop().close()
        writer.stop(self._closed_error())
        await asyncio.wrap_future(writer.stopped)

    # ------------------------------------------------------------------------------------------ writing

    def commit(self, commit: Commit, done: CommitDone) -> None:
        """Queue a commit; see `JournalStore.commit`. Raises `StoreUnavailable` once the store is closed."""
        if commit.release and len(self._watchers) > 1:
            done = self._telling(done)
        self._active().submit(Item("commit", commit, done, asyncio.get_running_loop()))

    def _telling(self, done: CommitDone) -> CommitDone:
        def told(result: Committed | Exception) -> None:
            done(result)
            self._tell(())

        return told

    async def claim(self, task_id: str) -> Claim:
        """Become the owner; see `JournalStore.claim`."""
        writer = self._active()
        asked: asyncio.Future[Claim] = self._submit(writer, "claim", task_id)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            # The claim may still succeed; an owner that nobody knows of would hold the task for ever.
            asked.add_done_callback(lambda ended: self._give_back(writer, task_id, ended))
            raise

    def _give_back(self, writer: Writer, task_id: str, ended: asyncio.Future[Claim]) -> None:
        if not ended.cancelled() and ended.exception() is None:
            writer.submit(Item("disown", (task_id, ended.result().epoch)))

    async def post(self, task_id: str, item: InboxItem) -> bool:
        """Put an item into a task's inbox; see `JournalStore.post`."""
        new = await self._submit(self._active(), "post", (task_id, item))
        self._tell((task_id,))
        return new

    async def delete(self, task_id: str) -> None:
        """Remove a task and its children; see `JournalStore.delete`."""
        await self._submit(self._active(), "delete", task_id)

    def _submit(self, writer: Writer, operation: str, argument: Any = None) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Any] = loop.create_future()

        def done(result: Any) -> None:
            if asked.done():
                return
            if isinstance(result, Exception):
                asked.set_exception(result)
            else:
                asked.set_result(result)

        writer.submit(Item(operation, argument, done, loop))
        return asked

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`; see `JournalStore.read`."""
        await self._settled()
        found: list[Record] = []
        with self._reader() as connection:
            connection.execute("BEGIN")
            try:
                for page in sqlite_reading.pages(connection, task_id, after, upto):
                    found += page
                    if len(page) == sqlite_reading.PAGE:
                        await asyncio.sleep(0)
            finally:
                connection.execute("COMMIT")
        return found

    async def row(self, task_id: str) -> TaskRow:
        """Return a task's row; raises `TaskNotFound`."""
        return await self._ask(sqlite_reading.row, task_id)

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest task id first."""
        return await self._ask(sqlite_reading.rows, wanted)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items not yet taken, in order of arrival."""
        return await self._ask(sqlite_reading.inbox, task_id)

    async def thread(self, thread_id: str, *, version: int | None = None) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members in order, or those of an earlier version."""
        return await self._ask(sqlite_reading.thread, thread_id, version)

    def watch(self, wake: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        """Call `wake` from the writer's thread soon after another connection wrote; return how to stop."""
        stop, token = self._active().watch(wake), object()
        self._watchers[token] = wake

        def end() -> None:
            self._watchers.pop(token, None)
            stop()

        return end

    def _tell(self, with_mail: Sequence[str]) -> None:
        """Wake all who watch through this object: the writer notices only what others wrote."""
        for wake in list(self._watchers.values()):
            wake(with_mail)

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        await self._settled()
        with self._reader() as connection:
            return question(connection, *about)

    async def _settled(self) -> None:
        """Wait until what this process queued is written, so that a read sees it."""
        writer = self._active()
        if writer.finished != writer.queued or not writer.ready.done():
            await self._submit(writer, NOTHING)

    @contextmanager
    def _reader(self) -> Generator[Connection]:
        """Lend a connection; each reader at work has its own."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = connect_reader(self._path)
        try:
            yield connection
        except TreadleError:
            raise
        except (
            apsw.Error,
            ValueError,
            TypeError,
            LookupError,
        ) as error:  # damage may leave values of any kind
            raise unavailable(self._path, error) from error
        finally:
            if self._closed:
                connection.close()
            else:
                self._readers.append(connection)

    def _active(self) -> Writer:
        """The running writer; the first use starts it."""
        writer = self._writer
        if writer is not None and writer.closing is None and writer.pid == os.getpid():
            return writer
        refuse_inherited(self._path)
        with self._lock:
            if self._closed:
                raise self._closed_error()
            if self._writer is None or self._writer.closing is not None:
                self._writer = Writer(self._path)
                # A store that is dropped without close() must not leave its thread behind.
                finalize(self, self._writer.stop, self._closed_error()).atexit = False
            return self._writer

    def _closed_error(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {self.url} is closed: open() it first")
