"""The one thread of a process that writes to a PostgreSQL schema, and hears there what others wrote.

It has one session. A session that ends is replaced, for a bounded time; a group whose commit was not acknowledged is
sent again, and what of it was written is recognised. While somebody watches, the same session listens: an idle process
waits for its socket and wakes up for nothing else.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from treadle.errors import NotFound, StoreError, StoreUnavailable, TreadleError
from treadle.ports import Claim, Refused, TaskExists, ThreadMoved
from treadle.stores.postgres import exclusive, reading
from treadle.stores.postgres.journal import (
    BEGIN,
    STALLED,
    Group,
    LeaseHolder,
    TaskLocked,
    beat,
    forget_dead,
    owned_by,
)
from treadle.stores.postgres.schema import (
    CLOSING_SECONDS,
    SESSION_FAULTS,
    Address,
    BoundedConnection,
    connect,
    is_passing,
    migrate,
    pause,
    take_long,
    unavailable,
)
from treadle.stores.processes import BEATS, this_process
from treadle.stores.writer_thread import NOTHING, Item, WriterThread

TELL_SECONDS: Final = 0.05
"""How often at most others are told of what they need not hear at once, and how often at most watchers are woken."""

TELL_AT_ONCE: Final = 0.005
"""How often at most others are told of anything: in a transaction of its own, after the commit.

In the transaction that writes, `NOTIFY` would keep all commits of the database one behind the other, disk and all.
"""

LOOK_SECONDS: Final = 5.0
"""How often a process that owns tasks looks into their inboxes unasked: who wrote may have died before it told."""

ATTEMPTS: Final = 10
"""How often a group is sent again that the database refused because of others."""

AGAIN_SECONDS: Final = 1.0
"""How long to wait before trying once more to take a claim back."""

LOCKED_SECONDS: Final = 100.0
"""For how long locks of others are waited for, a heartbeat at a time."""

_OTHERS_FAULT: Final = ("40001", "40P01", "23505")  # serialization, deadlock, twin
_NOTIFY: Final = "SELECT pg_notify(%s, %s)"
_PREDECESSORS: Final = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND pid <> pg_backend_pid() AND usename = current_user"""
_FAREWELL: Final = "UPDATE drivers SET lease = 'epoch' WHERE key = %s"  # the next who comes forgets the dead
_MAIL: Final = "mail"


class PostgresWriter(WriterThread):
    """Owns the writing session of a schema.

    Args:
        to: which schema.
        patience: how long, in seconds, to try to get a session back before what waits is refused.
    """

    def __init__(self, to: Address, patience: float) -> None:
        self._to = to
        self._patience = patience
        self._owner = LeaseHolder(this_process(), to.lease_seconds)
        self._name = f"treadle writer {self._owner.process.key}"
        self._connection: BoundedConnection | None = None
        self._watchers: dict[object, Callable[[Sequence[str]], None]] = {}
        self._listening = False
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._asleep = False
        self._told = self._woken = self._tried = self._looked = 0.0
        self._away_since: float | None = None
        self._owed: float | None = None
        """when others are to be told at the latest of what was written"""

        self._owed_mail = self._heard = self._heard_mail = False
        self._unanswered: dict[str, Claim] = {}
        """claims that were refused and may have been carried out, by task: taken back when a session is there again"""

        self._next_try = 0.0
        self.failures = 0
        """how often a transaction was not committed and something of it was tried again"""
        self.wakes = 0
        """how often the thread was woken while it waited"""
        super().__init__(to.url)

    def watch(self, wake: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        """Call `wake` soon after others wrote; return how to stop."""
        token = object()
        self._watchers[token] = wake
        self._put(Item(NOTHING))  # the thread is to begin listening
        return lambda: self._watchers.pop(token, None) and None

    # ---------------------------------------------------------------------------------- waiting, in the thread

    def _put(self, item: Item | None) -> None:
        super()._put(item)
        if self._asleep:
            with suppress(OSError):  # it was rung and has not been heard yet; or the thread has ended
                self._rope.send(b"!")

    def _next(self, timeout: float | None) -> Item | None:
        """Wait for something to write, or for others to say that they wrote; raise `Empty` when nothing more is due."""
        try:
            return self._queue.get_nowait()
        except Empty:
            pass
        connection = self._connection if self._listening else None
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.fileno(), selectors.EVENT_READ)
            self._asleep = True
            if not self._queue.empty():  # it came while we were lying down and may not have rung
                timeout = 0.0
            ready = selector.select(timeout)
            self._asleep = False
        self.wakes += 1
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        if connection is not None and any(key.fileobj != self._bell for key, _ in ready):
            self._hear(connection)
        return self._queue.get_nowait()

    def _pause(self) -> float | None:
        if self._connection is not None and self._listening != bool(self._watchers):
            return 0.0
        due: list[float] = []
        if self._connection is None and self._needs_session:
            due.append(self._tried + self._backoff())
        elif self._unanswered:
            due.append(self._next_try)
        if self._owner.held:
            since = max(0.0, time.time() - self._owner.beat)  # the clock may have been set back
            due.append(time.monotonic() - since + self._owner.lease_seconds / BEATS)
            if self._watchers:
                due.append(self._looked + LOOK_SECONDS)
        if self._owed is not None and self._connection is not None:
            due.append(self._owed)
        if self._heard:
            due.append(self._woken + TELL_SECONDS)
        return max(0.0, min(due) - time.monotonic()) if due else None

    @property
    def _needs_session(self) -> bool:
        return bool(self._watchers or self._owner.held or self._unanswered)

    def _look_around(self) -> None:
        """Do what is due: a session to listen on, a heartbeat, words owed to others, watchers to wake."""
        now = time.monotonic()
        try:
            if self._connection is None:
                if not self._needs_session or now < self._tried + self._backoff():
                    return
                self._connect()
            connection = self._session()
            connection.is_patient = False
            self._attend(connection)
            self._keep_lease(connection)
            self._take_back(connection)
            self._tell_others(connection)
            if self._watchers and self._owner.held and now >= self._looked + LOOK_SECONDS:
                self._heard = self._heard_mail = True
            if self._heard and now >= self._woken + TELL_SECONDS:
                self._wake(connection)
        except (
            StoreError,
            psycopg.Error,
        ) as error:  # whoever writes next is told; a look that failed is made again
            self._drop_if_broken(error)

    def _keep_lease(self, connection: BoundedConnection) -> None:
        """Prolong the lease of this process if that is due, while it owns anything."""
        owner = self._owner
        if not owner.held or owner.is_fresh:
            return
        now = time.time()
        owner.row, owner.beat = beat(connection, owner), now
        # What others took over meanwhile is held no more, whether or not anybody here hears of that.
        owner.held &= owned_by(connection, owner.row)
        forget_dead(connection)

    def _take_back(self, connection: BoundedConnection) -> None:
        """Give up what this process may own since a claim whose answer was lost: nobody here knows that it does."""
        lost = [Item("disown", (key, claim.epoch)) for key, claim in self._unanswered.items()]
        if lost and time.monotonic() >= self._next_try:
            self._next_try = time.monotonic() + AGAIN_SECONDS
            _, finish = self._prepare(connection, lost, None)
            finish()
            self._unanswered.clear()

    # --------------------------------------------------------------------------------------------- hearing

    def _attend(self, connection: BoundedConnection) -> None:
        """Listen while somebody watches. What was said before is not heard, so all is looked at once."""
        if self._watchers and not self._listening:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._to.channel)))
            self._listening = self._heard = self._heard_mail = True
            self._woken = 0.0
            self._wake(connection)
        elif self._listening and not self._watchers:
            connection.execute("UNLISTEN *")
            self._listening = False

    def _hear(self, connection: BoundedConnection) -> None:
        """Take in what arrived while nothing was asked."""
        try:
            connection.pgconn.consume_input()
            while said := connection.pgconn.notifies():
                self._note(said.be_pid, said.extra.decode())
        except psycopg.Error as error:
            self._drop_if_broken(error, lost=True)

    def _notified(self, said: psycopg.Notify) -> None:
        self._note(said.pid, said.payload)

    def _note(self, by: int, payload: str) -> None:
        if self._connection is not None and by != self._connection.info.backend_pid:
            self._heard = True
            self._heard_mail = self._heard_mail or payload == _MAIL

    def _wake(self, connection: BoundedConnection) -> None:
        waiting = reading.tasks_with_mail(connection) if self._heard_mail else ()
        if self._heard_mail:
            self._looked = time.monotonic()
        self._heard = self._heard_mail = False
        self._woken = time.monotonic()
        for token, wake in list(self._watchers.items()):
            try:
                wake(waiting)
            except RuntimeError:  # its event loop is closed: nobody is there to wake
                self._watchers.pop(token, None)

    # -------------------------------------------------------------------------------------------- sessions

    def _open(self) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._connect(first=True)
                return
            except StoreUnavailable as error:
                if not is_passing(error.__cause__) or time.monotonic() > deadline or self.closing is not None:
                    raise
            time.sleep(self._backoff())

    def _connect(self, *, first: bool = False) -> None:
        """Make a session; what an earlier one of this writer has left behind is ended."""
        self._tried = time.monotonic()
        self._away_since = self._away_since or self._tried
        connection = connect(self._to, self._name)
        connection.silence = self._silence
        try:
            if first:
                migrate(self._to, connection)
            else:
                connection.execute(_PREDECESSORS, (self._name,))
            connection.add_notify_handler(self._notified)
        except psycopg.Error as error:
            connection.close()
            raise unavailable(self._to, error) from error
        except BaseException:
            connection.close()
            raise
        self._connection, self._listening, self._away_since = connection, False, None

    def _session(self) -> BoundedConnection:
        """The session, made anew if need be; raises `StoreUnavailable` when it cannot be had now."""
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _silence(self) -> float:
        """For how many seconds the server may say nothing now."""
        seconds = self._to.answer_seconds
        return seconds if self.closing is None else min(seconds, CLOSING_SECONDS)

    @property
    def is_given_up(self) -> bool:
        """Whether the server has been away for so long that nothing waits for it any more; from any thread."""
        since = self._away_since
        return since is not None and time.monotonic() > since + self._waits

    @property
    def _waits(self) -> float:
        """For how many seconds a lost server is waited for now."""
        return self._patience if self.closing is None else min(self._patience, CLOSING_SECONDS)

    def _backoff(self) -> float:
        return pause(0.0 if self._away_since is None else time.monotonic() - self._away_since)

    def _drop_if_broken(self, error: Exception, *, lost: bool = False) -> bool:
        """Close a session that is of no more use, or bring it out of its transaction; whether it was closed."""
        connection = self._connection
        if connection is None:
            return True
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        if not (lost or connection.closed or state in SESSION_FAULTS or (state or "").startswith("08")):
            try:
                connection.rollback()
            except psycopg.Error:
                lost = True
            if not (lost or connection.closed):
                return False
        with suppress(psycopg.Error):
            connection.close()
        self._connection, self._listening = None, False
        return True

    # --------------------------------------------------------------------------------------------- writing

    def _write(self, group: list[Item]) -> list[Any]:
        """Write a group: what needs the store for itself alone, what is between such items together."""
        results: list[Any] = []
        together: list[Item] = []
        for item in group:
            if item.operation in exclusive.OPERATIONS:
                results += self._write_all(together)
                results.append(self._write_all([item])[0])
                together = []
            else:
                together.append(item)
        return results + self._write_all(together)

    def _write_all(self, items: list[Item], unsure: list[Any] | None = None) -> list[Any]:
        """Write items in one transaction; if it fails by their own fault, each in its own.

        Args:
            items: what to write.
            unsure: the results of a transaction of which nobody knows whether it was committed.
        """
        if all(item.operation == NOTHING for item in items):
            if items and self._connection is not None:
                self._look_around()
            return [None] * len(items)
        began = time.monotonic()
        lost_since: float | None = None
        attempts = 0
        while True:
            results: list[Any] | None = None
            tried = time.monotonic()
            try:
                connection = self._session()
                connection.is_patient = False
                if self._owed is not None and tried >= self._owed:
                    self._tell_others(connection)
                self._keep_lease(connection)
                results, finish = self._prepare(connection, items, unsure)
                finish()
                return results
            except StoreUnavailable as error:
                failure: Exception = error
            except Exception as error:  # noqa: BLE001 (values the database cannot take are one item's fault, too)
                failure = error
                self.failures += 1
                if self._drop_if_broken(error):
                    unsure = unsure if results is None else results
                elif isinstance(error, LockNotAvailable) and time.monotonic() < began + LOCKED_SECONDS:
                    self._end_stalled()
                    continue
                elif getattr(error, "sqlstate", None) not in _OTHERS_FAULT or attempts >= ATTEMPTS:
                    if len(items) == 1:
                        return self._refuse(items, unsure, error)
                    before = unsure or [None] * len(items)
                    return [self._write_all([i], b and [b])[0] for i, b in zip(items, before, strict=True)]
                else:
                    attempts += 1
                    time.sleep(random.uniform(0.0, 0.01 * attempts))  # noqa: S311
                    continue
            lost_since = tried if lost_since is None else lost_since
            if self.is_given_up or time.monotonic() > lost_since + self._waits:
                return self._refuse(items, unsure, failure)
            if self._away_since is not None:
                time.sleep(self._backoff())

    def _end_stalled(self) -> None:
        """End what keeps others waiting, if its process has been silent for too long; if it wakes it writes again."""
        with suppress(psycopg.Error):  # whoever writes next is told
            if self._connection is not None:
                self._connection.execute(STALLED, (self._to.channel, self._to.idle_seconds))

    def _refuse(self, items: list[Item], unsure: list[Any] | None, error: Exception) -> list[Any]:
        """Give items up; of claims that may have been carried out all the same note is taken."""
        for item, past in zip(items, unsure or (), strict=bool(unsure)):
            if isinstance(past, Claim):
                self._unanswered[item.argument[0]], self._next_try = past, 0.0
        return [self._typed(error)] * len(items)

    def _prepare(
        self, connection: BoundedConnection, items: list[Item], unsure: list[Any] | None
    ) -> tuple[list[Any], Callable[[], None]]:
        """Begin a transaction and check all items; return their results, and what commits them."""
        if items[0].operation in exclusive.OPERATIONS:
            return self._prepare_alone(connection, items[0], again=unsure is not None)
        group = Group(connection, self._owner, self._to.channel)
        before = list(unsure or [None] * len(items))
        claimed = self._take_unanswered(items, before) if self._unanswered else ()
        group.begin(items, before)
        results = [group.apply(item, past) for item, past in zip(items, before, strict=True)]

        def finish() -> None:
            group.write()
            self._wrote(urgent=group.urgent, mail=group.mail)
            for key in claimed:
                self._unanswered.pop(key, None)
            if any(isinstance(result, TaskLocked) for result in results):
                self._end_stalled()

        return results, finish

    def _take_unanswered(self, items: list[Item], before: list[Any]) -> set[str]:
        """Let each first claim of a task answer for one whose answer was lost; return the tasks."""
        found: set[str] = set()
        for number, item in enumerate(items):
            if item.operation == "claim" and item.argument[0] not in found:
                key = item.argument[0]
                if key in self._unanswered:
                    found.add(key)
                    before[number] = before[number] or self._unanswered[key]
        return found

    def _prepare_alone(
        self, connection: BoundedConnection, item: Item, *, again: bool
    ) -> tuple[list[Any], Callable[[], None]]:
        connection.execute(BEGIN)
        take_long(self._to, connection)
        connection.execute(exclusive.ALONE, (self._to.channel,))
        try:
            exclusive.run(connection, item, self._owner.row)
        except (NotFound, TaskExists, ThreadMoved) as error:
            connection.rollback()
            # Of what was perhaps written before, this is the sign that it was.
            return [None if again else error], lambda: None
        except (Refused, TreadleError) as error:
            connection.rollback()
            return [error], lambda: None

        def finish() -> None:
            connection.execute("COMMIT")
            self._wrote(urgent=True)

        return [None], finish

    def _wrote(self, *, urgent: bool, mail: bool = False) -> None:
        """Take note that others are to be told, and by when."""
        due = self._told + (TELL_AT_ONCE if urgent else TELL_SECONDS)
        self._owed = due if self._owed is None else min(self._owed, due)
        self._owed_mail = self._owed_mail or mail

    def _tell_others(self, connection: BoundedConnection) -> None:
        """Tell others what was written, if that is due; what a lost session did not tell, the next one does."""
        now = time.monotonic()
        if self._owed is not None and now >= self._owed:
            connection.execute(_NOTIFY, (self._to.channel, _MAIL if self._owed_mail else ""))
            self._owed, self._owed_mail, self._told = None, False, now

    def _typed(self, error: Exception) -> Exception:
        if isinstance(error, StoreError):
            return error
        typed = unavailable(self._to, error)
        typed.__cause__ = error
        return typed

    def _end(self) -> None:
        try:
            connection = self._connection
            if connection is not None:
                if self._owner.row is not None:
                    connection.execute(_FAREWELL, (self._owner.process.key,))
                connection.execute(_NOTIFY, (self._to.channel, ""))
                connection.close()
        except (
            psycopg.Error
        ) as error:  # a driver that could not say goodbye is found dead when its process ends
            self._drop_if_broken(error, lost=True)
        self._connection = None
        self._bell.close()
        self._rope.close()
