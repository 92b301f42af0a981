"""Write one group of items to a PostgreSQL schema, checked in memory, in one transaction.

A transaction locks the threads and tasks of its items, each kind in one order, and only then reads them. So two
processes never deadlock, and the rows stay the same until the commit. Every item is checked before any of it is
written. So a refused item does not affect others of its group.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Final, LiteralString, cast

from treadle.core.data import mutable
from treadle.errors import StoreFormatError, TaskBusy, TreadleError
from treadle.ports import (
    AT_ONCE,
    Claim,
    Commit,
    Committed,
    InboxItem,
    JournalEnd,
    NewTask,
    OnBusyThread,
    QueuePosition,
    Refused,
    ThreadChange,
)
from treadle.stores import rules
from treadle.stores.postgres import reading
from treadle.stores.postgres.batch import Batch, Head
from treadle.stores.postgres.dialect import is_alive
from treadle.stores.postgres.schema import Address, BoundedConnection, outdated
from treadle.stores.processes import HEARTBEATS_PER_LEASE, Process
from treadle.stores.rules import IN_PARALLEL, QueuedTask, QueueEntry
from treadle.stores.writer_thread import BARRIER, Item

STALLED: Final = """SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity a USING (pid)
WHERE locktype = 'advisory' AND database = a.datid AND objsubid = 1 AND granted
AND ((classid::bigint << 32) | objid::bigint) = hashtextextended(%s, 0) AND a.wait_event = 'ClientRead'
AND a.xact_start < clock_timestamp() - %s * interval '1 second'
AND a.datname = current_database() AND a.usename = current_user AND pid <> pg_backend_pid()"""
"""Ends transactions on this schema whose writers have sent nothing for too long.

The server does not count a transaction as idle until its pipeline is completely sent.
"""

AT_MOST: Final = "SET LOCAL transaction_timeout = 30000"
BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
LOCK_SHARED: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))"
"""The lock that every group takes, shared; operations on the whole schema take it exclusively."""

# The threads that tasks enter: those with these keys, and those that the rows of these tasks name.
_ENTERED: Final = """INSERT INTO threads SELECT key, 0 FROM
(SELECT unnest(%b::text[]) AS key UNION SELECT thread FROM tasks WHERE key = ANY(%b)) AS entered
ORDER BY key ON CONFLICT DO NOTHING"""
_THREADS: Final = """SELECT key, version FROM threads
WHERE key = ANY(ARRAY(SELECT unnest(%b::text[]) UNION SELECT thread FROM tasks WHERE key = ANY(%b)))
ORDER BY key FOR NO KEY UPDATE"""
_TURNS: Final = """SELECT t.thread, t.id, t.key, t.turn, t.driver,
d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN drivers d ON d.id = t.driver WHERE t.turn IS NOT NULL
AND t.thread = ANY(ARRAY(SELECT unnest(%b::text[]) UNION SELECT thread FROM tasks WHERE key = ANY(%b)))"""
_TASKS: Final = """SELECT id, key, epoch, driver, deleted, state, base_seq, mark_seq, mark_digest, thread, turn, wanted,
format FROM tasks WHERE key = ANY(%b) ORDER BY id FOR NO KEY UPDATE"""
_TASKS_AT_HAND: Final = _TASKS + " SKIP LOCKED"
# A separate statement: it must see commits made while the previous one waited for its locks.
_HEADS: Final = (
    "SELECT t.id, (SELECT max(seq) FROM records WHERE task = t.id), t.key FROM tasks t WHERE key = ANY(%b)"
)
_DIGESTS: Final = """SELECT t.key, (SELECT digest FROM records WHERE task = t.id ORDER BY seq DESC LIMIT 1)
FROM tasks t WHERE key = ANY(%b)"""
_UNREAD: Final = """SELECT i.task, i.key FROM inbox i JOIN tasks t ON t.id = i.task
WHERE t.key = ANY(%b) AND NOT i.taken"""
_POSTED: Final = """SELECT i.task, i.key FROM unnest(%b::text[], %b::text[]) AS p(task, key)
JOIN tasks t ON t.key = p.task JOIN inbox i ON i.task = t.id AND i.key = p.key"""
_DRIVERS: Final = """SELECT d.id, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN drivers d ON d.id = t.driver WHERE t.key = ANY(%b)"""
_IDS: Final = "SELECT nextval('task_ids') FROM generate_series(1, %b::int)"
_SINCE_NEWEST: Final = """SELECT version, covers FROM members WHERE thread = %s AND gone IS NULL AND version >=
(SELECT max(version) FROM members WHERE thread = %s AND task = %s AND gone IS NULL) ORDER BY version"""
_NEWEST: Final = (
    "SELECT version, task FROM members WHERE thread = %s AND gone IS NULL ORDER BY version DESC LIMIT 1"
)
_REVOKE: Final = "UPDATE grants SET revoked = %s, revoked_by = %s WHERE id = %s AND revoked IS NULL"
_IS_GRANT: Final = "SELECT 1 FROM grants WHERE id = %s"
_RECORD: Final = "SELECT epoch, digest FROM records WHERE task = %s AND seq = %s"
_RENEW_LEASE: Final = """INSERT INTO drivers(key, host, boot, pid, started, lease)
VALUES (%s, %s, %s, %s, %s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (key) DO UPDATE SET lease = excluded.lease
RETURNING id, (SELECT version FROM treadle_format), (SELECT opens FROM treadle_format)"""
# A transaction that makes a driver an owner locks its row. So the row is not deleted before the task names it.
_OWN_DRIVER: Final = "SELECT id FROM drivers WHERE id = %s FOR KEY SHARE"
_OWNED: Final = "SELECT key FROM tasks WHERE driver = %s"
_DEAD_DRIVERS: Final = """SELECT id FROM drivers WHERE lease < clock_timestamp()
AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.driver = drivers.id)"""
_UNREFERENCED: Final = (
    "SELECT id FROM drivers WHERE id = ANY(%s) AND lease < clock_timestamp() FOR UPDATE SKIP LOCKED"
)
# A separate statement: it must see the tasks of processes that held their row when the previous one began.
_FORGET: Final = """DELETE FROM drivers WHERE id = ANY(%s)
AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.driver = drivers.id)"""
_LATE: Final = """INSERT INTO drivers(key, host, boot, pid, started, lease)
SELECT key || ' (late)', host, boot, pid, started, 'epoch' FROM drivers WHERE id = %s
ON CONFLICT (key) DO UPDATE SET lease = 'epoch' RETURNING id"""
_DEPOSE: Final = """UPDATE tasks SET turn = NULL, epoch = epoch + 1, driver = %s
WHERE id = %s AND driver = %s AND turn = 0"""


class TaskLocked(TaskBusy):
    """A task cannot be claimed now, because another transaction holds its row."""


@mutable
class LeaseHolder:
    """A process as a driver: its lease and the tasks it owns, between transactions.

    Args:
        process: its host, process id and key.
        to: the schema, and the seconds for which it counts as alive after a heartbeat.
        row: its row of `drivers`; None until it first owns a task.
        renewed_at: when it last renewed its lease, by the clock of this machine.
        held: the tasks it owns.
        outdated: the error of the last renewal if a newer version migrated the tables beyond this one.
    """

    process: Process
    to: Address
    row: int | None = None
    renewed_at: float = 0.0
    held: set[str] = field(default_factory=set[str])
    outdated: StoreFormatError | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether its lease was renewed lately; False after the clock was set back or the machine slept."""
        return 0 <= time.time() - self.renewed_at < self.to.lease_seconds / HEARTBEATS_PER_LEASE


def renew_lease(connection: BoundedConnection, owner: LeaseHolder) -> int:
    """Renew the lease of this process and return its row; record whether a newer version migrated the tables."""
    p = owner.process
    values = (p.key, p.host, p.boot, p.pid, p.started, owner.to.lease_seconds)
    row = connection.execute(_RENEW_LEASE, values).fetchone()
    assert row is not None
    driver, version, opens = row
    owner.outdated = owner.outdated or outdated(owner.to, version, opens)
    return int(driver)


def owned_by(connection: BoundedConnection, driver: int) -> set[str]:
    """Return the tasks that a driver owns."""
    return {str(key) for (key,) in connection.execute(_OWNED, (driver,))}


def delete_dead_drivers(connection: BoundedConnection) -> None:
    """Delete the rows of drivers with an expired lease and no tasks, in a separate transaction."""
    dead_drivers = [driver for (driver,) in connection.execute(_DEAD_DRIVERS)]
    if dead_drivers:
        with connection.transaction():
            unreferenced = [driver for (driver,) in connection.execute(_UNREFERENCED, (dead_drivers,))]
            connection.execute(_FORGET, (unreferenced,))


class Group:
    """Items that are written in one transaction: `begin`, `apply` each, `write`.

    Args:
        connection: a connection without a transaction.
        owner: this process.
        channel: the name of the schema's channel and locks.
    """

    def __init__(self, connection: BoundedConnection, owner: LeaseHolder, channel: str) -> None:
        self._connection = connection
        self._owner = owner
        self._channel = channel
        self._driver = owner.row
        self._renewed_at = owner.renewed_at
        self._is_fresh = owner.is_fresh
        self._batch = Batch()
        self._heads: dict[str, Head] = {}
        self._locked: set[str] = set()
        self._ids: list[int] = []
        self._drivers: dict[int, tuple[Any, ...]] = {}
        self._unread: defaultdict[int, set[str]] = defaultdict(set)
        self._posted: set[tuple[int, str]] = set()
        self._versions: dict[str, int] = {}
        self._threads: set[str] = set()
        self._turns: defaultdict[str, dict[int, QueuedTask]] = defaultdict(dict)
        self._dead_drivers: set[int] = set()
        self._ownership_changes: list[tuple[str, bool]] = []
        self.urgent = False
        """whether to notify other processes at once"""
        self.mail = False
        """whether an item was put into an inbox"""

    # ------------------------------------------------------------------------------------------ beginning

    def begin(self, items: list[Item], before: Sequence[Any]) -> None:
        """Begin the transaction: lock the rows of the items, then read them.

        A claim does not wait for the row of its task, since the last driver may have been stopped during a write.

        Args:
            items: the items to write.
            before: the result of each item in an earlier transaction that may have been committed; else None.
        """
        commits: list[Commit] = [item.argument for item in items if item.operation == "commit"]
        claims: list[tuple[str, bool]] = [item.argument for item in items if item.operation == "claim"]
        posts: list[tuple[str, str]] = [
            (item.argument[0], item.argument[1].item_id) for item in items if item.operation == "post"
        ]
        waited_for, at_hand = _tasks(items, before)
        tasks = [*waited_for, *at_hand]
        unwritten = [commit.task_id for commit in commits if commit.record is None and not commit.create]
        unwritten += [task for task, _ in claims]
        watchful = [commit.task_id for commit in commits if commit.seal or commit.release]
        creates = sum(commit.create is not None for commit in commits)
        execute = self._connection.execute
        with self._connection.pipeline():
            execute(BEGIN)
            if self._connection.info.server_version >= 17_00_00:
                execute(AT_MOST)  # also while it waits for a lock and no process can end it
            execute(LOCK_SHARED, (self._channel,))
            own_driver = execute(_OWN_DRIVER, (self._driver,)) if creates or claims else None
            versions, turns = self._ask_threads(commits, claims)
            rows = [execute(_TASKS, (waited_for,))] if waited_for else []
            rows += [execute(_TASKS_AT_HAND, (at_hand,))] if at_hand else []
            seqs = execute(_HEADS, (tasks,))
            digests = execute(_DIGESTS, (unwritten,)) if unwritten else None
            unread = execute(_UNREAD, (watchful,)) if watchful else None
            posted = (
                execute(_POSTED, ([task for task, _ in posts], [key for _, key in posts])) if posts else None
            )
            drivers = execute(_DRIVERS, ([task for task, _ in claims],)) if claims else None
            ids = execute(_IDS, (creates,)) if creates else None
        if own_driver is not None and own_driver.fetchone() is None:
            self._driver = None
        self._take_heads([row for cursor in rows for row in cursor.fetchall()], seqs.fetchall())
        for key, digest in digests.fetchall() if digests else ():
            if key in self._heads:
                self._heads[key].digest = digest  # None for a fork without records of its own
        self._versions = dict(versions.fetchall()) if versions else {}
        self._threads = set(self._versions)
        for thread, row, key, turn, driver, *facts in turns.fetchall() if turns else ():
            self._turns[thread][row] = QueuedTask(row, key, turn, driver)
            if driver != self._driver and not is_alive(*facts):
                self._dead_drivers.add(driver)
        for task, key in unread.fetchall() if unread else ():
            self._unread[task].add(key)
        self._posted = set(posted.fetchall()) if posted else set()
        self._drivers = {driver[0]: driver[1:] for driver in drivers.fetchall()} if drivers else {}
        self._ids = [number for (number,) in ids.fetchall()] if ids else []

    def _ask_threads(self, commits: list[Commit], claims: list[tuple[str, bool]]) -> tuple[Any, Any]:
        """Lock the threads that change or are entered; query their versions, and the tasks in their queues."""
        changing = {commit.thread.thread_id for commit in commits if commit.thread}
        coming = [commit.create.thread_id for commit in commits if commit.enter and commit.create]
        entering = [commit.task_id for commit in commits if commit.enter and not commit.create]
        entering += [task for task, enter in claims if enter]
        execute = self._connection.execute
        if not (coming or entering):
            return (execute(_THREADS, (list(changing), entering)) if changing else None), None
        execute(_ENTERED, (coming, entering))
        # A creation that is sent again has a row, which names its thread.
        versions = execute(_THREADS, ([*changing, *coming], entering))
        return versions, execute(_TURNS, (coming, entering))

    def _take_heads(self, rows: list[Any], seqs: list[Any]) -> None:
        last: dict[int, int | None] = {row: seq for row, seq, _ in seqs}
        for row, key, epoch, driver, deleted, state, base_seq, *more in rows:
            seq = last.get(row)
            self._heads[key] = Head(
                row, epoch, driver, deleted, state, base_seq if seq is None else seq, *more
            )
        self._locked = {key for _, _, key in seqs if key not in self._heads}

    def apply(self, item: Item, before: Any) -> Any:
        """Check an item and collect its writes; return its result, or the error that refused it.

        Args:
            item: the item to write, one of those of `begin`.
            before: its result in an earlier transaction that may have been committed; else None. If the item is already
                written, that transaction wrote it.
        """
        if item.operation == BARRIER:
            return None
        repeated = before is not None and not isinstance(before, Exception)
        try:
            match item.operation:
                case "commit":
                    return self._commit(item.argument, repeated=repeated)
                case "claim":
                    key, enter = cast("tuple[str, bool]", item.argument)
                    return self._claim(key, enter, cast(Claim, before) if repeated else None)
                case "post":
                    return self._post(*item.argument) or (repeated and before is True)
                case "revoke":
                    return self._revoke(*item.argument) or (repeated and before is True)
                case _:
                    return self._disown(*item.argument)
        except (Refused, TreadleError) as refusal:
            return refusal

    # ---------------------------------------------------------------------------------------- committing

    def _commit(self, commit: Commit, *, repeated: bool) -> Committed:
        head = self._heads.get(commit.task_id)
        earlier, is_own, has_joined = None, True, False
        if head is not None:
            is_own = head.driver is None or head.driver == self._driver
            if rules.may_be_repeated(commit, head):
                assert commit.record is not None
                earlier = self._query_one(_RECORD, head.row, commit.record.seq)
            elif repeated and commit.record is None and commit.thread is not None:
                added = (commit.thread.expected + 1, head.row)
                has_joined = commit.thread.action == "add" and added == self._query_one(
                    _NEWEST, commit.thread.thread_id
                )
        if not rules.admit(commit, head, earlier, is_own=is_own, is_resent=repeated, has_joined=has_joined):
            assert head is not None
            if head.driver is None or head.epoch != commit.epoch:
                return Committed(released=True)
            return Committed(place=self._enter(head, commit.task_id, commit.enter))
        if commit.create is not None:
            head = self._new_head(commit, commit.create)
        assert head is not None
        released = (commit.seal or commit.release) and rules.releases(commit, self._unread[head.row])
        taken_out = self._check_thread(head, commit, commit.thread) if commit.thread is not None else 0
        entry = self._entry(head, commit.enter)
        return self._write(head, commit, entry, taken_out, release=released)

    def _write(
        self, head: Head, commit: Commit, entry: QueueEntry | None, taken_out: int, *, release: bool
    ) -> Committed:
        if commit.create is not None:
            head.driver = self._driver_row()
            self._heads[commit.task_id] = head
            self._batch.create(head)
            self._ownership_changes.append((commit.task_id, True))
        if commit.format > head.format:
            head.format = commit.format
            self._batch.changed[head.row] = head
        if commit.record is not None:
            self._batch.append(head, commit.record)
        self._batch.take(head.row, commit.taken)
        self._unread[head.row].difference_update(commit.taken)
        self._batch.granted += [rules.grant_columns(grant) for grant in commit.grants]
        if commit.thread is not None:
            self._change_thread(head, commit.thread, taken_out)
        position = self._assign_place(head, commit.task_id, entry)
        has_figures = commit.figures is not None
        if has_figures:
            head.figures = commit.figures
        if commit.state is not None or has_figures or release or commit.create is not None:
            self._set_row(head, commit.task_id, commit.state, release=release, wanted=commit.due_at)
        return Committed(release, position)

    def _set_row(
        self, head: Head, key: str, state: str | None = None, *, release: bool = False, wanted: int = 0
    ) -> None:
        """Update a task's row, including the end of its journal."""
        head.mark, head.mark_digest = head.seq, self._digest(head)
        head.state = head.state if state is None else state
        if release:
            head.driver, head.turn, head.wanted = None, None, wanted
            self._turns[head.thread].pop(head.row, None)
            self._ownership_changes.append((key, False))
            self.urgent = True
        self._batch.changed[head.row] = head

    def _new_head(self, commit: Commit, new: NewTask) -> Head:
        base = None if new.base is None else self._listed(new.base)
        if new.base is not None and base is not None:
            rules.check_fork(new.base, new.base_seq, base.seq)
        seq = 0 if base is None else new.base_seq
        head = Head(self._ids.pop(), commit.epoch, None, False, "created", seq, None, None, new.thread_id)
        head.new, head.base = new, None if base is None else base.row
        head.format = 1 if base is None else base.format
        return head

    def _digest(self, head: Head) -> bytes:
        """Return the digest of the record with a task's last event."""
        if head.digest is None:
            row = head.row if head.new is None else head.base
            self._flush()
            head.digest = b"" if row is None else reading.digest_at(self._connection, row, head.seq)
        return head.digest

    def _revoke(self, grant_id: str, time: int, by: str | None) -> bool:
        self._flush()
        if self._connection.execute(_REVOKE, (time, by, grant_id)).rowcount:
            return True
        if self._connection.execute(_IS_GRANT, (grant_id,)).fetchone() is None:
            raise rules.grant_not_found(grant_id)
        return False

    # ------------------------------------------------------------------------------------------- threads

    def _check_thread(self, head: Head, commit: Commit, change: ThreadChange) -> int:
        """Return the version of the member that a commit removes from its thread; 0 for none."""
        members: list[tuple[Any, ...]] = []
        if change.action == "remove":
            self._flush()
            thread = change.thread_id
            members = self._connection.execute(_SINCE_NEWEST, (thread, thread, head.row)).fetchall()
        return rules.check_thread(commit, self._versions.get(change.thread_id, 0), members)

    def _change_thread(self, head: Head, change: ThreadChange, taken_out: int) -> None:
        thread = change.thread_id
        version = self._versions.get(thread, 0) + 1
        if change.action == "add":
            self._batch.joined.append((thread, version, head.row, head.seq, change.covers))
        else:
            self._batch.left.append((version, thread, taken_out))
        self._versions[thread] = self._batch.moved[thread] = version

    def _enter(self, head: Head, key: str, policy: OnBusyThread | None) -> QueuePosition | None:
        return self._assign_place(head, key, self._entry(head, policy))

    def _entry(self, head: Head, policy: OnBusyThread | None) -> QueueEntry | None:
        """Return the place in the queue that a task asks for; raise `ThreadBusy`."""
        if policy is None or (head.new is None and head.driver is None):
            return None
        if policy == "parallel":
            return IN_PARALLEL
        queued = [candidate for row, candidate in self._turns[head.thread].items() if row != head.row]
        queued.sort(key=lambda task: (task.turn, task.row))
        version = self._versions.get(head.thread, 0)
        return rules.enter_thread(head.thread, version, head.turn, policy, queued, self._dead_drivers)

    def _assign_place(self, head: Head, key: str, entry: QueueEntry | None) -> QueuePosition | None:
        """Give a task its place in the queue, and take the thread from holders with dead drivers."""
        if entry is None:
            return None
        for deposed in entry.deposed:
            self._depose(deposed)
            self._turns[head.thread].pop(deposed.row, None)
        if head.turn != entry.turn:  # an unchanged place is not written
            head.turn = entry.turn
            self._batch.changed[head.row] = head
        assert head.driver is not None
        self._turns[head.thread][head.row] = QueuedTask(head.row, key, entry.turn, head.driver)
        return entry.position

    def _depose(self, task: QueuedTask) -> None:
        """Take the thread from a task with a dead driver; the driver still owns the task, in a newer epoch."""
        late = self._connection.execute(_LATE, (task.driver,)).fetchone()
        if late is None:
            return
        head_of_task = self._heads.get(task.task_id)
        if head_of_task is None:
            self._connection.execute(_DEPOSE, (late[0], task.row, task.driver))
        else:
            head_of_task.driver, head_of_task.turn, head_of_task.epoch = late[0], None, head_of_task.epoch + 1
            self._batch.changed[head_of_task.row] = head_of_task

    # ----------------------------------------------------------------------------------------- ownership

    def _claim(self, key: str, enter: bool, before: Claim | None) -> Claim:
        if key in self._locked:
            raise TaskLocked(f"task {key} is being written by another process", task_id=key)
        head = self._listed(key)
        policy = "enqueue" if enter else None
        if before is not None and head.epoch == before.epoch and head.driver == self._driver_row():
            self._ownership_changes.append((key, True))
            return replace(before, place=self._enter(head, key, policy))
        if head.driver is not None:
            self._refuse_if_alive(key, head.driver)
        end = JournalEnd(head.seq, self._digest(head))
        mark = None if head.mark is None else JournalEnd(head.mark, head.mark_digest or b"")
        rules.check_claim(key, head.format, end, mark)
        is_taken_over = head.driver is not None
        head.wanted = AT_ONCE if is_taken_over else head.wanted
        head.driver, head.turn = self._driver_row(), None
        self._turns[head.thread].pop(head.row, None)
        head.epoch += 1
        position = self._enter(head, key, policy)
        self._set_row(head, key)
        self._ownership_changes.append((key, True))
        return Claim(head.epoch, end.seq, end.digest, position, head.wanted, is_taken_over)

    def _disown(self, key: str, epoch: int) -> None:
        """Give back a claim that no caller waits for."""
        head = self._heads.get(key)
        if head is not None and head.epoch == epoch:
            self._set_row(head, key, release=True, wanted=head.wanted)

    def _post(self, key: str, item: InboxItem) -> bool:
        row = self._listed(key).row
        if (row, item.item_id) in self._posted:
            return False
        self._posted.add((row, item.item_id))
        self._unread[row].add(item.item_id)
        self._batch.post(row, item)
        self.urgent = self.mail = True
        return True

    def _listed(self, key: str) -> Head:
        head = self._heads.get(key)
        if head is None or head.deleted:
            raise rules.task_not_found(key)
        return head

    def _refuse_if_alive(self, key: str, driver: int) -> None:
        if driver == self._driver:
            process = self._owner.process
            raise rules.task_busy(key, process.pid, process.host, is_own=True)
        facts = self._drivers.get(driver)
        if facts is not None and is_alive(*facts):
            raise rules.task_busy(key, facts[2], facts[0], is_own=False)

    def _driver_row(self) -> int:
        """Return the row of this process, with a recent lease; raise `StoreFormatError`."""
        if self._driver is None or not self._is_fresh:
            self._renewed_at = time.time()
            self._driver = renew_lease(self._connection, self._owner)
            self._is_fresh = True
            if self._owner.outdated is not None:
                raise self._owner.outdated
        return self._driver

    # ------------------------------------------------------------------------------------------- writing

    def write(self) -> None:
        """Write all collected rows and commit, in one pipeline."""
        with self._connection.pipeline():
            self._batch.send(self._connection, self._threads)
            self._connection.execute("COMMIT")
        self._owner.row, self._owner.renewed_at = self._driver, self._renewed_at
        for key, owned in self._ownership_changes:
            (self._owner.held.add if owned else self._owner.held.discard)(key)

    def _query_one(self, query: LiteralString, *values: Any) -> Any:
        """Run a query that sees all collected rows; return its first row."""
        self._flush()
        return self._connection.execute(query, values).fetchone()

    def _flush(self) -> None:
        if self._batch.is_seen:
            with self._connection.pipeline():
                self._batch.send(self._connection, self._threads)


def _tasks(items: list[Item], before: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Return the tasks of items: those whose rows the group waits for, and those that are claimed."""
    waited_for: set[str] = set()
    claimed: set[str] = set()
    for item, past in zip(items, before, strict=True):
        match item.operation:
            case "commit":
                commit: Commit = item.argument
                waited_for.add(commit.task_id)
                if commit.create is not None and commit.create.base is not None:
                    waited_for.add(commit.create.base)
            case "claim":  # the group waits for a task that this process may own by now
                (waited_for if isinstance(past, Claim) else claimed).add(item.argument[0])
            case "post" | "disown":
                waited_for.add(item.argument[0])
            case _:
                pass
    return list(waited_for), list(claimed - waited_for)
