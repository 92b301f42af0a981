"""Collect the rows that a group of items writes to a PostgreSQL schema, and send them in a few statements."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from operator import itemgetter
from typing import Any, Final

from treadle.core.data import mutable
from treadle.ports import InboxItem, NewTask, Record, TaskFigures
from treadle.stores.listing import figures_column, label_rows
from treadle.stores.postgres.schema import BoundedConnection

_CREATE: Final = """INSERT INTO tasks(id, key, agent, thread, state, created, epoch, driver, parent, base, base_seq,
labels, mark_seq, mark_digest, turn, wanted, format, figures, search)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %s, %s, %s, %s, %s)"""
_LABEL: Final = "INSERT INTO task_labels(name, value, created, key) VALUES (%s, %s, %s, %s)"
_APPEND: Final = """INSERT INTO records(task, seq, count, epoch, blobs, digest, data)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::int[], %b::bytea[], %b::bytea[])"""
_BLOB: Final = "INSERT INTO blobs(digest, data) VALUES (%s, %b) ON CONFLICT DO NOTHING"
_REFER: Final = "INSERT INTO blob_refs SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[])"
_TAKE: Final = """UPDATE inbox i SET taken = true, data = NULL FROM unnest(%b::bigint[], %b::text[]) AS u(task, key)
WHERE i.task = u.task AND i.key = u.key"""
_POST: Final = "INSERT INTO inbox(task, key, kind, created, data) VALUES (%s, %s, %s, %s, %s)"
_GRANT: Final = (
    "INSERT INTO grants VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_THREAD: Final = "INSERT INTO threads(version, key) VALUES (%s, %s)"
_MOVE: Final = "UPDATE threads SET version = %s WHERE key = %s"
_JOIN: Final = "INSERT INTO members VALUES (%s, %s, %s, %s, NULL, %s)"
_LEAVE: Final = "UPDATE members SET gone = %s WHERE thread = %s AND version = %s"
_ROWS: Final = """UPDATE tasks t SET epoch = u.epoch, driver = u.driver, state = u.state, mark_seq = u.mark_seq,
mark_digest = u.mark_digest, turn = u.turn, wanted = u.wanted, format = u.format,
figures = coalesce(u.figures, t.figures), search = coalesce(u.search, t.search)
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[],
%b::text[], %b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[], %b::text[])
AS u(id, epoch, driver, state, mark_seq, mark_digest, turn, wanted, format, figures, search) WHERE t.id = u.id"""


@mutable
class Head:
    """The state of a task in this transaction. With `new` it will be inserted; `base` is the row it was forked from."""

    row: int
    epoch: int
    driver: int | None
    deleted: bool
    state: str
    seq: int
    mark: int | None
    mark_digest: bytes | None
    thread: str
    turn: int | None = None
    wanted: int = 0
    format: int = 1
    digest: bytes | None = None
    """the digest of the last record; None until it is needed"""
    new: NewTask | None = None
    base: int | None = None
    figures: TaskFigures | None = None
    """figures to write; None keeps those of the row"""


@mutable
class Batch:
    """Rows to write; `send` writes and drops them.

    Args:
        changed: heads to update, by row.
        moved: new versions of threads.
        granted: approvals for later calls.
        joined: new members: thread, version, task, last event, and the version that a summary covers.
        left: removed members: the version that removes them, the thread, their own version.
    """

    changed: dict[int, Head] = field(default_factory=dict[int, Head])
    moved: dict[str, int] = field(default_factory=dict[str, int])
    granted: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    joined: list[tuple[str, int, int, int, int]] = field(default_factory=list[tuple[str, int, int, int, int]])
    left: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    _new: list[Head] = field(default_factory=list[Head])
    _records: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    _blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _refs: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    _taken: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _posts: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    @property
    def is_seen(self) -> bool:
        """Whether a query would miss rows that are not sent yet."""
        return bool(self._records or self.changed or self.joined or self.left or self.granted)

    def create(self, head: Head) -> None:
        """Add a new task."""
        self._new.append(head)

    def append(self, head: Head, record: Record) -> None:
        """Add a record, which becomes the task's last one."""
        seq = record.seq
        row = (head.row, seq, record.count, record.epoch, len(record.blobs), record.digest, record.data)
        self._records.append(row)
        for digest, data in record.blobs.items():
            self._blobs.setdefault(digest, data)
            self._refs.append((head.row, seq, digest))
        head.seq, head.digest = seq, record.digest

    def take(self, row: int, keys: Iterable[str]) -> None:
        """Mark inbox items as taken."""
        self._taken += [(row, key) for key in keys]

    def post(self, row: int, item: InboxItem) -> None:
        """Add a new inbox item."""
        self._posts.append((row, item.item_id, item.kind, item.created, json.dumps(item.data)))

    def send(self, connection: BoundedConnection, threads: set[str]) -> None:
        """Send all rows; rows that other processes may insert too are sent in a fixed order.

        Args:
            connection: a connection in a transaction, preferably in a pipeline.
            threads: the threads that have a row; threads that get one are added.
        """
        run, run_many = connection.execute, connection.cursor().executemany
        if self._new:
            run_many(_CREATE, sorted((_created(head) for head in self._new), key=itemgetter(1)))
            labels = [row for head in self._new for row in _labels(head)]
            if labels:
                run_many(_LABEL, sorted(labels))
        if self._records:
            run(_APPEND, _columns(self._records))
        if self._blobs:
            run_many(_BLOB, sorted(self._blobs.items()))
            run(_REFER, _columns(self._refs))
        if self._posts:
            run_many(_POST, self._posts)
        if self._taken:
            run(_TAKE, _columns(self._taken))
        if self.granted:
            run_many(_GRANT, sorted(self.granted))
        for thread, version in sorted(self.moved.items()):
            run(_MOVE if thread in threads else _THREAD, (version, thread))
        threads.update(self.moved)
        if self.joined:
            run_many(_JOIN, self.joined)
        if self.left:
            run_many(_LEAVE, self.left)
        changed = [head for head in self.changed.values() if head.new is None]
        if changed:
            run(_ROWS, _columns([_row(head) for head in changed]))
        for head in self._new:
            head.new = None
        self._forget()

    def _forget(self) -> None:
        for rows in (
            self.changed,
            self.moved,
            self.joined,
            self.left,
            self._new,
            self._records,
            self._blobs,
        ):
            rows.clear()
        for rows in (self._refs, self._taken, self._posts, self.granted):
            rows.clear()


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _created(head: Head) -> tuple[Any, ...]:
    new = head.new
    assert new is not None
    return (
        *(head.row, new.task_id, new.agent, new.thread_id, head.state, new.created, head.epoch, head.driver),
        *(new.parent, head.base, new.base_seq, json.dumps(new.labels), head.mark, head.mark_digest),
        *(head.turn, head.wanted, head.format, *figures_column(head.figures)),
    )


def _labels(head: Head) -> list[tuple[str, str, int, str]]:
    assert head.new is not None
    return label_rows(head.new.labels, head.new.created, head.new.task_id)


def _row(head: Head) -> tuple[Any, ...]:
    row = (head.row, head.epoch, head.driver, head.state, head.mark, head.mark_digest)
    return (*row, head.turn, head.wanted, head.format, *figures_column(head.figures))
