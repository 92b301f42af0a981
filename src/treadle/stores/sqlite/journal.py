"""Write one item to a journal file: its checks and statements, in a transaction that the writer began.

Every item is checked before its first write. So a refused one needs no savepoint and does not affect others of its
group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from treadle.core.data import mutable
from treadle.ports import (
    AT_ONCE,
    Claim,
    Commit,
    Committed,
    InboxItem,
    JournalEnd,
    NewTask,
    QueuePosition,
    Record,
    TaskFigures,
    TaskRow,
    ThreadMember,
    ThreadMoved,
)
from treadle.stores import rules
from treadle.stores.listing import figures_column, label_rows
from treadle.stores.processes import LEASE_SECONDS, Process
from treadle.stores.rules import IN_PARALLEL, QueueEntry
from treadle.stores.sql.deletion import Deletion
from treadle.stores.sqlite import reading, thread_queue
from treadle.stores.sqlite.changes import FileChanges
from treadle.stores.sqlite.dialect import SQLITE, Statements
from treadle.stores.sqlite.lease import Lease
from treadle.stores.sqlite.schema import Connection

CACHED_HEADS = 10_000

_LOAD = """SELECT id, epoch, driver, deleted, coalesce((SELECT max(seq) FROM records WHERE task = t.id), base_seq),
mark_seq, mark_digest, format FROM tasks t WHERE key = ?"""
_APPEND = "INSERT INTO records(task, seq, count, epoch, blobs, digest, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
_CREATE = """INSERT INTO tasks(key, agent, thread, state, created, epoch, driver, parent, base, base_seq, labels,
mark_seq, mark_digest, turn, format, figures, search) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_RESTORE = """INSERT INTO tasks(key, agent, thread, state, created, epoch, deleted, parent, base, base_seq, labels,
mark_seq, mark_digest, wanted, format, figures, search)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LABEL = "INSERT INTO task_labels(name, value, created, key) VALUES (?, ?, ?, ?)"
_GRANT = "INSERT OR IGNORE INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FORMAT = "UPDATE tasks SET format = ? WHERE id = ?"
_SET_TURN = "UPDATE tasks SET turn = ?1 WHERE id = ?2 AND turn IS NOT ?1"  # an unchanged place is not written
_WANTED = "SELECT wanted FROM tasks WHERE id = ?"
_CLAIM = """UPDATE tasks SET epoch = ?, driver = ?, mark_seq = ?, mark_digest = ?, turn = ?, wanted = ?
WHERE id = ?"""


@mutable
class _Head:
    """The cached state of a task. `row` is 0 for a task that does not exist yet."""

    row: int
    epoch: int
    driver: int | None
    deleted: bool
    seq: int
    mark: int | None = None
    mark_digest: bytes | None = None
    format: int = 1
    digest: bytes | None = None
    """the digest of the last record; None until it is needed"""


class Journal:
    """The write side of one file, for one process; used by the writer thread alone.

    It caches states of tasks. After a write of another connection, or a rollback, the writer calls `forget`.
    """

    def __init__(
        self, connection: Connection, process: Process, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self._connection = connection
        self._sql = Statements(connection)
        self._heads: dict[str, _Head] = {}
        self.lease = Lease(connection, process, lease_seconds)
        self.changes = FileChanges(connection)

    def forget(self) -> None:
        """Drop cached heads, since another connection has written."""
        self._heads.clear()

    def rolled_back(self) -> None:
        """Drop the cached values of a rolled-back transaction."""
        self._heads.clear()
        self.lease.rolled_back()

    # ---------------------------------------------------------------------------------------- committing

    def commit(self, commit: Commit) -> Committed:
        """Check and write a commit; see `JournalStore.commit`."""
        head = self._head(commit.task_id)
        earlier, is_own = None, True
        if head is not None and rules.may_be_repeated(commit, head):
            earlier = self._record_at(head, commit)
            is_own = head.driver is None or head.driver == self.lease.driver
        if not rules.admit(commit, head, earlier, is_own=is_own):
            assert head is not None
            return self._answer_again(head, commit)
        if commit.create is not None:
            head = self._new_head(commit, commit.create)
        assert head is not None
        released = (commit.seal or commit.release) and rules.releases(commit, self._unread(head))
        thread = thread_queue.check(self._sql, head.row, commit) if commit.thread is not None else None
        entry = self._entry(head, commit) if commit.enter is not None else None
        return self._write(head, commit, thread, entry, release=released)

    def _answer_again(self, head: _Head, commit: Commit) -> Committed:
        """Answer a commit that was written before; the task's place in the queue may have changed since."""
        if head.driver is None or head.epoch != commit.epoch:
            return Committed(released=True)
        entry = self._entry(head, commit)
        if entry is not None:
            self._sql.run(_SET_TURN, entry.turn, head.row)
        return Committed(place=self._depose(entry) if entry is not None else None)

    def _write(
        self,
        head: _Head,
        commit: Commit,
        thread: tuple[int | None, int] | None,
        entry: QueueEntry | None,
        *,
        release: bool,
    ) -> Committed:
        if head.row == 0:
            self._create(head, commit, entry.turn if entry is not None else None)
        elif entry is not None:
            self._sql.run(_SET_TURN, entry.turn, head.row)
        if commit.format > head.format:
            head.format = commit.format
            self._sql.run(_FORMAT, head.format, head.row)
        record = commit.record
        if record is not None:
            self._append(head, record)
        for item_id in commit.taken:
            self._sql.run(
                "UPDATE inbox SET taken = 1, data = NULL WHERE task = ? AND key = ?", head.row, item_id
            )
        for grant in commit.grants:
            self._sql.run(_GRANT, *rules.grant_columns(grant))
        if commit.thread is not None and thread is not None:
            thread_queue.apply(self._sql, head.row, head.seq, commit.thread, *thread)
        state, figures = (commit.state, commit.figures) if commit.create is None else (None, None)
        if state is not None or figures is not None or release:
            self._set_row(head, commit.task_id, state, figures, release=release, wanted=commit.due_at)
        return Committed(release, self._depose(entry) if entry is not None else None)

    def _append(self, head: _Head, record: Record) -> None:
        blobs = record.blobs
        row = (head.row, record.seq, record.count, record.epoch, len(blobs), record.digest, record.data)
        self._connection.execute(_APPEND, row)
        head.seq, head.digest = record.seq, record.digest
        if blobs:
            self._add_blobs(self._connection.last_insert_rowid(), blobs)

    def _set_row(
        self,
        head: _Head,
        key: str,
        state: str | None = None,
        figures: TaskFigures | None = None,
        *,
        release: bool = False,
        wanted: int | None = None,
    ) -> None:
        """Write a task's row, including the end of its journal; without `wanted`, that column stays unchanged."""
        sql = "UPDATE tasks SET mark_seq = ?, mark_digest = ?"
        values: list[Any] = [head.seq, self._digest(head)]
        if state is not None:
            sql += ", state = ?"
            values.append(state)
        if figures is not None:
            sql += ", figures = ?, search = ?"
            values += figures_column(figures)
        if release:
            sql += ", driver = NULL, turn = NULL, wanted = coalesce(?, wanted)"
            values.append(wanted)
            head.driver = None
            self.lease.ownership_changes.append((key, False))
        head.mark, head.mark_digest = head.seq, head.digest
        self._sql.run(f"{sql} WHERE id = ?", *values, head.row)

    def _digest(self, head: _Head) -> bytes:
        """Return the digest of the record with a task's last event."""
        if head.digest is None:
            head.digest = reading.digest_at(self._connection, head.row, head.seq)
        return head.digest

    def _head(self, key: str) -> _Head | None:
        head = self._heads.get(key)
        if head is None:
            row = self._sql.one(_LOAD, key)
            if row is None:
                return None
            if len(self._heads) >= CACHED_HEADS:
                self._heads.clear()
            head = self._heads[key] = _Head(row[0], row[1], row[2], bool(row[3]), *row[4:])
        return head

    def _new_head(self, commit: Commit, new: NewTask) -> _Head:
        if new.base is None:
            return _Head(0, commit.epoch, None, False, 0)
        base = self._listed(new.base)
        rules.check_fork(new.base, new.base_seq, base.seq)
        return _Head(0, commit.epoch, None, False, new.base_seq, format=base.format)

    def _create(self, head: _Head, commit: Commit, turn: int | None) -> None:
        new = commit.create
        assert new is not None
        base = None if new.base is None else self._listed(new.base).row
        if commit.record is not None:
            mark = (commit.record.seq, commit.record.digest)
        else:
            shared = None if base is None else reading.digest_at(self._connection, base, new.base_seq)
            mark = (new.base_seq, shared or b"")
        head.driver = self.lease.row()
        self._sql.run(
            _CREATE,
            *(new.task_id, new.agent, new.thread_id, commit.state or "created", new.created, commit.epoch),
            *(head.driver, new.parent, base, new.base_seq, json.dumps(new.labels), *mark, turn),
            *(head.format, *figures_column(commit.figures)),
        )
        head.row = self._connection.last_insert_rowid()
        self._add_labels(new.labels, new.created, new.task_id)
        self._heads[new.task_id] = head
        self.lease.ownership_changes.append((new.task_id, True))

    def _add_labels(self, labels: dict[str, str], created: int, key: str) -> None:
        for row in label_rows(labels, created, key):
            self._sql.run(_LABEL, *row)

    def _record_at(self, head: _Head, commit: Commit) -> rules.RecordKey | None:
        """Return epoch and digest of the record that ends at the same event as the commit's record."""
        assert commit.record is not None
        return self._sql.one(
            "SELECT epoch, digest FROM records WHERE task = ? AND seq = ?", head.row, commit.record.seq
        )

    def _unread(self, head: _Head) -> list[str]:
        """Return the ids of the inbox items that no earlier commit took."""
        rows = self._connection.execute("SELECT key FROM inbox WHERE task = ? AND taken = 0", (head.row,))
        return [key for (key,) in rows]

    def _add_blobs(self, record: int, blobs: dict[str, bytes]) -> None:
        for digest, data in blobs.items():
            row = self._sql.one("SELECT id FROM blobs WHERE digest = ?", digest)
            blob = (
                row[0]
                if row
                else self._sql.insert("INSERT INTO blobs(digest, data) VALUES (?, ?)", digest, data)
            )
            self._sql.run("INSERT INTO blob_refs(record, blob) VALUES (?, ?)", record, blob)

    # ------------------------------------------------------------------------------------------- threads

    def _entry(self, head: _Head, commit: Commit) -> QueueEntry | None:
        """Return the place in the queue that a commit asks for; raise `ThreadBusy`."""
        if commit.enter is None or (head.row and head.driver is None):
            return None
        if commit.enter == "parallel":
            return IN_PARALLEL
        if commit.create is not None and head.row == 0:
            thread, turn = commit.create.thread_id, None
        else:
            thread, turn = self._sql.one("SELECT thread, turn FROM tasks WHERE id = ?", head.row)
        return thread_queue.enter(
            self._connection, thread, head.row, turn, commit.enter, self.lease.is_living
        )

    def _depose(self, entry: QueueEntry) -> QueuePosition | None:
        """Take the thread from holders with dead drivers; return the position of the task that now has it."""
        for task in entry.deposed:
            thread_queue.depose(self._connection, task)
            self._heads.pop(task.task_id, None)
        return entry.position

    # ----------------------------------------------------------------------------------------- ownership

    def claim(self, claimed: tuple[str, bool]) -> Claim:
        """Become a task's owner; `claimed` is the task and whether it enters its thread. See `JournalStore.claim`."""
        key, enter = claimed
        head = self._listed(key)
        if head.driver is not None:
            self.lease.refuse_if_alive(key, head.driver)
        end = JournalEnd(head.seq, self._digest(head))
        mark = None if head.mark is None else JournalEnd(head.mark, head.mark_digest or b"")
        rules.check_claim(key, head.format, end, mark)
        is_taken_over = head.driver is not None
        (wanted,) = (AT_ONCE,) if is_taken_over else self._sql.one(_WANTED, head.row)
        head.driver = self.lease.row()
        head.epoch += 1
        head.mark, head.mark_digest = end.seq, end.digest
        position, turn = None, None
        if enter:
            (thread,) = self._sql.one("SELECT thread FROM tasks WHERE id = ?", head.row)
            entry = thread_queue.enter(
                self._connection, thread, head.row, None, "enqueue", self.lease.is_living
            )
            position, turn = self._depose(entry), entry.turn
        self._sql.run(_CLAIM, head.epoch, head.driver, end.seq, end.digest, turn, wanted, head.row)
        self.lease.ownership_changes.append((key, True))
        return Claim(head.epoch, end.seq, end.digest, position, wanted, is_taken_over)

    def disown(self, unwanted: tuple[str, int]) -> None:
        """Give back a claim that no caller waits for; `unwanted` is the task and its epoch."""
        key, epoch = unwanted
        head = self._head(key)
        if head is not None and head.epoch == epoch:
            self._set_row(head, key, release=True)

    def post(self, posted: tuple[str, InboxItem]) -> bool:
        """Put an item into a task's inbox; see `JournalStore.post`."""
        key, item = posted
        row = self._listed(key).row
        if self._sql.one("SELECT 1 FROM inbox WHERE task = ? AND key = ?", row, item.item_id):
            return False
        self._sql.run(
            "INSERT INTO inbox(task, key, kind, created, data) VALUES (?, ?, ?, ?, ?)",
            *(row, item.item_id, item.kind, item.created, json.dumps(item.data)),
        )
        return True

    def revoke(self, revoked: tuple[str, int, str | None]) -> bool:
        """Revoke an approval for later calls; see `JournalStore.revoke`."""
        key, time, by = revoked
        self._sql.run(
            "UPDATE grants SET revoked = ?, revoked_by = ? WHERE id = ? AND revoked IS NULL", time, by, key
        )
        if self._connection.changes():
            return True
        if self._sql.one("SELECT 1 FROM grants WHERE id = ?", key) is None:
            raise rules.grant_not_found(key)
        return False

    def restore(self, restored: tuple[TaskRow, Iterable[Record], Sequence[InboxItem]]) -> None:
        """Insert a task with its whole journal; see `JournalStore.restore`."""
        row, records, inbox = restored
        if self._head(row.task_id) is not None:
            raise rules.task_exists(row.task_id)
        base = None if row.base is None else self._head(row.base)
        if row.base is not None and base is None:
            raise rules.task_not_found(row.base)
        if row.base is not None and base is not None:
            rules.check_fork(row.base, row.base_seq, base.seq)
        # The records come from outside and may fail half-way. Only here, rows are written before all are checked.
        self._sql.run("SAVEPOINT restoring")
        try:
            min_format = max(row.format, 1 if base is None else base.format)
            head = _Head(
                self._restored_row(row, base, min_format), row.epoch, None, row.deleted, row.base_seq
            )
            for record in records:
                self._append(head, record)
            for item in inbox:
                self.post((row.task_id, item))
        except BaseException:
            self._heads.pop(row.task_id, None)
            self._sql.run("ROLLBACK TO restoring")
            raise
        finally:
            self._sql.run("RELEASE restoring")

    def _restored_row(self, row: TaskRow, base: _Head | None, min_format: int) -> int:
        mark = (None, None) if row.mark is None else (row.mark.seq, row.mark.digest)
        if not row.deleted:
            self._add_labels(row.labels, row.created, row.task_id)
        return self._sql.insert(
            _RESTORE,
            *(row.task_id, row.agent, row.thread_id, row.state, row.created, row.epoch, row.deleted),
            *(row.parent, None if base is None else base.row, row.base_seq, json.dumps(row.labels), *mark),
            *(row.due_at, min_format, *figures_column(row.figures)),
        )

    def restore_thread(self, restored: tuple[str, int, Sequence[ThreadMember]]) -> None:
        """Insert a thread; see `JournalStore.restore_thread`."""
        key, version, members = restored
        thread_row = self._sql.one("SELECT version FROM threads WHERE key = ?", key)
        if thread_row is not None:
            raise ThreadMoved(thread_row[0])
        heads = [self._head(member.task_id) for member in members]
        for member, head in zip(members, heads, strict=True):
            if head is None:
                raise rules.task_not_found(member.task_id)
        thread = self._sql.insert("INSERT INTO threads(key, version) VALUES (?, ?)", key, version)
        for member, head in zip(members, heads, strict=True):
            assert head is not None
            values = (thread, member.version, head.row, member.seq, member.gone, member.covers)
            self._sql.run("INSERT INTO members VALUES (?, ?, ?, ?, ?, ?)", *values)

    def delete(self, key: str) -> list[str]:
        """Remove a task, and return the ids of all tasks deleted with it; see `JournalStore.delete`."""
        return self._forget_deleted(Deletion(SQLITE, self._connection, self.lease.driver).task(key))

    def delete_thread(self, key: str) -> list[str]:
        """Remove a thread and all its tasks, and return their ids; see `JournalStore.delete_thread`."""
        return self._forget_deleted(Deletion(SQLITE, self._connection, self.lease.driver).thread(key))

    def _forget_deleted(self, deleted: list[str]) -> list[str]:
        """Count a deletion and drop cached heads, since others of its thread may have changed too."""
        self._sql.run("UPDATE deletions SET times = times + 1")
        self._heads.clear()
        return deleted

    def _listed(self, key: str) -> _Head:
        head = self._head(key)
        if head is None or head.deleted:
            raise rules.task_not_found(key)
        return head
