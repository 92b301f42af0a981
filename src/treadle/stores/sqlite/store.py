"""A journal store in one SQLite file: the default. Durable against a killed process and a power cut.

Writes go through the writer thread (`sqlite_writer`), reads run where they are asked: a point read costs some 30 us,
a hop to a thread more than that, and long reads let the event loop breathe between pages.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from treadle.errors import ConfigurationError, TreadleError
from treadle.ports import (
    AT_ONCE,
    InboxItem,
    JournalReader,
    Record,
    TaskFilter,
    TaskRow,
    ThreadMember,
    ThreadRow,
)
from treadle.stores.processes import LEASE_SECONDS, checked_lease
from treadle.stores.sqlite import reading
from treadle.stores.sqlite.schema import Connection, connect_reader, is_fixed, unavailable
from treadle.stores.sqlite.writer import Writer, refuse_inherited
from treadle.stores.write_behind import WriteBehindStore

T = TypeVar("T")


class _Asking:
    """What is read by one question to a connection each."""

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        raise NotImplementedError

    async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
        """Return a task's row; see `JournalStore.row`."""
        return await self._ask(reading.row, task_id, deleted)

    async def rows(self, wanted: TaskFilter) -> list[TaskRow]:
        """Return matching rows, newest task id first."""
        return await self._ask(reading.rows, wanted)

    async def inbox(self, task_id: str) -> list[InboxItem]:
        """Return the items not yet taken, in order of arrival."""
        return await self._ask(reading.inbox, task_id)

    async def thread(
        self, thread_id: str, *, version: int | None = None, since: int = 0
    ) -> tuple[int, list[ThreadMember]]:
        """Return a thread's version and its members; see `JournalStore.thread`."""
        return await self._ask(reading.thread, thread_id, version, since)

    async def threads(self, limit: int, *, after: str | None = None) -> list[ThreadRow]:
        """Return the threads that have a version; see `JournalStore.threads`."""
        return await self._ask(reading.threads, limit, after)


class _Snapshot(_Asking):
    """Reads in a transaction on a connection of its own."""

    def __init__(self, path: Path, connection: Connection) -> None:
        self._path = path
        self._connection = connection

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`; see `JournalStore.read`."""
        found: list[Record] = []
        with _typed_errors(self._path):
            for page in reading.pages(self._connection, task_id, after, upto):
                found += page
                await asyncio.sleep(0)
        return found

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        with _typed_errors(self._path):
            return question(self._connection, *about)


@contextmanager
def _typed_errors(path: Path) -> Generator[None]:
    try:
        yield
    except TreadleError:
        raise
    except (apsw.Error, ValueError, TypeError, LookupError) as error:  # damage may leave values of any kind
        raise unavailable(path, error) from error


class SQLiteStore(_Asking, WriteBehindStore[Writer]):
    """A `JournalStore` in a SQLite file.

    Args:
        path: the file; it and its folder are made if need be, for the owner only.
        lease_seconds: how long, after its last heartbeat, this process is taken for alive by processes that cannot see
            whether it ended (those of another host or container), and by all if it is stopped; 0.5 to 86,400. A
            heartbeat is written six times in that while, as long as the process owns a task.

    Do not open the same file with the standard library's `sqlite3` in a process that holds it through this store:
    closing one drops the other's locks.
    """

    def __init__(self, path: str | os.PathLike[str], *, lease_seconds: float = LEASE_SECONDS) -> None:
        if not str(path) or str(path) == ":memory:":
            raise ConfigurationError("SQLiteStore needs a file; for a store in memory use MemoryStore()")
        self._path = Path(path).expanduser().absolute()
        super().__init__()
        self.lease_seconds = checked_lease(lease_seconds)
        self._readers: deque[Connection] = deque()

    @property
    def url(self) -> str:
        """`sqlite:///` and the absolute path."""
        return f"sqlite:///{self._path}"

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def _new_writer(self) -> Writer:
        refuse_inherited(self._path)
        return Writer(self._path, self.lease_seconds)

    def _close_readers(self) -> None:
        while self._readers:
            self._readers.pop().close()

    def _watch_others(self, writer: Writer, wake: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        return writer.watch(wake)

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`; see `JournalStore.read`."""
        await self._settled()
        found: list[Record] = []
        with self._reader() as connection:
            connection.execute("BEGIN")
            try:
                for page in reading.pages(connection, task_id, after, upto):
                    found += page
                    if len(page) == reading.PAGE:
                        await asyncio.sleep(0)
            finally:
                connection.execute("COMMIT")
        return found

    async def orphans(self, limit: int, *, after: str | None = None, until: int = AT_ONCE) -> list[TaskRow]:
        """Return tasks that nobody drives and somebody should; see `JournalStore.orphans`."""
        return await self._ask(reading.orphans, limit, after, until)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """Lend a reader of one moment; see `JournalStore.snapshot`."""
        await self._settled()
        with _typed_errors(self._path):
            connection = connect_reader(self._path)
        try:
            with _typed_errors(self._path):
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM tasks LIMIT 1").fetchall()  # only now it stands still
            yield _Snapshot(self._path, connection)
        finally:
            connection.close()

    async def _ask(self, question: Callable[..., T], *about: Any) -> T:
        await self._settled()
        with self._reader() as connection:
            return question(connection, *about)

    @contextmanager
    def _reader(self) -> Generator[Connection]:
        """Lend a connection; each reader at work has its own."""
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = connect_reader(self._path)
        try:
            with _typed_errors(self._path):
                yield connection
        finally:
            if self._closed or is_fixed(connection):
                connection.close()
            else:
                self._readers.append(connection)
