"""The writer thread of a PostgreSQL schema: it writes groups of items and receives notifications.

Theory of operation
-------------------

The thread owns one session. It waits at once for its queue, by a pair of sockets that `_put` writes to, and for
notifications, on the socket of the session. An idle process wakes up for nothing else.

**The session.** It is opened when it is needed, and replaced when it is lost:

                     _connect            lost: the server ended it, or did not answer for too long
    no session  ------------------> session --------------------------------------------------> no session
        |  ^                           |  ^
        |  | _backoff: 0.05 to 1 s     |  | listening while a caller watches
        +--+                           +--+

`_away_since` is when the server was lost. After `patience` seconds (`is_unreachable`) items are refused at once with
`StoreUnavailable`, and readers stop waiting too. A replacement session ends predecessors of the same name on the
server. So their transactions hold no locks and do not commit later.

**A group.** `Group.begin` locks the threads and tasks of the items, each kind in one order, and reads their rows.
`Group.apply` checks each item in memory. `Group.write` sends all writes, with the COMMIT, in one pipeline. So a group
of any size takes two round trips, and one more for each rare item that needs more rows. Deletions and imports
(`exclusive.py`) take the lock of the whole schema, each in a separate transaction.

The outcomes of an attempt, and the reactions of `_write_together`:

    it was committed                     deliver the results
    the database refused it because of   the same group again, up to ATTEMPTS times
      others (deadlock, serialization)
    a lock was not free in time          end stalled transactions, renew the lease, the same group again
    one item is at fault                 each item in a transaction of its own
    the session was lost before COMMIT   the same group again, on a new session
    the session was lost in COMMIT       the same group again, with the results of the lost attempt as `unconfirmed`

**Lost answers.** If the session is lost in COMMIT, the process cannot know whether the group was written. So it sends
the group again, and passes each item the result that it had (`unconfirmed`). If an item is already written, this very
group wrote it: a commit is repeated (`rules.admit`), a claim is this process's own, a post was new. A claim that is
refused in the end may still have been carried out. It goes to `UnansweredClaims`. The next claim of the task gets its
answer. If none comes, `_disown_unanswered` gives the task back.

    Example. A claim raises a task's epoch to 4, and the server dies in COMMIT. The thread connects again and sends the
    claim with `unconfirmed=[Claim(epoch=4)]`. The row has epoch 4 and this process as its driver: the claim was
    written, and its result is `Claim(epoch=4)`, not `TaskBusy`. Had the row epoch 3, the claim would be made now.

**Stalls.** A process that is stopped in a transaction keeps its locks. The server ends such a transaction after
`idle_seconds`, unless a pipeline was not completely sent. So a writer that waits for a lock in vain makes the server
end transactions on this schema that have been silent that long (`STALLED`).

**Leases.** While this process owns tasks, a heartbeat is due every `lease_seconds / HEARTBEATS_PER_LEASE`. The thread
wakes for it, and writes it before a group when it is due. A wait for locks ends in time for the next one. The statement
of a heartbeat reads the format of the tables too: a newer version may have migrated them.

**Notifications.** `NOTIFY` in the writing transaction would serialise all commits of the database. So it is sent
afterwards, separately: at most every `URGENT_NOTIFY_SECONDS` after a release or a post, else at most every
`NOTIFY_SECONDS`. It names the changed tasks (`notifications.py`). `Notices.due` is when the next is due. A process may
crash before its notification, so a process that owns tasks and watches also reads their inboxes every
`MAIL_CHECK_SECONDS`.

Invariants: a result other than an error is delivered only after COMMIT was acknowledged. After `StoreUnavailable` an
item may have been written. `LeaseHolder` changes only after COMMIT, except for `outdated`. A due notification is sent
by this session or the next.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from treadle.core.changed_tasks import ChangedTasks
from treadle.errors import NotFound, StoreError, StoreUnavailable, TreadleError
from treadle.ports import Claim, Refused, StoreChanges, TaskExists, ThreadMoved
from treadle.stores.postgres import exclusive, notifications, reading
from treadle.stores.postgres.journal import (
    BEGIN,
    STALLED,
    Group,
    LeaseHolder,
    TaskLocked,
    delete_dead_drivers,
    owned_by,
    renew_lease,
)
from treadle.stores.postgres.schema import (
    CLOSING_SECONDS,
    SESSION_FAULTS,
    Address,
    BoundedConnection,
    as_store_error,
    connect,
    is_passing,
    migrate,
    pause,
    take_long,
    unavailable,
)
from treadle.stores.processes import HEARTBEATS_PER_LEASE, this_process
from treadle.stores.writer_thread import BARRIER, Item, WriterThread

NOTIFY_SECONDS: Final = 0.05
"""Minimum number of seconds between notifications that are not urgent, and between two calls of the watchers."""

URGENT_NOTIFY_SECONDS: Final = 0.005
"""Minimum number of seconds between two notifications."""

MAIL_CHECK_SECONDS: Final = 5.0
"""Seconds between two reads of the inboxes of owned tasks without a notification, whose sender may have crashed."""

ATTEMPTS: Final = 10
"""Maximum number of times a group is sent that the database refused because of other transactions."""

DISOWN_SECONDS: Final = 1.0
"""Seconds between two attempts to release a claim whose caller has gone."""

LOCK_WAIT_SECONDS: Final = 100.0
"""Seconds for which a group waits for locks of other transactions, with heartbeats in between."""

_CONFLICT_STATES: Final = ("40001", "40P01", "23505")  # serialization, deadlock, twin
_NOTIFY: Final = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"
_PREDECESSORS: Final = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND pid <> pg_backend_pid() AND usename = current_user"""
_END_LEASE: Final = "UPDATE drivers SET lease = 'epoch' WHERE key = %s"  # other drivers delete the row


class Notices:
    """The writes that other processes must still be notified of."""

    def __init__(self) -> None:
        self._tasks = ChangedTasks()
        self._mail = False
        self.sent_at = 0.0
        """when the last notification was sent, by the monotonic clock"""

        self.due: float | None = None
        """when the notification is due, by the monotonic clock; None if there were no writes since the last one"""

    def add(self, changed: set[str] | None, *, urgent: bool, mail: bool) -> None:
        """Add changed tasks, None for any, and whether an item was put into an inbox."""
        self._tasks.add(changed)
        due = self.sent_at + (URGENT_NOTIFY_SECONDS if urgent else NOTIFY_SECONDS)
        self.due = due if self.due is None else min(self.due, due)
        self._mail = self._mail or mail

    @property
    def is_due(self) -> bool:
        """Whether to notify now."""
        return self.due is not None and time.monotonic() >= self.due

    def payloads(self) -> list[str]:
        """Return the payloads of the notifications, and forget the tasks."""
        return notifications.payloads(self._tasks.take(), mail=self._mail)

    def sent(self) -> None:
        """Record that the payloads were sent."""
        self.due, self._mail, self.sent_at = None, False, time.monotonic()


class UnansweredClaims:
    """Refused claims that may have been carried out; the next claim of a task gets the lost answer.

    A claim that is not repeated is given back once there is a session.
    """

    def __init__(self) -> None:
        self.by_task: dict[str, Claim] = {}
        self.disown_at = 0.0
        """when to give them back, by the monotonic clock"""

    def add(self, task_id: str, claim: Claim) -> None:
        """Add the claim of a task whose answer was lost."""
        self.by_task[task_id], self.disown_at = claim, 0.0

    def match(self, items: list[Item], before: list[Any]) -> set[str]:
        """Give the first claim of each task the answer of its lost claim; return the tasks."""
        tasks: set[str] = set()
        for number, item in enumerate(items):
            if item.operation == "claim" and item.argument[0] not in tasks:
                key = item.argument[0]
                if key in self.by_task:
                    tasks.add(key)
                    before[number] = before[number] or self.by_task[key]
        return tasks


class PostgresWriter(WriterThread):
    """The writer of a schema: owns the session that writes.

    Args:
        to: the schema.
        patience: seconds to wait for a lost server before waiting items are refused.
    """

    def __init__(self, to: Address, patience: float) -> None:
        self._to = to
        self._patience = patience
        self._owner = LeaseHolder(this_process(), to)
        self._name = f"treadle writer {self._owner.process.key}"
        self._connection: BoundedConnection | None = None
        self._listening = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._is_waiting = False
        self._watchers_woken_at = self._connect_tried_at = self._mail_checked_at = 0.0
        self._away_since: float | None = None
        self._notices = Notices()
        self._has_news = self._has_mail = False
        self._changed = ChangedTasks()
        """the changed tasks, for the watchers here"""

        self._unanswered = UnansweredClaims()
        self.failures = 0
        """number of transactions that failed and were tried again"""
        self.wakes = 0
        """number of times the thread was woken while it waited"""
        super().__init__(to.url)

    # ---------------------------------------------------------------------------------- waiting, in the thread

    def _put(self, item: Item | None) -> None:
        super()._put(item)
        if self._is_waiting:
            with suppress(OSError):  # a byte waits there already, or the thread has ended
                self._wake_sender.send(b"!")

    def _next_item(self, timeout: float | None) -> Item | None:
        """Wait for an item or a notification; raise `Empty` when there is no item."""
        try:
            return self._queue.get_nowait()
        except Empty:
            pass
        connection = self._connection if self._listening else None
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_receiver, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection.fileno(), selectors.EVENT_READ)
            self._is_waiting = True
            if not self._queue.empty():  # it was queued before `_is_waiting` was set, and sent no byte
                timeout = 0.0
            ready = selector.select(timeout)
            self._is_waiting = False
        self.wakes += 1
        with suppress(BlockingIOError):
            self._wake_receiver.recv(4096)
        if connection is not None and any(key.fileobj != self._wake_receiver for key, _ in ready):
            self._read_notifications(connection)
        return self._queue.get_nowait()

    def _wait_seconds(self) -> float | None:
        if self._connection is not None and self._listening != bool(self._watchers):
            return 0.0
        times: list[float] = []
        if self._connection is None and self._needs_session:
            times.append(self._connect_tried_at + self._backoff())
        elif self._unanswered.by_task:
            times.append(self._unanswered.disown_at)
        if self._owner.held:
            since = max(0.0, time.time() - self._owner.renewed_at)  # the clock may have been set back
            times.append(time.monotonic() - since + self._to.lease_seconds / HEARTBEATS_PER_LEASE)
            if self._watchers:
                times.append(self._mail_checked_at + MAIL_CHECK_SECONDS)
        if self._notices.due is not None and self._connection is not None:
            times.append(self._notices.due)
        if self._has_news:
            times.append(self._watchers_woken_at + NOTIFY_SECONDS)
        return max(0.0, min(times) - time.monotonic()) if times else None

    @property
    def _needs_session(self) -> bool:
        return bool(self._watchers or self._owner.held or self._unanswered.by_task)

    def _run_due_work(self) -> None:
        """Do the work that is due: a session to listen on, a heartbeat, a notification, watchers to wake."""
        now = time.monotonic()
        try:
            if self._connection is None:
                if not self._needs_session or now < self._connect_tried_at + self._backoff():
                    return
                self._connect()
            connection = self._session()
            connection.is_patient = False
            self._update_listening(connection)
            self._keep_lease(connection)
            self._disown_unanswered(connection)
            self._notify_other_processes(connection)
            if self._watchers and self._owner.held and now >= self._mail_checked_at + MAIL_CHECK_SECONDS:
                self._has_news = self._has_mail = True
            if self._has_news and now >= self._watchers_woken_at + NOTIFY_SECONDS:
                self._wake_for_news(connection)
        except (
            StoreError,
            psycopg.Error,
        ) as error:  # the next write reports it; this is tried again
            self._drop_if_broken(error)

    def _keep_lease(self, connection: BoundedConnection) -> None:
        """Renew the lease of this process if that is due and it owns a task."""
        owner = self._owner
        if not owner.held or owner.is_fresh:
            return
        now = time.time()
        owner.row, owner.renewed_at = renew_lease(connection, owner), now
        if owner.outdated is not None:
            self._leave(owner.outdated)
        # Tasks that other drivers took over are no longer held, even if no caller here has noticed.
        owner.held &= owned_by(connection, owner.row)
        delete_dead_drivers(connection)

    def _disown_unanswered(self, connection: BoundedConnection) -> None:
        """Release the tasks that this process may own by a claim whose answer was lost, since no caller drives them."""
        if self._unanswered.by_task and time.monotonic() >= self._unanswered.disown_at:
            self._unanswered.disown_at = time.monotonic() + DISOWN_SECONDS
            claims = self._unanswered.by_task.items()
            lost = [Item("disown", (key, claim.epoch)) for key, claim in claims]
            _, finish = self._prepare(connection, lost, None)
            finish()
            self._unanswered.by_task.clear()

    # --------------------------------------------------------------------------------------- notifications

    def _update_listening(self, connection: BoundedConnection) -> None:
        """Listen while a caller watches. Earlier notifications are lost, so watchers are woken once at the start."""
        if self._watchers and not self._listening:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._to.channel)))
            self._listening = self._has_news = self._has_mail = True
            self._changed.add(None)
            self._watchers_woken_at = 0.0
            self._wake_for_news(connection)
        elif self._listening and not self._watchers:
            connection.execute("UNLISTEN *")
            self._listening = False

    def _read_notifications(self, connection: BoundedConnection) -> None:
        """Read the notifications that arrived while no statement ran."""
        try:
            connection.pgconn.consume_input()
            while notification := connection.pgconn.notifies():
                self._take_notification(notification.be_pid, notification.extra.decode())
        except psycopg.Error as error:
            self._drop_if_broken(error, lost=True)

    def _on_notification(self, notification: psycopg.Notify) -> None:
        self._take_notification(notification.pid, notification.payload)

    def _take_notification(self, sender: int, payload: str) -> None:
        if self._connection is not None and sender != self._connection.info.backend_pid:
            tasks, mail = notifications.read(payload)
            self._changed.add(tasks)
            self._has_news = True
            self._has_mail = self._has_mail or mail

    def _wake_for_news(self, connection: BoundedConnection) -> None:
        waiting = reading.tasks_with_mail(connection) if self._has_mail else ()
        if self._has_mail:
            self._mail_checked_at = time.monotonic()
        self._has_news = self._has_mail = False
        self._watchers_woken_at = time.monotonic()
        self._watchers.wake(StoreChanges(self._changed.take(), waiting))

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
        """Open a session, and end this writer's lost sessions on the server."""
        self._connect_tried_at = time.monotonic()
        self._away_since = self._away_since or self._connect_tried_at
        connection = connect(self._to, self._name)
        connection.answer_seconds = self._answer_seconds
        try:
            if first:
                migrate(self._to, connection)
            else:
                connection.execute(_PREDECESSORS, (self._name,))
            connection.add_notify_handler(self._on_notification)
        except psycopg.Error as error:
            connection.close()
            raise unavailable(self._to, error) from error
        except BaseException:
            connection.close()
            raise
        self._connection, self._listening, self._away_since = connection, False, None

    def _session(self) -> BoundedConnection:
        """Return the session, a new one if there is none; raise `StoreUnavailable` if the server is unreachable."""
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        return self._connection

    def _answer_seconds(self) -> float:
        """Return the seconds for which the server may leave a statement unanswered now."""
        seconds = self._to.answer_seconds
        return seconds if self.closing is None else min(seconds, CLOSING_SECONDS)

    @property
    def is_unreachable(self) -> bool:
        """Whether the server has been away for so long that items no longer wait for it; callable from any thread."""
        since = self._away_since
        return since is not None and time.monotonic() > since + self._patience_now

    @property
    def _patience_now(self) -> float:
        """Seconds for which items wait for a lost server now."""
        return self._patience if self.closing is None else min(self._patience, CLOSING_SECONDS)

    def _backoff(self) -> float:
        return pause(0.0 if self._away_since is None else time.monotonic() - self._away_since)

    def _drop_if_broken(self, error: Exception, *, lost: bool = False) -> bool:
        """Roll back the session's transaction, or close the session if it is lost; return whether it was closed."""
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
        """Write a group: exclusive items one by one, the items between them together."""
        results: list[Any] = []
        batch: list[Item] = []
        for item in group:
            if item.operation in exclusive.OPERATIONS:
                results += self._write_together(batch)
                results.append(self._write_together([item])[0])
                batch = []
            else:
                batch.append(item)
        return results + self._write_together(batch)

    def _write_together(self, items: list[Item], unconfirmed: list[Any] | None = None) -> list[Any]:
        """Write items in one transaction; if one of them fails, write each in its own.

        Args:
            items: the items to write.
            unconfirmed: the results of these items in an earlier transaction that may have been committed; else None.
        """
        if all(item.operation == BARRIER for item in items):
            if items and self._connection is not None:
                self._run_due_work()
            return [None] * len(items)
        began = time.monotonic()
        lost_since: float | None = None
        attempts = 0
        while True:
            results: list[Any] | None = None
            begun = time.monotonic()
            try:
                connection = self._session()
                connection.is_patient = False
                self._notify_other_processes(connection)
                self._keep_lease(connection)
                results, finish = self._prepare(connection, items, unconfirmed)
                finish()
                return results
            except StoreUnavailable as error:
                failure: Exception = error
            except Exception as error:  # noqa: BLE001 (a value that the database cannot take is one item's fault, too)
                failure = error
                self.failures += 1
                if self._drop_if_broken(error):
                    unconfirmed = unconfirmed if results is None else results
                elif isinstance(error, LockNotAvailable) and time.monotonic() < began + LOCK_WAIT_SECONDS:
                    self._end_stalled()
                    continue
                elif getattr(error, "sqlstate", None) not in _CONFLICT_STATES or attempts >= ATTEMPTS:
                    if len(items) == 1:
                        return self._refuse(items, unconfirmed, error)
                    before = unconfirmed or [None] * len(items)
                    return [
                        self._write_together([i], b and [b])[0] for i, b in zip(items, before, strict=True)
                    ]
                else:
                    attempts += 1
                    time.sleep(random.uniform(0.0, 0.01 * attempts))  # noqa: S311
                    continue
            lost_since = begun if lost_since is None else lost_since
            if self.is_unreachable or time.monotonic() > lost_since + self._patience_now:
                return self._refuse(items, unconfirmed, failure)
            if self._away_since is not None:
                time.sleep(self._backoff())

    def _end_stalled(self) -> None:
        """End transactions of stopped processes that hold locks; they write again when they wake."""
        with suppress(psycopg.Error):  # the next write reports it
            if self._connection is not None:
                self._connection.execute(STALLED, (self._to.channel, self._to.idle_seconds))

    def _refuse(self, items: list[Item], unconfirmed: list[Any] | None, error: Exception) -> list[Any]:
        """Return an error for each item; remember the claims that may have been carried out."""
        for item, lost in zip(items, unconfirmed or (), strict=bool(unconfirmed)):
            if isinstance(lost, Claim):
                self._unanswered.add(item.argument[0], lost)
        return [as_store_error(self._to, error)] * len(items)

    def _prepare(
        self, connection: BoundedConnection, items: list[Item], unconfirmed: list[Any] | None
    ) -> tuple[list[Any], Callable[[], None]]:
        """Begin a transaction and check all items; return their results and a function that commits."""
        if items[0].operation in exclusive.OPERATIONS:
            if (refusal := self._refusal_of(items[0])) is not None:
                return [refusal], lambda: None
            return self._prepare_exclusive(connection, items[0], repeated=unconfirmed is not None)
        group = Group(connection, self._owner, self._to.channel)
        before = list(unconfirmed or [None] * len(items))
        claimed = self._unanswered.match(items, before) if self._unanswered.by_task else ()
        group.begin(items, before)
        results = [
            self._refusal_of(item) or group.apply(item, past)
            for item, past in zip(items, before, strict=True)
        ]

        def finish() -> None:
            group.write()
            if self._owner.outdated is not None:
                self._leave(self._owner.outdated)
            changed = _changed(items, results)
            self._schedule_notification(changed, urgent=group.urgent, mail=group.mail)
            for key in claimed:
                self._unanswered.by_task.pop(key, None)
            if any(isinstance(result, TaskLocked) for result in results):
                self._end_stalled()

        return results, finish

    def _prepare_exclusive(
        self, connection: BoundedConnection, item: Item, *, repeated: bool
    ) -> tuple[list[Any], Callable[[], None]]:
        connection.execute(BEGIN)
        take_long(self._to, connection)
        connection.execute(exclusive.LOCK_EXCLUSIVE, (self._to.channel,))
        try:
            deleted = exclusive.run(connection, item, self._owner.row)
        except (NotFound, TaskExists, ThreadMoved) as error:
            connection.rollback()
            # If the item may have been written before, this error shows that it was.
            return [None if repeated else error], lambda: None
        except (Refused, TreadleError) as error:
            connection.rollback()
            return [error], lambda: None

        def finish() -> None:
            connection.execute("COMMIT")
            self._schedule_notification(None, urgent=True)

        return [deleted], finish

    def _schedule_notification(self, changed: set[str] | None, *, urgent: bool, mail: bool = False) -> None:
        """Schedule the notification of other processes about tasks, and of the watchers here if there are several."""
        self._notices.add(changed, urgent=urgent, mail=mail)
        if len(self._watchers) > 1:
            self._changed.add(changed)
            self._has_news = True

    def _notify_other_processes(self, connection: BoundedConnection) -> None:
        """Notify other processes of writes if that is due; if this session is lost, the next one does."""
        if self._notices.is_due:
            connection.execute(_NOTIFY, (self._to.channel, self._notices.payloads()))
            self._notices.sent()

    def _close_writer(self) -> None:
        try:
            connection = self._connection
            if connection is not None:
                if self._owner.row is not None:
                    connection.execute(_END_LEASE, (self._owner.process.key,))
                payloads = notifications.payloads(None, mail=False)  # its tasks are orphans from now on
                connection.execute(_NOTIFY, (self._to.channel, payloads))
                connection.close()
        except psycopg.Error as error:  # a lease that could not be ended passes by itself
            self._drop_if_broken(error, lost=True)
        self._connection = None
        self._wake_receiver.close()
        self._wake_sender.close()


def _changed(items: list[Item], results: list[Any]) -> set[str]:
    """Return the tasks of the items that were written."""
    changed: set[str] = set()
    for item, result in zip(items, results, strict=True):
        if isinstance(result, Exception):
            continue
        if item.operation == "commit":
            changed.add(item.argument.task_id)
        elif item.operation in ("claim", "disown"):
            changed.add(item.argument[0])
    return changed
