"""What is written to a PostgreSQL schema: one group of items, checked in memory and written by a few statements.

A transaction locks the threads and tasks it is about, each kind in one order, and only then looks at them; so two
processes never wait for each other in a circle, and what was looked at stays true until the commit. Every item is
checked before anything of it is written: a refused one harms no other of its group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, cast

from treadle.core.journal import missing_tail, replaced_tail
from treadle.errors import AlreadyFinalized, Fenced, TaskBusy, TaskNotFound, TreadleError
from treadle.ports import (
    Claim,
    Commit,
    Committed,
    InboxItem,
    InboxWaiting,
    NewTask,
    Refused,
    TaskExists,
    ThreadChange,
    ThreadMoved,
)
from treadle.stores import postgres_reading
from treadle.stores.drivers import LEASE_SECONDS, Process
from treadle.stores.postgres_schema import Connection
from treadle.stores.writing import NOTHING, Item

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
SHARED: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended(%s, 0))"
"""Taken by every group; a deletion takes it alone."""

_THREADS: Final = "SELECT key, version FROM threads WHERE key = ANY(%b) ORDER BY key FOR NO KEY UPDATE"
_TASKS: Final = """SELECT id, key, epoch, driver, deleted, state, base_seq, mark_seq, mark_digest
FROM tasks WHERE key = ANY(%b) ORDER BY id FOR NO KEY UPDATE"""
# A statement of its own: it must see what was committed while the one before waited for its locks.
_HEADS: Final = (
    """SELECT t.id, (SELECT max(seq) FROM records WHERE task = t.id) FROM tasks t WHERE key = ANY(%b)"""
)
_UNREAD: Final = """SELECT i.task, i.key FROM inbox i JOIN tasks t ON t.id = i.task
WHERE t.key = ANY(%b) AND NOT i.taken"""
_POSTED: Final = """SELECT i.task, i.key FROM unnest(%b::text[], %b::text[]) AS p(task, key)
JOIN tasks t ON t.key = p.task JOIN inbox i ON i.task = t.id AND i.key = p.key"""
_DRIVERS: Final = """SELECT d.id, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN drivers d ON d.id = t.driver WHERE t.key = ANY(%b)"""
_IDS: Final = "SELECT nextval('task_ids') FROM generate_series(1, %b::int)"

_DRIVER: Final = """INSERT INTO drivers(key, host, boot, pid, started, lease)
VALUES (%s, %s, %s, %s, %s, clock_timestamp() + %s * interval '1 second')
ON CONFLICT (key) DO UPDATE SET lease = excluded.lease RETURNING id"""
_CREATE: Final = """INSERT INTO tasks(id, key, agent, thread, state, created, epoch, driver, parent, base, base_seq,
labels, mark_seq, mark_digest) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b)"""
_APPEND: Final = """INSERT INTO records(task, seq, count, epoch, blobs, digest, data)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::int[], %b::bytea[], %b::bytea[])"""
_BLOB: Final = "INSERT INTO blobs(digest, data) VALUES (%s, %b) ON CONFLICT DO NOTHING"
_REFER: Final = "INSERT INTO blob_refs SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[])"
_TAKE: Final = """UPDATE inbox i SET taken = true, data = NULL FROM unnest(%b::bigint[], %b::text[]) AS u(task, key)
WHERE i.task = u.task AND i.key = u.key"""
_POST: Final = "INSERT INTO inbox(task, key, kind, created, data) VALUES (%s, %s, %s, %s, %s)"
_THREAD: Final = "INSERT INTO threads VALUES (%s, %s)"
_MOVE: Final = "UPDATE threads SET version = %s WHERE key = %s"
_JOIN: Final = "INSERT INTO members VALUES (%s, %s, %s, %s, NULL)"
_LEAVE: Final = "UPDATE members SET gone = %s WHERE thread = %s AND version = %s"
_NEWEST: Final = (
    "SELECT version, task FROM members WHERE thread = %s AND gone IS NULL ORDER BY version DESC LIMIT 1"
)
_ROWS: Final = """UPDATE tasks t SET epoch = u.epoch, driver = u.driver, state = u.state, mark_seq = u.mark_seq,
mark_digest = u.mark_digest FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::bigint[], %b::bytea[])
AS u(id, epoch, driver, state, mark_seq, mark_digest) WHERE t.id = u.id"""


@dataclass(slots=True)
class Owner:
    """A process as it owns tasks, between transactions.

    Args:
        process: who it is.
        row: its row of `drivers`; None until it first owns a task.
        held: the tasks it owns.
    """

    process: Process
    row: int | None = None
    held: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _Head:
    """Where a task stands in this transaction. `new` is to be inserted, `base` its base's row."""

    row: int
    epoch: int
    driver: int | None
    deleted: bool
    state: str
    seq: int
    mark: int | None = None
    mark_digest: bytes | None = None
    digest: bytes | None = None
    """of the last record; None until it is asked for"""
    new: NewTask | None = None
    base: int | None = None


class Group:
    """Items that are written in one transaction: `begin`, `apply` each, `write`.

    Args:
        connection: in no transaction.
        owner: this process.
        channel: the name of the schema's channel and locks.
    """

    def __init__(self, connection: Connection, owner: Owner, channel: str) -> None:
        self._connection = connection
        self._owner = owner
        self._channel = channel
        self._driver = owner.row
        self._heads: dict[str, _Head] = {}
        self._ids: list[int] = []
        self._drivers: dict[int, tuple[Any, ...]] = {}
        self._unread: defaultdict[int, set[str]] = defaultdict(set)
        self._posted: set[tuple[int, str]] = set()
        self._versions: dict[str, int] = {}
        self._known_threads: set[str] = set()
        self._clear()
        self.moves: list[tuple[str, bool]] = []
        self.urgent = False
        """whether others should hear of this at once"""
        self.mail = False
        """whether something was put into an inbox"""

    def _clear(self) -> None:
        """Forget what was to be written."""
        self._new: list[_Head] = []
        self._records: list[tuple[Any, ...]] = []
        self._blobs: dict[str, bytes] = {}
        self._refs: list[tuple[int, int, str]] = []
        self._taken: list[tuple[int, str]] = []
        self._posts: list[tuple[Any, ...]] = []
        self._moved: dict[str, int] = {}
        self._joined: list[tuple[str, int, int, int]] = []
        self._left: list[tuple[int, str, int]] = []
        self._changed: dict[int, _Head] = {}

    # ------------------------------------------------------------------------------------------ beginning

    def begin(self, items: list[Item]) -> None:
        """Begin the transaction: lock what the items are about, then look at it."""
        commits: list[Commit] = [item.argument for item in items if item.operation == "commit"]
        claims: list[str] = [item.argument for item in items if item.operation == "claim"]
        posts: list[tuple[str, str]] = [
            (i.argument[0], i.argument[1].item_id) for i in items if i.operation == "post"
        ]
        keys = {commit.task_id for commit in commits} | set(claims) | {task for task, _ in posts}
        keys |= {item.argument[0] for item in items if item.operation == "disown"}
        keys |= {commit.create.base for commit in commits if commit.create and commit.create.base}
        tasks = list(keys)
        watchful = [commit.task_id for commit in commits if commit.seal or commit.release]
        threads = {commit.thread.thread_id for commit in commits if commit.thread}
        ask = self._connection.execute
        with self._connection.pipeline():
            ask(BEGIN)
            ask(SHARED, (self._channel,))
            versions = ask(_THREADS, (list(threads),)) if threads else None
            rows, seqs = ask(_TASKS, (tasks,)), ask(_HEADS, (tasks,))
            unread = ask(_UNREAD, (watchful,)) if watchful else None
            posted = ask(_POSTED, ([t for t, _ in posts], [k for _, k in posts])) if posts else None
            drivers = ask(_DRIVERS, (claims,)) if claims else None
            creates = sum(commit.create is not None for commit in commits)
            ids = ask(_IDS, (creates,)) if creates else None
        last: dict[int, int | None] = dict(seqs.fetchall())
        for row, key, epoch, driver, deleted, state, base_seq, mark, mark_digest in rows.fetchall():
            seq = last.get(row)
            seq = base_seq if seq is None else seq
            self._heads[key] = _Head(row, epoch, driver, deleted, state, seq, mark, mark_digest)
        for thread, version in versions.fetchall() if versions else ():
            self._versions[thread] = version
        self._known_threads = set(self._versions)
        for task, key in unread.fetchall() if unread else ():
            self._unread[task].add(key)
        self._posted = set(posted.fetchall()) if posted else set()
        self._drivers = {found[0]: found[1:] for found in drivers.fetchall()} if drivers else {}
        self._ids = [number for (number,) in ids.fetchall()] if ids else []

    def apply(self, item: Item, before: Any) -> Any:
        """Check an item and take note of what it writes; return its result, or what refused it.

        Args:
            item: what to write, one of those the transaction began with.
            before: what this gave in a transaction of which nobody knows whether it was committed; None if there
                was none. Then the item may be found written, and that is this item's own doing.
        """
        if item.operation == NOTHING:
            return None
        again = before is not None and not isinstance(before, Exception)
        try:
            match item.operation:
                case "commit":
                    return self._commit(item.argument, again=again)
                case "claim":
                    return self._claim(item.argument, cast(Claim, before) if again else None)
                case "post":
                    return self._post(*item.argument) or (again and before is True)
                case _:
                    return self._disown(*item.argument)
        except (Refused, TreadleError) as refusal:
            return refusal

    # ---------------------------------------------------------------------------------------- committing

    def _commit(self, commit: Commit, *, again: bool) -> Committed:
        head, record = self._heads.get(commit.task_id), commit.record
        if head is not None and not head.deleted and self._is_written(head, commit, again=again):
            return Committed(released=head.driver is None or head.epoch != commit.epoch)
        if commit.create is not None:
            if head is not None:
                raise TaskExists(f"a task {commit.task_id} is in this store already")
            head = self._new_head(commit, commit.create)
        elif head is None or head.deleted:
            raise Fenced(f"task {commit.task_id} is not in this store (any more)")
        if head.epoch != commit.epoch or (record is not None and record.epoch != commit.epoch):
            raise Fenced(f"task {commit.task_id} is at epoch {head.epoch}, the commit at {commit.epoch}")
        if record is not None and (record.count < 1 or record.seq - record.count != head.seq):
            raise Fenced(
                f"task {commit.task_id} ends at event {head.seq}: "
                f"a record of events {record.seq - record.count + 1} to {record.seq} does not follow"
            )
        left = (commit.seal or commit.release) and bool(self._unread[head.row].difference(commit.taken))
        if commit.seal and left:
            raise InboxWaiting(f"task {commit.task_id} has unread items in its inbox")
        if commit.thread is not None:
            self._check_thread(head, commit.task_id, commit.thread)
        return self._write(head, commit, release=commit.release and not left)

    def _is_written(self, head: _Head, commit: Commit, *, again: bool) -> bool:
        """Whether this very commit was written before: one whose acknowledgement was lost is sent again."""
        record = commit.record
        if record is not None and (
            record.seq > head.seq or self._record_at(head, record.seq) != (record.epoch, record.digest)
        ):
            return False
        if commit.create is not None:
            mine = head.driver is None or head.driver == self._driver
            return again or (record is not None and head.epoch == commit.epoch and mine)
        if record is not None:
            return True
        if (
            again
            and head.epoch == commit.epoch
            and commit.thread is not None
            and commit.thread.action == "add"
        ):
            return self._newest(commit.thread.thread_id) == (commit.thread.expected + 1, head.row)
        return False  # what else a commit without a record writes may be written twice

    def _write(self, head: _Head, commit: Commit, *, release: bool) -> Committed:
        record = commit.record
        if head.new is not None and head.driver is None:
            head.driver = self._driver_row()
            self._heads[commit.task_id] = head
            self._new.append(head)
            self.moves.append((commit.task_id, True))
        if record is not None:
            blobs = len(record.blobs)
            self._records.append(
                (head.row, record.seq, record.count, record.epoch, blobs, record.digest, record.data)
            )
            head.seq, head.digest = record.seq, record.digest
            for digest, data in record.blobs.items():
                self._blobs.setdefault(digest, data)
                self._refs.append((head.row, record.seq, digest))
        self._taken += [(head.row, key) for key in commit.taken]
        self._unread[head.row].difference_update(commit.taken)
        if commit.thread is not None:
            self._change_thread(head, commit.thread)
        if commit.state is not None or release or commit.create is not None:
            self._set_row(head, commit.task_id, commit.state, release=release)
        return Committed(released=release)

    def _set_row(self, head: _Head, key: str, state: str | None = None, *, release: bool = False) -> None:
        """Change a task's row, and with it where its journal ends."""
        head.mark, head.mark_digest = head.seq, self._digest(head)
        head.state = head.state if state is None else state
        if release:
            head.driver = None
            self.moves.append((key, False))
            self.urgent = True
        self._changed[head.row] = head

    def _new_head(self, commit: Commit, new: NewTask) -> _Head:
        base = None if new.base is None else self._listed(new.base)
        if base is not None and new.base_seq > base.seq:
            raise Fenced(f"task {new.base} ends at event {base.seq}, no fork can begin at {new.base_seq}")
        head = _Head(
            self._ids.pop(), commit.epoch, None, False, "created", 0 if base is None else new.base_seq
        )
        head.new, head.base = new, None if base is None else base.row
        return head

    def _record_at(self, head: _Head, seq: int) -> Any:
        self._flush()
        asked = self._connection.execute(
            "SELECT epoch, digest FROM records WHERE task = %s AND seq = %s", (head.row, seq)
        )
        return asked.fetchone()

    def _digest(self, head: _Head) -> bytes:
        """The digest of the record that holds a task's last event."""
        if head.digest is None:
            row, seq = (head.base, head.seq) if head.new is not None else (head.row, head.seq)
            if row is not None:
                self._flush()
            head.digest = b"" if row is None else postgres_reading.digest_at(self._connection, row, seq)
        return head.digest

    # ------------------------------------------------------------------------------------------- threads

    def _check_thread(self, head: _Head, key: str, change: ThreadChange) -> None:
        if change.action == "add":
            version = self._versions.get(change.thread_id, 0)
            if version != change.expected:
                raise ThreadMoved(version)
            return
        newest = self._newest(change.thread_id)
        if newest is None or newest[1] != head.row:
            raise AlreadyFinalized(
                f"newer words follow those of task {key} in thread {change.thread_id!r}: fork it instead",
                task_id=key,
            )

    def _newest(self, thread: str) -> Any:
        """Version and task of a thread's newest member."""
        self._flush()
        return self._connection.execute(_NEWEST, (thread,)).fetchone()

    def _change_thread(self, head: _Head, change: ThreadChange) -> None:
        thread = change.thread_id
        version = self._versions[thread] = self._moved[thread] = self._versions.get(thread, 0) + 1
        if change.action == "add":
            self._joined.append((thread, version, head.row, head.seq))
        else:
            newest = self._newest(thread)[0]  # may write what was taken note of so far
            self._left.append((version, thread, newest))

    # ----------------------------------------------------------------------------------------- ownership

    def _claim(self, key: str, before: Claim | None) -> Claim:
        head = self._listed(key)
        if before is not None and head.epoch == before.epoch and head.driver == self._driver_row():
            self.moves.append((key, True))
            return before
        if head.driver is not None:
            self._refuse_if_alive(key, head.driver)
        if head.mark is not None and head.seq < head.mark:
            raise missing_tail(key, head.seq, head.mark)
        if head.seq == head.mark and self._digest(head) != head.mark_digest:
            raise replaced_tail(key, head.seq)
        head.driver = self._driver_row()
        head.epoch += 1
        self._set_row(head, key)
        self.moves.append((key, True))
        return Claim(head.epoch, head.seq, self._digest(head))

    def _disown(self, key: str, epoch: int) -> None:
        """Give back a claim nobody waited for."""
        head = self._heads.get(key)
        if head is not None and head.epoch == epoch and not head.deleted:
            self._set_row(head, key, release=True)

    def _post(self, key: str, item: InboxItem) -> bool:
        row = self._listed(key).row
        if (row, item.item_id) in self._posted:
            return False
        self._posted.add((row, item.item_id))
        self._unread[row].add(item.item_id)
        self._posts.append((row, item.item_id, item.kind, item.created, json.dumps(item.data)))
        self.urgent = self.mail = True
        return True

    def _listed(self, key: str) -> _Head:
        head = self._heads.get(key)
        if head is None or head.deleted:
            raise TaskNotFound(f"no task {key} in this store")
        return head

    def _refuse_if_alive(self, key: str, driver: int) -> None:
        if driver == self._driver:
            me = self._owner.process
            raise TaskBusy(f"task {key} is driven by this process {me.pid} on {me.host}", task_id=key)
        found = self._drivers.get(driver)
        if found is not None and postgres_reading.is_alive(*found):
            raise TaskBusy(f"task {key} is driven by process {found[2]} on {found[0]}", task_id=key)

    def _driver_row(self) -> int:
        """The row of this process, written when it owned nothing so far: what it owns begins with a whole lease."""
        if self._driver is None or not (self._owner.held or any(owned for _, owned in self.moves)):
            p = self._owner.process
            values = (p.key, p.host, p.boot, p.pid, p.started, LEASE_SECONDS)
            found = self._connection.execute(_DRIVER, values).fetchone()
            assert found is not None
            self._driver = found[0]
        return cast(int, self._driver)

    # ------------------------------------------------------------------------------------------- writing

    def write(self, *also: tuple[LiteralString, tuple[Any, ...]]) -> None:
        """Write what was taken note of, run other statements, commit: all in one go."""
        with self._connection.pipeline():
            self._send()
            for statement, values in also:
                self._connection.execute(statement, values)
            self._connection.execute("COMMIT")
        self._owner.row = self._driver
        for key, owned in self.moves:
            (self._owner.held.add if owned else self._owner.held.discard)(key)

    def _flush(self) -> None:
        """Write what was taken note of, so that a question to the database counts it."""
        if self._records or self._changed or self._joined or self._left:
            with self._connection.pipeline():
                self._send()

    def _send(self) -> None:
        """Send what was taken note of; rows that others may insert too go in one order."""
        run, many = self._connection.execute, self._connection.cursor().executemany
        if self._new:
            many(_CREATE, [_created(head) for head in sorted(self._new, key=_key)])
        if self._records:
            run(_APPEND, _columns(self._records))
        if self._blobs:
            many(_BLOB, sorted(self._blobs.items()))
            run(_REFER, _columns(self._refs))
        if self._posts:
            many(_POST, self._posts)
        if self._taken:
            run(_TAKE, _columns(self._taken))
        for thread, version in sorted(self._moved.items()):
            run(
                *(
                    (_MOVE, (version, thread))
                    if thread in self._known_threads
                    else (_THREAD, (thread, version))
                )
            )
        self._known_threads.update(self._moved)
        if self._joined:
            many(_JOIN, self._joined)
        if self._left:
            many(_LEAVE, self._left)
        new = {head.row for head in self._new}
        changed = [head for row, head in self._changed.items() if row not in new]
        if changed:
            run(_ROWS, _columns([_row(head) for head in changed]))
        for head in self._new:
            head.new = None
        self._clear()


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _key(head: _Head) -> str:
    assert head.new is not None
    return head.new.task_id


def _created(head: _Head) -> tuple[Any, ...]:
    new = head.new
    assert new is not None
    return (
        *(head.row, new.task_id, new.agent, new.thread_id, head.state, new.created, head.epoch, head.driver),
        *(new.parent, head.base, new.base_seq, json.dumps(new.labels), head.mark, head.mark_digest),
    )


def _row(head: _Head) -> tuple[Any, ...]:
    return head.row, head.epoch, head.driver, head.state, head.mark, head.mark_digest
