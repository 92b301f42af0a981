"""A journal store in a schema of a PostgreSQL database, for drivers on several hosts.

Writes go through the writer thread of `postgres/writer.py`, reads through the threads of `postgres/readers.py`. Both
go on after a restart of the server.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from treadle.errors import MissingExtra

try:
    import psycopg as _  # noqa: F401
except ImportError as error:
    raise MissingExtra("postgres", "a store at postgresql://...") from error

from treadle.ports import Claim, JournalReader
from treadle.stores.postgres import reading
from treadle.stores.postgres.journal import TaskLocked
from treadle.stores.postgres.readers import Readers
from treadle.stores.postgres.schema import Address, address
from treadle.stores.postgres.snapshot import SnapshotSession
from treadle.stores.postgres.writer import PostgresWriter
from treadle.stores.query_reader import QueryReader
from treadle.stores.write_behind import WriteBehindStore

T = TypeVar("T")

PATIENCE: Final = 30.0
CLAIM_SECONDS: Final = 0.5
"""Seconds for which a claim waits for a row that another transaction holds; an adopter tries again later."""


class PostgresSnapshot(QueryReader):
    """Reads in one transaction, on a session of its own."""

    queries = reading

    def __init__(self, session: SnapshotSession) -> None:
        self._session = session

    async def _query(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wrap_future(self._session.run(function, *arguments))


class PostgresStore(WriteBehindStore[PostgresWriter]):
    """A `JournalStore` in PostgreSQL.

    Args:
        url: `postgresql://user:password@host:port/database`, with libpq's parameters; `?schema=name` names the schema.
        schema: the schema of the tables, instead of the URL's; `treadle` by default; created if necessary.
        lease_seconds: seconds after its last heartbeat for which this process counts as alive in other containers and
            on other hosts; 0.5 to 86,400; instead of the URL's `lease=`.
        patience: seconds for which calls wait for a lost server before they fail with `StoreUnavailable`.

    A process writes and listens on one session. It reads on up to four, which it closes when they idle.
    """

    queries = reading

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        lease_seconds: float | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__()
        self._to = address(url, schema, lease_seconds)
        self._patience = patience
        self._readers: Readers | None = None
        self.new_writer: Callable[[Address, float], PostgresWriter] = PostgresWriter
        """creates the writer; a test may replace it"""

    def __repr__(self) -> str:
        return f"PostgresStore({self.url!r})"

    @property
    def lease_seconds(self) -> float:
        """Seconds for which this process counts as alive after a heartbeat."""
        return self._to.lease_seconds

    @property
    def url(self) -> str:
        """`postgresql://...` without secrets."""
        return self._to.url

    def _new_writer(self) -> PostgresWriter:
        return self.new_writer(self._to, self._patience)

    def _close_readers(self) -> None:
        readers, self._readers = self._readers, None
        if readers is not None:
            readers.close()

    async def claim(self, task_id: str, *, enter: bool = False) -> Claim:
        """Become the owner; see `JournalStore.claim`.

        If another transaction holds the row of the task, the claim is retried a few times. Nothing else waits for it.
        """
        began = time.monotonic()
        while True:
            try:
                return await super().claim(task_id, enter=enter)
            except TaskLocked:
                waited = time.monotonic() - began
                if waited > CLAIM_SECONDS:
                    raise
            await asyncio.sleep((0.01 + waited / 4) * random.uniform(0.5, 1.0))  # noqa: S311

    # ------------------------------------------------------------------------------------------ reading

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[JournalReader]:
        """Return a reader of one snapshot; see `JournalStore.snapshot`."""
        await self._wait_for_queue()
        session = SnapshotSession(self._to)
        try:
            await asyncio.wrap_future(session.begun)
            yield PostgresSnapshot(session)
        finally:
            session.close()

    def _is_unreachable(self) -> bool:
        writer = self._writer
        return writer is not None and writer.is_unreachable

    async def _query(self, function: Callable[..., T], *arguments: Any) -> T:
        await self._wait_for_queue()
        readers = self._readers
        if readers is None or readers.pid != os.getpid():
            readers = self._readers = Readers(self._to, self._patience, self._is_unreachable)
        return await asyncio.wrap_future(readers.run(function, *arguments))
