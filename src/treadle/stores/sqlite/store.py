"""The default journal store: one SQLite file, durable against a killed process and a power cut.

Writes go through the writer thread (`sqlite/writer.py`). Point reads run in the calling thread: they take about 30 us,
less than a hop to another thread. Lists, sums and later pages of journals are read in other threads, so that the event
loop can work meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from treadle.errors import ConfigurationError, TreadleError
from treadle.ports import JournalReader, Record
from treadle.stores.processes import LEASE_SECONDS, checked_lease
from treadle.stores.query_reader import QueryReader
from treadle.stores.sqlite import reading
from treadle.stores.sqlite.schema import Connection, connect_reader, is_fixed, unavailable
from treadle.stores.sqlite.writer import Writer, refuse_inherited
from treadle.stores.write_behind import WriteBehindStore

T = TypeVar("T")


_POINT_READS: Final[frozenset[Callable[..., Any]]] = frozenset((reading.row, reading.inbox, reading.thread))
"""The queries whose cost does not grow with the number of tasks."""


class SQLiteSnapshot(QueryReader):
    """Reads in one transaction, on a connection of its own."""

    queries = reading

    def __init__(self, path: Path, connection: Connection) -> None:
        self._path = path
        self._connection = connection

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`; see `JournalStore.read`."""
        with _typed_errors(self._path):
            return await _read_pages(self._connection, task_id, after, upto)

    async def _query(self, function: Callable[..., T], *arguments: Any) -> T:
        with _typed_errors(self._path):
            return function(self._connection, *arguments)


async def _read_pages(connection: Connection, task_id: str, after: int, upto: int | None) -> list[Record]:
    """Read the records of a task: the first page here, others in another thread."""
    pages = reading.pages(connection, task_id, after, upto)
    records = next(pages, None) or []
    if len(records) < reading.PAGE:  # it is the only one, or that of a fork
        for page in pages:
            records += page
        return records
    return records + await _in_thread(lambda: [record for page in pages for record in page])


async def _in_thread(read: Callable[[], T]) -> T:
    """Return the result of a function that runs in another thread.

    A cancellation of the caller is raised after the function, which uses a connection until then.
    """
    try:
        work = asyncio.get_running_loop().run_in_executor(None, read)
    except RuntimeError:  # the loop or the interpreter is about to end and starts no more threads
        return read()
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise


@contextmanager
def _typed_errors(path: Path) -> Generator[None]:
    try:
        yield
    except TreadleError:
        raise
    except (apsw.Error, ValueError, TypeError, LookupError) as error:  # damage may leave values of any kind
        raise unavailable(path, error) from error


class SQLiteStore(WriteBehindStore[Writer]):
    """A `JournalStore` in a SQLite file.

    Args:
        path: the file; it and its folder are created if necessary, for the owner only.
        lease_seconds: seconds after its last heartbeat for which this process counts as alive; 0.5 to 86,400. It
            applies to processes in other containers and on other hosts, and to all if this process is stopped. In that
            time a process that owns a task writes six heartbeats.

    Do not open the same file with the standard library's `sqlite3` in a process that uses this store: closing one
    drops the other's locks.
    """

    queries = reading

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

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        """Return the records that hold events `after` + 1 to `upto`; see `JournalStore.read`."""
        await self._wait_for_queue()
        with self._reader() as connection:
            connection.execute("BEGIN")
            try:
                return await _read_pages(connection, task_id, after, upto)
            finally:
                connection.execute("COMMIT")

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """Return a reader of one snapshot; see `JournalStore.snapshot`."""
        await self._wait_for_queue()
        with _typed_errors(self._path):
            connection = connect_reader(self._path)
        try:
            with _typed_errors(self._path):
                connection.execute("BEGIN")
                connection.execute(
                    "SELECT 1 FROM tasks LIMIT 1"
                ).fetchall()  # the first query fixes the moment
            yield SQLiteSnapshot(self._path, connection)
        finally:
            connection.close()

    async def _query(self, function: Callable[..., T], *arguments: Any) -> T:
        await self._wait_for_queue()
        if function in _POINT_READS:
            return self._read(function, *arguments)
        return await _in_thread(lambda: self._read(function, *arguments))

    def _read(self, function: Callable[..., T], *arguments: Any) -> T:
        with self._reader() as connection:
            return function(connection, *arguments)

    @contextmanager
    def _reader(self) -> Generator[Connection]:
        """Lend a connection for the length of a block; each concurrent read has its own."""
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
