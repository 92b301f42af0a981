"""Operations that lock a whole PostgreSQL schema: deletions, and restoring tasks and threads from another store.

These operations read forks, children and threads, or may fail half-way. Each has a transaction of its own. It waits
until no group is being written, and lets none begin. They are rare and short.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from treadle.ports import InboxItem, Record, TaskRow, ThreadMember, ThreadMoved
from treadle.stores import rules
from treadle.stores.listing import figures_column, label_rows
from treadle.stores.postgres.dialect import POSTGRES
from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.sql.deletion import Deletion
from treadle.stores.writer_thread import Item

OPERATIONS: Final = ("delete", "delete_thread", "restore", "restore_thread")
LOCK_EXCLUSIVE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

PAGE: Final = 500

_FIND: Final = """SELECT id, coalesce((SELECT max(seq) FROM records WHERE task = t.id), base_seq), format
FROM tasks t WHERE key = %s"""
_RESTORE: Final = """INSERT INTO tasks(id, key, agent, thread, state, created, epoch, deleted, parent, base, base_seq,
labels, mark_seq, mark_digest, wanted, format, figures, search)
VALUES (nextval('task_ids'), %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %s, %s, %s, %s) RETURNING id"""
_LABEL: Final = "INSERT INTO task_labels(name, value, created, key) VALUES (%s, %s, %s, %s)"
_APPEND: Final = "INSERT INTO records VALUES (%s, %s, %s, %s, %s, %b, %b)"
_BLOB: Final = "INSERT INTO blobs VALUES (%s, %b) ON CONFLICT DO NOTHING"
_REFER: Final = "INSERT INTO blob_refs VALUES (%s, %s, %s)"
_POST: Final = "INSERT INTO inbox(task, key, kind, created, data) VALUES (%s, %s, %s, %s, %s)"
_THREAD: Final = """INSERT INTO threads VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET version = excluded.version WHERE threads.version = 0 RETURNING key"""


def run(connection: BoundedConnection, item: Item, own_driver: int | None) -> list[str]:
    """Run an operation and return the ids of deleted tasks; if it raises, the caller rolls the transaction back.

    Args:
        connection: a connection in a transaction that has run `LOCK_EXCLUSIVE`.
        item: the operation and its argument.
        own_driver: the row of this process in `drivers`.
    """
    match item.operation:
        case "delete":
            return Deletion(POSTGRES, connection, own_driver).task(item.argument)
        case "delete_thread":
            return Deletion(POSTGRES, connection, own_driver).thread(item.argument)
        case "restore":
            _restore(connection, *item.argument)
        case _:
            _restore_thread(connection, *item.argument)
    return []


def _restore(
    connection: BoundedConnection, row: TaskRow, records: Iterable[Record], inbox: Sequence[InboxItem]
) -> None:
    if _find(connection, row.task_id) is not None:
        raise rules.task_exists(row.task_id)
    base = None if row.base is None else _existing(connection, row.base)
    if row.base is not None and base is not None:
        rules.check_fork(row.base, row.base_seq, base[1])
    mark = (None, None) if row.mark is None else (row.mark.seq, row.mark.digest)
    values = (
        *(row.task_id, row.agent, row.thread_id, row.state, row.created, row.epoch, row.deleted),
        *(row.parent, None if base is None else base[0], row.base_seq, json.dumps(row.labels), *mark),
        *(row.due_at, max(row.format, 1 if base is None else base[2]), *figures_column(row.figures)),
    )
    restored = connection.execute(_RESTORE, values).fetchone()
    assert restored is not None
    task = int(restored[0])
    pages = iter(records)
    with connection.cursor() as cursor:
        if not row.deleted:
            cursor.executemany(_LABEL, label_rows(row.labels, row.created, row.task_id))
        while page := list(islice(pages, PAGE)):
            values = [(task, r.seq, r.count, r.epoch, len(r.blobs), r.digest, r.data) for r in page]
            cursor.executemany(_APPEND, values)
            cursor.executemany(_BLOB, [blob for r in page for blob in r.blobs.items()])
            cursor.executemany(_REFER, [(task, r.seq, digest) for r in page for digest in r.blobs])
        cursor.executemany(_POST, [(task, i.item_id, i.kind, i.created, json.dumps(i.data)) for i in inbox])


def _restore_thread(
    connection: BoundedConnection, key: str, version: int, members: Sequence[ThreadMember]
) -> None:
    thread = connection.execute("SELECT version FROM threads WHERE key = %s", (key,)).fetchone()
    if thread is not None and thread[0]:
        raise ThreadMoved(thread[0])
    rows = [_existing(connection, member.task_id)[0] for member in members]
    connection.execute(_THREAD, (key, version))
    values = [(key, m.version, row, m.seq, m.gone, m.covers) for m, row in zip(members, rows, strict=True)]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO members VALUES (%s, %s, %s, %s, %s, %s)", values)


def _find(connection: BoundedConnection, key: str) -> Any:
    """Return row, last event and format of a task, even a deleted one; None if it does not exist."""
    return connection.execute(_FIND, (key,)).fetchone()


def _existing(connection: BoundedConnection, key: str) -> Any:
    row = _find(connection, key)
    if row is None:
        raise rules.task_not_found(key)
    return row
