"""Open a journal file: connection settings, file modes, format check, migrations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote

import apsw

from treadle.errors import StoreFormatError, StoreUnavailable
from treadle.stores.private_files import make_folder

APPLICATION_ID = 0x54524A4C  # "TRJL", at a fixed place of the file's header
BUSY_MS = 10_000
SETTLE_SECONDS = 30.0
SMALL_ROWS = 10_000
WAL_LIMIT = 16 * 1024 * 1024


class Cursor(Protocol):
    """The rows of a statement; a statement without rows has run when `execute` returns."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def close(self, force: bool = False, /) -> None: ...


class Connection(Protocol):
    """The part of `apsw.Connection` that is used here; its own types are partly unknown."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statements: str, bindings: Sequence[Any] = (), /) -> Cursor: ...
    def last_insert_rowid(self) -> int: ...
    def changes(self) -> int: ...
    def set_busy_timeout(self, milliseconds: int, /) -> None: ...
    def readonly(self, name: str, /) -> bool: ...
    def close(self, force: bool = False, /) -> None: ...


def connect_writer(path: Path) -> Connection:
    """Open the one connection that writes; create the file or migrate its format if necessary.

    A file that this process may only read is opened for reading; see `is_read_only`.

    Raises:
        StoreUnavailable: the file cannot be opened, read or written.
        StoreFormatError: the file belongs to another program, or has a format that this version does not know.
    """
    _make_file(path)
    connection = _connect(path)
    try:
        if not _is_readable(connection):
            connection.close(True)
            connection = connect_reader(path)  # which reads it, or raises with the reason
        _patiently(path, lambda: _check_format(connection, path))
        if is_read_only(connection):
            _patiently(path, lambda: _check_migrated(connection, path))
            return connection
        _patiently(path, lambda: _settle(connection))
        _patiently(path, lambda: _migrate(connection, path))
        _patiently(path, lambda: forget_small_tables(connection))
    except BaseException:
        connection.close(True)
        raise
    return connection


def connect_reader(path: Path) -> Connection:
    """Open a read-only connection; if it `is_fixed`, it misses later writes of other connections."""
    connection = _connect(path)
    if not _is_readable(connection) and not Path(f"{path}-wal").exists():
        # No file may be created beside it, not even the one that readers share, and no process is writing.
        connection.close(True)
        connection = _connect_fixed(path)
    pragma(connection, "query_only", 1)
    return connection


def is_read_only(connection: Connection) -> bool:
    """Return whether the file or its folder is write-protected for this process."""
    return connection.readonly("main")


def is_fixed(connection: Connection) -> bool:
    """Return whether a connection treats its file as unchanging, and so must not be used again."""
    return isinstance(connection, _FixedConnection)


def read_only(path: Path) -> StoreUnavailable:
    """Return the error for a write to a file that may only be read."""
    return StoreUnavailable(
        f"{path} may only be read by this process: the store is read-only here. To write to it, make the file and "
        "its folder writable for this user"
    )


def _is_readable(connection: Connection) -> bool:
    """Return whether a file can be read with this connection; any other error is reported by the next step."""
    try:
        pragma(connection, "user_version")
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        return False
    except apsw.Error:
        return True
    return True


def pragma(connection: Connection, name: str, value: object = None) -> Any:
    """Set or read a pragma and return its answer; it takes effect only once all rows are fetched."""
    sql = f"PRAGMA {name}" if value is None else f"PRAGMA {name}={value}"
    rows = connection.execute(sql).fetchall()
    return rows[0][0] if rows else None


def unavailable(path: Path, error: BaseException) -> StoreUnavailable:
    """Return the error for a failed file, with the reason."""
    return StoreUnavailable(f"{path}: {error or type(error).__name__}")


def _make_file(path: Path) -> None:
    """Create missing files, for the owner only. Never open an existing file here: that would drop its locks."""
    try:
        make_folder(path.parent)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path}: {error.strerror or error}") from error


class _FixedConnection(apsw.Connection):
    """A connection that treats its file as unchanging."""


def _connect_fixed(path: Path) -> Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        return cast(Connection, _FixedConnection(f"file:{quote(str(path))}?immutable=1", flags=flags))
    except apsw.Error as error:
        raise unavailable(path, error) from error


def _connect(path: Path) -> Connection:
    try:
        connection = cast(Connection, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE))
        connection.set_busy_timeout(BUSY_MS)
        return connection
    except apsw.Error as error:
        raise unavailable(path, error) from error


def _patiently(path: Path, step: Callable[[], None]) -> None:
    """Run a step of opening with retries: processes may open a new file at once, and SQLite does not always wait."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            return step()
        except (apsw.BusyError, apsw.LockedError) as error:
            if time.monotonic() > deadline:
                raise unavailable(path, error) from error
            time.sleep(0.01)
        except apsw.NotADBError as error:
            raise StoreFormatError(f"{path} is not a SQLite database: choose another file") from error
        except apsw.Error as error:
            raise unavailable(path, error) from error


def _check_format(connection: Connection, path: Path) -> None:
    """Refuse a file of another program before anything in it is changed."""
    # In this order: another process may create the tables in between, and it sets the id with them.
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]
    application = pragma(connection, "application_id")
    if application != APPLICATION_ID and not (is_empty and application == 0):
        raise StoreFormatError(f"{path} is a database of another program: choose another file")


def _settle(connection: Connection) -> None:
    settings = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "journal_size_limit": WAL_LIMIT,
    }
    for name, value in settings.items():
        pragma(connection, name, value)
        if (actual := pragma(connection, name)) != value:
            raise apsw.BusyError(f"{name} is {actual!r}, not {value!r}")


def _migrate(connection: Connection, path: Path) -> None:
    steps = _steps()
    if pragma(connection, "user_version") >= max(steps):
        return check_not_newer(connection, path)
    connection.execute("BEGIN IMMEDIATE").fetchall()
    try:
        version: int = pragma(connection, "user_version")
        check_not_newer(connection, path)
        for number in range(version + 1, max(steps) + 1):
            if number not in steps:
                raise StoreFormatError(
                    f"{path} has format {version}, without a migration to format {max(steps)}: "
                    "open it with the version of Treadle that wrote it, and export its tasks"
                )
            connection.execute(steps[number]).fetchall()
            pragma(connection, "user_version", number)
        pragma(connection, "application_id", APPLICATION_ID)
        connection.execute("COMMIT").fetchall()
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()
        raise


def forget_small_tables(connection: Connection) -> None:
    """Delete the statistics of small tables, by which SQLite would scan a whole table that has grown since."""
    names = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'sqlite_stat?'")
    }
    if "sqlite_stat1" not in names:
        return
    small = "SELECT DISTINCT tbl FROM sqlite_stat1 WHERE CAST(stat AS INTEGER) < ?"
    tables = connection.execute(small, (SMALL_ROWS,)).fetchall()
    for table in tables:
        connection.execute("DELETE FROM sqlite_stat1 WHERE tbl = ?", table).fetchall()
        if "sqlite_stat4" in names:
            connection.execute("DELETE FROM sqlite_stat4 WHERE tbl = ?", table).fetchall()
    if tables:
        connection.execute("ANALYZE sqlite_schema").fetchall()  # it reads them again


def _check_migrated(connection: Connection, path: Path) -> None:
    """Raise `StoreFormatError` unless a file can be used without migration."""
    version, known_version = pragma(connection, "user_version"), max(_steps())
    if is_older(connection):
        raise StoreFormatError(
            f"{path} has format {version}, but this process may only read it: open it once where it can be written, "
            f"which migrates it to format {known_version}"
        )
    check_not_newer(connection, path)


def is_older(connection: Connection) -> bool:
    """Return whether a file has a format that this version migrates before it uses it."""
    return pragma(connection, "user_version") < max(_steps())


def check_not_newer(connection: Connection, path: Path) -> None:
    """Raise `StoreFormatError` if a newer version of Treadle wrote tables that this version cannot use."""
    version, known_version = pragma(connection, "user_version"), max(_steps())
    if version <= known_version:
        return
    table = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'compatible'").fetchone()
    row = table and connection.execute("SELECT opens FROM compatible").fetchone()
    if not row or row[0] > known_version:
        raise StoreFormatError(
            f"{path} has format {version}, this version of Treadle knows formats up to {known_version}: upgrade treadle"
        )


@cache
def _steps() -> Mapping[int, str]:
    """Return the migrations by their resulting format; read once, since a process may lose access to its packages."""
    folder = resources.files("treadle.stores.sqlite.migrations")
    return {int(f.name[:4]): f.read_text() for f in folder.iterdir() if f.name.endswith(".sql")}
