"""A disk that fails at a chosen operation, below SQLite: a file system layer, and a store that has all its files on it.

The layer has no shared memory, so the store has one connection: what it reads is read in the writer's thread, between
the groups that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import apsw

from treadle.ports import Record
from treadle.stores.processes import this_process
from treadle.stores.sqlite import SQLiteStore, reading, schema
from treadle.stores.sqlite.journal import Journal
from treadle.stores.sqlite.schema import Connection
from treadle.stores.sqlite.writer import Writer

VFS_NAME = "treadle-faulty"

Fault = Literal["error once", "error until healed", "full until healed"]


class Disk:
    """The faults of a disk: the nth operation fails, and maybe all that follow.

    Of a full disk only writes fail, and only those that would make a file longer; only these are counted.
    """

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self.fault: Fault = "error once"

    def failing(self, at: int, fault: Fault) -> None:
        self.count, self.at, self.fault = 0, at, fault

    def heal(self) -> None:
        self.at = None

    def met(self) -> list[int]:
        """Return which operations met the fault; of those that fail until it is healed, the first."""
        return [self.at] if self.at is not None and self.count >= self.at else []

    def operate(self, *, grows: bool = False) -> None:
        """Count an operation; raise if it is one that fails."""
        full = self.fault == "full until healed"
        self.count += grows or not full
        if self.at is None or self.count < self.at:
            return
        if full:
            if grows:
                raise apsw.FullError("the disk is full")
        elif self.fault == "error until healed" or self.count == self.at:
            raise apsw.IOError("the disk does not answer")


DISK = Disk()


class FaultyFile(apsw.VFSFile):
    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        DISK.operate()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        DISK.operate(grows=offset + len(data) > super().xFileSize())
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        DISK.operate()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        DISK.operate()
        super().xTruncate(newsize)


class FaultyVFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")

    def xOpen(self, name: Any, flags: Any) -> FaultyFile:  # noqa: N802
        DISK.operate()
        return FaultyFile("", name, flags)


def _connect(path: Path) -> Connection:
    opened: Any = None
    try:
        opened = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=VFS_NAME)
        connection = cast(Connection, opened)
        schema.pragma(connection, "locking_mode", "exclusive")
        schema._settle(connection)
    except apsw.Error as error:
        if opened is not None:
            opened.close(True)
        raise schema.unavailable(path, error) from error
    return connection


class _Asked(Journal):
    """The write side of a file that runs queries, too."""

    def ask(self, request: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        question, about = request
        return question(self._connection, *about)


class _OneConnection(Writer):
    def _open(self) -> None:
        self._connection = _connect(self.path)
        self._journal = _Asked(self._connection, this_process(), self._lease_seconds)


class OneConnectionStore(SQLiteStore):
    """A store on the faulty disk, whose reads go through the writer's connection."""

    def _new_writer(self) -> Writer:
        return _OneConnection(self.path)

    async def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._submit(self._active(), "ask", (function, arguments))

    async def read(self, task_id: str, *, after: int = 0, upto: int | None = None) -> list[Record]:
        return await self._query(reading.records, task_id, after, upto)


@contextmanager
def faulty_disk() -> Iterator[Disk]:
    """Put the files of every `OneConnectionStore` onto the faulty disk."""
    registered = FaultyVFS()
    DISK.heal()
    try:
        yield DISK
    finally:
        DISK.heal()
        registered.unregister()
