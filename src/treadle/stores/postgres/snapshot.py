"""A session that reads a PostgreSQL schema as it stood at one moment, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, LiteralString, TypeVar

import psycopg

from treadle.errors import TreadleError
from treadle.stores.postgres.readers import DAMAGE
from treadle.stores.postgres.schema import Address, BoundedConnection, connect, unavailable

T = TypeVar("T")

_BEGIN: Final[tuple[LiteralString, ...]] = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    # A snapshot that is asked nothing for so long is ended: what the server keeps of the past for it takes up room.
    "SET LOCAL idle_in_transaction_session_timeout = '10min'",
    "SELECT 1 FROM tasks LIMIT 1",  # only now it stands still
)


class SnapshotSession:
    """One transaction that only reads; `begun` is done once its moment is fixed, or says why it could not begin.

    A lost session is not replaced: another would see another moment.

    Args:
        to: which schema.
    """

    def __init__(self, to: Address) -> None:
        self._to = to
        self._asked: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Future[Any]] | None] = (
            SimpleQueue()
        )
        self.begun: Future[None] = Future()
        Thread(target=self._serve, name="treadle-snapshot", daemon=True).start()

    def ask(self, question: Callable[..., T], *about: Any) -> Future[T]:
        """Put a question, once; a session that is lost fails this and all that follow with `StoreUnavailable`."""
        answer: Future[T] = Future()
        self._asked.put((question, about, answer))
        return answer

    def close(self) -> None:
        """End the transaction, after what was asked."""
        self._asked.put(None)

    def _serve(self) -> None:
        connection: BoundedConnection | None = None
        try:
            connection = connect(self._to, "treadle snapshot", for_reading=True)
            for statement in _BEGIN:
                connection.execute(statement)
        except Exception as error:  # noqa: BLE001  whatever it was, who waits must hear it
            self.begun.set_exception(self._typed(error))
        else:
            self.begun.set_result(None)
            while (asked := self._asked.get()) is not None:
                self._answer(connection, *asked)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _answer(
        self,
        connection: BoundedConnection,
        question: Callable[..., Any],
        about: tuple[Any, ...],
        answer: Future[Any],
    ) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            found = question(connection, *about)
        except Exception as error:  # noqa: BLE001  as above
            answer.set_exception(self._typed(error))
        else:
            answer.set_result(found)

    def _typed(self, error: Exception) -> Exception:
        if isinstance(error, TreadleError) or not isinstance(error, (psycopg.Error, *DAMAGE)):
            return error
        typed = unavailable(self._to, error)
        typed.__cause__ = error
        return typed
