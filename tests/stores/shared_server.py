"""A PostgreSQL server that thousands of trials share: its schemas are made once and emptied, its sessions are lent.

A schema with all its tables takes a server fifty times longer to make than to empty, and a session longer to begin
than a trial takes in it. A trial cannot tell: its schemas have the tables and no rows, and a lent session forgot its
settings, prepared statements and channels.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from treadle.stores.postgres import PostgresStore, schema
from treadle.stores.postgres.schema import BoundedConnection
from treadle.testing.postgres import PostgresServer

TRUNCATED_EVERY: Final = 20
"""Schemas are emptied by DELETE, which is cheaper, and each so often by TRUNCATE, which removes the dead rows too."""

SETTINGS: Final = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}
"""Settings of a server whose data need not outlive it, for `PostgresServer`."""


class Schemas:
    """Lends empty schemas of a server to one trial after another.

    Args:
        server: a running server.
    """

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._connection = psycopg.connect(server.url, autocommit=True)
        self._connection.execute("SET session_replication_role = replica")  # rows are deleted in any order
        self._made: list[str] = []
        self._lent: dict[Path, str] = {}
        self._emptied = self._new = 0
        self._empties = {"DELETE": "", "TRUNCATE": ""}

    def close(self) -> None:
        self._connection.close()

    async def begin(self, *, needed: int = 2) -> None:
        """Take back the schemas of the last trial, end its sessions, and make and empty some for the next one."""
        self._connection.execute(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name LIKE 'treadle%'"
        )
        while len(self._made) < needed:
            await self._make()
        used = list(self._lent.values())
        self._lent.clear()
        for name in used:
            if name not in self._made:
                self._connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
                continue
            self._emptied += 1
            how = "DELETE" if self._emptied % TRUNCATED_EVERY else "TRUNCATE"
            self._connection.execute(self._empties[how].replace("SCHEMA", name), prepare=False)

    async def _make(self) -> None:
        name = f"shared_{len(self._made)}"
        store = PostgresStore(self.server.in_schema(name))
        await store.open()
        await store.close()
        rows = self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (name,))
        tables = [f"SCHEMA.{table}" for (table,) in rows.fetchall() if table != "treadle_format"]
        assert len(tables) > 5
        self._empties["DELETE"] = ";".join(f"DELETE FROM {table}" for table in tables)
        self._empties["TRUNCATE"] = f"TRUNCATE {', '.join(tables)}"
        self._connection.execute(self._empties["DELETE"].replace("SCHEMA", name), prepare=False)
        self._made.append(name)

    def url(self, place: Path, *, new: bool = False) -> str:
        """Return the URL of the schema for a place of the trial; with `new`, it has no tables before it is opened."""
        if place not in self._lent:
            free = [name for name in self._made if name not in self._lent.values()]
            if new or not free:
                self._new += 1
                free = [f"new_{self._new}"]
            self._lent[place] = free[0]
        return self.server.in_schema(self._lent[place])


class LentConnection(BoundedConnection):
    """A session that begins and ends as every other for its store; the server keeps it for the next one."""

    folder: ClassVar[str] = ""
    idle: ClassVar[list[Any]] = []

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Any:
        parameters = conninfo_to_dict(conninfo)
        name = parameters.pop("application_name", "")
        if parameters.get("host") != cls.folder:  # through a proxy
            return BoundedConnection.connect(conninfo, **options)
        while True:
            try:
                connection = cls._lent(cls.idle.pop(), **options)
            except IndexError:
                connection = super().connect(make_conninfo(**parameters), **options)
            try:
                connection.execute("SELECT set_config('application_name', %s, false)", (name,))
            except psycopg.OperationalError:  # it was ended while it was idle
                continue
            return connection

    @classmethod
    def _lent(cls, session: Any, *, autocommit: bool, row_factory: Any) -> Self:
        connection = cls(session)
        connection._autocommit = autocommit
        connection.row_factory = row_factory
        return connection

    def close(self) -> None:
        session = self.pgconn
        if (
            self.closed
            or session.transaction_status != pq.TransactionStatus.IDLE
            or session.exec_(b"DISCARD ALL").status != pq.ExecStatus.COMMAND_OK
        ):
            super().close()
            return
        while session.notifies():
            pass
        self.pgconn = _ENDED
        self._closed = True
        self.idle.append(session)


def _ended() -> Any:
    session = pq.PGconn.connect_start(b"host=/nonexistent")
    session.finish()
    return session


_ENDED: Final = _ended()


@contextmanager
def lent_connections(server: PostgresServer) -> Iterator[None]:
    """Let stores take their sessions with a server from those that others ended."""
    schema.BoundedConnection = LentConnection
    LentConnection.folder = str(server.folder)
    try:
        yield
    finally:
        schema.BoundedConnection = BoundedConnection
        for session in LentConnection.idle:
            session.finish()
        LentConnection.idle.clear()


class Backends:
    """Sessions of a server for the wire: begun without a client, and given to one after another."""

    def __init__(self, server: Path) -> None:
        self._server = server / ".s.PGSQL.5432"
        self._idle: list[socket.socket] = []
        self.greeting = b""
        """the server's messages at the begin of a session, for a client that gets a session that had begun before"""

    def take(self, startup: bytes) -> socket.socket:
        """Return a session with the name that a client's first message gives it."""
        fields = startup[8:].split(b"\0")
        name = dict(zip(fields[::2], fields[1::2], strict=False)).get(b"application_name", b"")
        statement = b"SET application_name = '" + name.replace(b"'", b"''") + b"'"
        while self._idle:
            backend = self._idle.pop()
            try:
                self._ask(backend, statement)
            except OSError:  # it was ended while it was idle
                backend.close()
                continue
            return backend
        backend = socket.socket(socket.AF_UNIX)
        backend.connect(str(self._server))
        plain = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"
        backend.sendall(struct.pack("!ii", 8 + len(plain), 3 << 16) + plain)
        self.greeting = self._until_ready(backend)
        self._ask(backend, statement)
        return backend

    def give_back(self, backend: socket.socket) -> None:
        """Keep a session that is in no transaction, or end it."""
        try:
            self._ask(backend, b"DISCARD ALL")
        except OSError:
            backend.close()
        else:
            self._idle.append(backend)

    def close(self) -> None:
        for backend in self._idle:
            backend.close()

    def _ask(self, backend: socket.socket, statement: bytes) -> None:
        backend.sendall(b"Q" + struct.pack("!i", len(statement) + 5) + statement + b"\0")
        if b"E" in _kinds(self._until_ready(backend)):
            raise OSError(f"the server refuses {statement!r}")

    def _until_ready(self, backend: socket.socket) -> bytes:
        answer = b""
        while not answer.endswith(READY):
            data = backend.recv(1 << 16)
            if not data:
                raise OSError("the session ended")
            answer += data
        return answer


READY: Final = b"Z\0\0\0\5I"
"""the last message of a server to a client that is in no transaction"""


def _kinds(messages: bytes) -> list[bytes]:
    """Return the kinds of messages of a server."""
    kinds: list[bytes] = []
    while messages:
        kinds.append(messages[:1])
        messages = messages[1 + int.from_bytes(messages[1:5], "big") :]
    return kinds
