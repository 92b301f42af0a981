"""Threads that read a PostgreSQL schema, each on a session of its own that it closes when it idles.

A lost session is replaced at once, a lost server asked for again after short pauses: psycopg_pool's grow with every
failure (1, 2, 4 seconds), which would keep tasks from being taken up long after the server is back.
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
"""What comes of values that damage has left in a table."""


class _Asked:
    """A question, and who waits for the answer."""

    __slots__ = ("about", "answer", "question")

    def __init__(self, question: Callable[..., Any], about: tuple[Any, ...]) -> None:
        self.question = question
        self.about = about
        self.answer: Future[Any] = Future()


class Readers:
    """Up to four threads that put questions to a schema; the one that rested last is asked first.

    Args:
        to: which schema.
        patience: how long, in seconds, a lost server is waited for before a question fails.
        is_given_up: whether who writes has waited for the server for as long in vain: then no question waits again.
    """

    def __init__(self, to: Address, patience: float, is_given_up: Callable[[], bool]) -> None:
        self.pid = os.getpid()
        self._to = to
        self._patience = patience
        self._is_given_up = is_given_up
        self._lock = Lock()
        self._waiting: deque[_Asked] = deque()
        self._idle: list[SimpleQueue[_Asked | None]] = []
        self._threads = 0
        self._closed = False

    def ask(self, question: Callable[..., T], *about: Any) -> Future[T]:
        """Put a question; put it again when the session is lost."""
        asked = _Asked(question, about)
        with self._lock:
            if self._idle:
                self._idle.pop().put(asked)
            elif self._threads < READERS:
                self._threads += 1
                Thread(target=self._serve, args=(asked,), name="treadle-reader", daemon=True).start()
            else:
                self._waiting.append(asked)
        return asked.answer

    def close(self) -> None:
        """Close the sessions; what was asked is answered first."""
        with self._lock:
            self._closed = True
            for resting in self._idle:
                resting.put(None)
            self._idle.clear()

    # ------------------------------------------------------------------------------------- in each thread

    def _serve(self, asked: _Asked | None) -> None:
        connection: BoundedConnection | None = None
        mine: SimpleQueue[_Asked | None] = SimpleQueue()
        while asked is not None:
            if asked.answer.set_running_or_notify_cancel():
                connection = self._answer(connection, asked)
            asked = self._next_request(mine)
        if connection is not None:
            connection.close()

    def _next_request(self, mine: SimpleQueue[_Asked | None]) -> _Asked | None:
        """Return what to answer next; None when this thread is to end."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._threads -= 1
                return None
            self._idle.append(mine)
        try:
            return mine.get(timeout=READER_IDLE_SECONDS)
        except Empty:
            with self._lock:
                if mine in self._idle:
                    self._idle.remove(mine)
                    self._threads -= 1
                    return None
            return mine.get()  # it was asked just now

    def _answer(self, connection: BoundedConnection | None, asked: _Asked) -> BoundedConnection | None:
        """Answer a question; return the session to go on with."""
        lost: float | None = None
        while True:
            tried = time.monotonic()
            try:
                if connection is None:
                    connection = connect(self._to, "treadle reader", for_reading=True)
                    connection.answer_seconds = self._answer_seconds
                answer = asked.question(connection, *asked.about)
            except Exception as error:  # noqa: BLE001 (whatever it was, who waits must hear it)
                had_one, connection = connection is not None, _usable(connection)
                lost = tried if lost is None else lost
                # A session alone is lost more often than its server: the first try on a new one is made at once.
                away = time.monotonic() - lost
                if self._is_closing or away > self._patience or not _may_be_asked_again(error):
                    asked.answer.set_exception(self._typed(error))
                    return connection
                if not (had_one and connection is None):
                    time.sleep(pause(away))
            else:
                asked.answer.set_result(answer)
                return connection

    @property
    def _is_closing(self) -> bool:
        """Whether a question is given up soon."""
        return self._closed or self._is_given_up()

    def _answer_seconds(self) -> float:
        """For how many seconds the server may say nothing now."""
        seconds = self._to.answer_seconds
        return min(seconds, CLOSING_SECONDS) if self._is_closing else seconds

    def _typed(self, error: Exception) -> Exception:
        if isinstance(error, TreadleError) or not isinstance(error, (psycopg.Error, *DAMAGE)):
            return error
        typed = unavailable(self._to, error)
        typed.__cause__ = error
        return typed


def _may_be_asked_again(error: Exception) -> bool:
    return isinstance(error, (psycopg.OperationalError, StoreUnavailable))


def _usable(connection: BoundedConnection | None) -> BoundedConnection | None:
    """Bring a session out of its transaction; None when it is lost."""
    if connection is not None:
        with suppress(psycopg.Error):
            connection.rollback()
        if not connection.closed:
            return connection
    return None
