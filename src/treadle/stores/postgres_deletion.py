"""Deleting tasks from a PostgreSQL schema: what goes, what stays for forks and threads, what goes with the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from treadle.errors import TaskBusy, TaskNotFound
from treadle.stores import postgres_reading
from treadle.stores.postgres_schema import Connection

_FAMILY: Final = """WITH RECURSIVE family(id, key) AS (
  SELECT id, key FROM tasks WHERE key = %s AND NOT deleted
  UNION SELECT t.id, t.key FROM family f JOIN tasks t ON t.parent = f.key WHERE NOT t.deleted
) SELECT t.id, t.key, t.driver, t.thread, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN family USING (id) LEFT JOIN drivers d ON d.id = t.driver"""
_BURY: Final = """UPDATE tasks SET deleted = true, state = '', agent = '', labels = '{}', driver = NULL,
epoch = epoch + 1, mark_seq = NULL, mark_digest = NULL, turn = NULL, wanted = false WHERE id = ANY(%s)"""
_THREADS: Final = "SELECT DISTINCT thread FROM members WHERE task = ANY(%s)"
_THREAD_IN_USE: Final = """SELECT 1 FROM tasks WHERE thread = %s AND NOT deleted
UNION ALL SELECT 1 FROM members m JOIN tasks t ON t.id = m.task
WHERE m.thread = %s AND m.gone IS NULL AND NOT t.deleted LIMIT 1"""
_NEEDED: Final = """SELECT max(seq) FROM (
  SELECT base_seq AS seq FROM tasks WHERE base = %s
  UNION ALL SELECT seq FROM members WHERE task = %s AND gone IS NULL) AS needed"""
_DROP_RECORDS: Final = "DELETE FROM records WHERE task = %s AND seq - count >= %s"
_REFERRED: Final = """SELECT DISTINCT r.digest FROM blob_refs r JOIN records s ON s.task = r.task AND s.seq = r.seq
WHERE s.task = %s AND s.seq - s.count >= %s"""
_DROP_BLOBS: Final = """DELETE FROM blobs b WHERE digest = ANY(%s)
AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.digest = b.digest)"""


@dataclass(slots=True)
class _Member:
    """A task that is to go."""

    row: int
    key: str
    thread: str


def delete(connection: Connection, key: str, mine: int | None) -> None:
    """Take a task and its children off the list, then drop all that nobody refers to any more.

    Args:
        connection: in a transaction that has the store for itself.
        key: the task.
        mine: the row of this process among the drivers.
    """
    members: list[_Member] = []
    for row, member, driver, thread, *facts in connection.execute(_FAMILY, (key,)).fetchall():
        if driver is not None and driver == mine:
            raise TaskBusy(
                f"task {member} is driven by this process {facts[2]} on {facts[0]}", task_id=member
            )
        if driver is not None and facts[0] is not None and postgres_reading.is_alive(*facts):
            raise TaskBusy(f"task {member} is driven by process {facts[2]} on {facts[0]}", task_id=member)
        members.append(_Member(row, member, thread))
    if not members:
        raise TaskNotFound(f"no task {key} in this store")
    rows = [member.row for member in members]
    connection.execute("DELETE FROM inbox WHERE task = ANY(%s)", (rows,))
    connection.execute(_BURY, (rows,))
    for row in rows + _drop_threads(connection, members):
        _collect(connection, row)


def _drop_threads(connection: Connection, members: list[_Member]) -> list[int]:
    """Forget the threads that no listed task is in any more; return the rows of those who were members of them."""
    asked = connection.execute(_THREADS, ([member.row for member in members],)).fetchall()
    freed: list[int] = []
    for thread in {member.thread for member in members} | {str(thread) for (thread,) in asked}:
        if connection.execute(_THREAD_IN_USE, (thread, thread)).fetchone():
            continue
        gone = connection.execute(
            "DELETE FROM members WHERE thread = %s RETURNING task", (thread,)
        ).fetchall()
        freed += [row for (row,) in gone]
        connection.execute("DELETE FROM threads WHERE key = %s", (thread,))
    return freed


def _collect(connection: Connection, row: int | None) -> None:
    """Drop what nobody refers to of a deleted task, and then of the task it was forked from."""
    while row is not None:
        found = connection.execute("SELECT base FROM tasks WHERE id = %s AND deleted", (row,)).fetchone()
        if found is None:
            return
        asked = connection.execute(_NEEDED, (row, row)).fetchone()
        needed = None if asked is None else asked[0]
        _drop_records(connection, row, 0 if needed is None else needed)
        if needed is not None:
            return
        connection.execute("DELETE FROM members WHERE task = %s", (row,))
        connection.execute("DELETE FROM tasks WHERE id = %s", (row,))
        row = found[0]


def _drop_records(connection: Connection, row: int, keep: int) -> None:
    """Delete the records behind event `keep`, and the blobs only they referred to."""
    blobs = [digest for (digest,) in connection.execute(_REFERRED, (row, keep))]
    connection.execute(_DROP_RECORDS, (row, keep))
    if blobs:
        connection.execute(_DROP_BLOBS, (blobs,))
