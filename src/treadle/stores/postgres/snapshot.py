"""A session that reads one snapshot of a PostgreSQL schema, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, LiteralString, TypeVar

import psycopg

from treadle.stores.postgres.readers import typed
from treadle.stores.postgres.schema import Address, BoundedConnection, connect

T = TypeVar("T")

_BEGIN: Final[tuple[LiteralString, ...]] = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    # A snapshot without a query for so long is ended, since the server keeps old rows for it.
    "SET LOCAL idle_in_transaction_session_timeout = '10min'",
    "SELECT 1 FROM tasks LIMIT 1",  # the first query fixes the moment
)


class SnapshotSession:
    """One read-only transaction; `begun` is done once the snapshot is fixed, or has the error.

    A lost session is not replaced, since another one would see a later snapshot.

    Args:
        to: the schema.
    """

    def __init__(self, to: Address) -> None:
        self._to = to
        self._requests: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Future[Any]] | None] = (
            SimpleQueue()
        )
        self.begun: Future[None] = Future()
        self.begun.set_running_or_notify_cancel()  # a cancelled caller must not cancel it: the thread completes it
        Thread(target=self._serve, name="treadle-snapshot", daemon=True).start()

    def run(self, query: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a query once; if the session is lost, this and all later ones fail with `StoreUnavailable`."""
        answer: Future[T] = Future()
        self._requests.put((query, arguments, answer))
        return answer

    def close(self) -> None:
        """End the transaction, once all queries are answered."""
        self._requests.put(None)

    def _serve(self) -> None:
        connection: BoundedConnection | None = None
        try:
            connection = connect(self._to, "treadle snapshot", for_reading=True)
            for statement in _BEGIN:
                connection.execute(statement)
        except Exception as error:  # noqa: BLE001  (the waiting call must get each error)
            self.begun.set_exception(typed(self._to, error))
        else:
            self.begun.set_result(None)
            while (request := self._requests.get()) is not None:
                self._answer(connection, *request)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _answer(
        self,
        connection: BoundedConnection,
        query: Callable[..., Any],
        arguments: tuple[Any, ...],
        answer: Future[Any],
    ) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            result = query(connection, *arguments)
        except Exception as error:  # noqa: BLE001  (as above)
            answer.set_exception(typed(self._to, error))
        else:
            answer.set_result(result)
