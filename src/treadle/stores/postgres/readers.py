"""Threads that read a PostgreSQL schema, each on a session of its own, which it closes when it idles.

A lost session is replaced at once. A lost server is tried again after short pauses. The pauses of psycopg_pool grow
with every failure (1, 2, 4 seconds), and would delay adoption long after the server is back.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, TypeVar

import psycopg

from treadle.errors import StoreUnavailable, TreadleError
from treadle.stores.postgres.schema import (
    CLOSING_SECONDS,
    Address,
    BoundedConnection,
    connect,
    pause,
    unavailable,
)

T = TypeVar("T")

READERS: Final = 4
READER_IDLE_SECONDS: Final = 60.0
DAMAGE: Final = (ValueError, TypeError, LookupError)
"""The errors of values that damage has left in a table."""


class _Request:
    """A query, and the future of its answer."""

    __slots__ = ("answer", "arguments", "query")

    def __init__(self, query: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.query = query
        self.arguments = arguments
        self.answer: Future[Any] = Future()


class Readers:
    """Up to four threads that run queries on a schema; the next query goes to the thread that became idle last.

    Args:
        to: the schema.
        patience: seconds for which a query waits for a lost server before it fails.
        is_unreachable: returns whether the writer has waited that long for the server in vain, so that no query waits
            again.
    """

    def __init__(self, to: Address, patience: float, is_unreachable: Callable[[], bool]) -> None:
        self.pid = os.getpid()
        self._to = to
        self._patience = patience
        self._is_unreachable = is_unreachable
        self._lock = Lock()
        self._waiting: deque[_Request] = deque()
        self._idle: list[SimpleQueue[_Request | None]] = []
        self._threads = 0
        self._closed = False

    def run(self, query: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a query; run it again if the session is lost."""
        request = _Request(query, arguments)
        with self._lock:
            if self._idle:
                self._idle.pop().put(request)
            elif self._threads < READERS:
                self._threads += 1
                Thread(target=self._serve, args=(request,), name="treadle-reader", daemon=True).start()
            else:
                self._waiting.append(request)
        return request.answer

    def close(self) -> None:
        """Close the sessions, once all queries are answered."""
        with self._lock:
            self._closed = True
            for resting in self._idle:
                resting.put(None)
            self._idle.clear()

    # ------------------------------------------------------------------------------------- in each thread

    def _serve(self, request: _Request | None) -> None:
        connection: BoundedConnection | None = None
        own_queue: SimpleQueue[_Request | None] = SimpleQueue()
        while request is not None:
            if request.answer.set_running_or_notify_cancel():
                connection = self._answer(connection, request)
            request = self._next_request(own_queue)
        if connection is not None:
            connection.close()

    def _next_request(self, own_queue: SimpleQueue[_Request | None]) -> _Request | None:
        """Return the next query; None if this thread must end."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._threads -= 1
                return None
            self._idle.append(own_queue)
        try:
            return own_queue.get(timeout=READER_IDLE_SECONDS)
        except Empty:
            with self._lock:
                if own_queue in self._idle:
                    self._idle.remove(own_queue)
                    self._threads -= 1
                    return None
            return own_queue.get()  # a query came just now

    def _answer(self, connection: BoundedConnection | None, request: _Request) -> BoundedConnection | None:
        """Answer a query; return the session for the next one."""
        lost: float | None = None
        while True:
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = connect(self._to, "treadle reader", for_reading=True)
                    connection.answer_seconds = self._answer_seconds
                answer = request.query(connection, *request.arguments)
            except Exception as error:  # noqa: BLE001 (the waiting call must get each error)
                had_one, connection = connection is not None, _usable(connection)
                lost = begun if lost is None else lost
                # A session is lost more often than its server, so the first retry is immediate.
                outage = time.monotonic() - lost
                if self._is_closing or outage > self._patience or not _may_run_again(error):
                    request.answer.set_exception(typed(self._to, error))
                    return connection
                if not (had_one and connection is None):
                    time.sleep(pause(outage))
            else:
                request.answer.set_result(answer)
                return connection

    @property
    def _is_closing(self) -> bool:
        """Whether queries no longer wait for a lost server."""
        return self._closed or self._is_unreachable()

    def _answer_seconds(self) -> float:
        """Return the seconds for which the server may leave a query unanswered now."""
        seconds = self._to.answer_seconds
        return min(seconds, CLOSING_SECONDS) if self._is_closing else seconds


def _may_run_again(error: Exception) -> bool:
    return isinstance(error, (psycopg.OperationalError, StoreUnavailable))


def typed(to: Address, error: Exception) -> Exception:
    """Return the error of the port for an error of a query."""
    if isinstance(error, TreadleError) or not isinstance(error, (psycopg.Error, *DAMAGE)):
        return error
    converted = unavailable(to, error)
    converted.__cause__ = error
    return converted


def _usable(connection: BoundedConnection | None) -> BoundedConnection | None:
    """Roll back the transaction of a session; return None if the session is lost."""
    if connection is not None:
        with suppress(psycopg.Error):
            connection.rollback()
        if not connection.closed:
            return connection
    return None
