"""Deleting tasks from a PostgreSQL schema: what goes, what stays for forks and threads, what goes with the last."""

from __future__ import annotations

from typing import Final, Literal

from treadle.core.data import mutable
from treadle.errors import TaskBusy, TaskNotFound, ThreadNotFound
from treadle.stores import postgres_reading
from treadle.stores.postgres_schema import Connection

_FAMILY: Final = """WITH RECURSIVE family(id, key) AS (
  SELECT id, key FROM tasks WHERE {root} = %s AND NOT deleted
  UNION SELECT t.id, t.key FROM family f JOIN tasks t ON t.parent = f.key WHERE NOT t.deleted
) SELECT t.id, t.key, t.driver, t.thread, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN family USING (id) LEFT JOIN drivers d ON d.id = t.driver"""
_BURY: Final = """UPDATE tasks SET deleted = true, state = '', agent = '', labels = '{}', driver = NULL,
epoch = epoch + 1, mark_seq = NULL, mark_digest = NULL, turn = NULL, wanted = 0 WHERE id = ANY(%s)"""
_BASES: Final = """WITH RECURSIVE chain(id) AS (
  SELECT unnest(%s::bigint[]) UNION SELECT base FROM tasks JOIN chain USING (id) WHERE base IS NOT NULL
) SELECT DISTINCT thread FROM tasks JOIN chain USING (id)"""
_THREADS: Final = "SELECT DISTINCT thread FROM members WHERE task = ANY(%s)"
_THREAD_IN_USE: Final = """SELECT 1 FROM tasks WHERE thread = %s AND NOT deleted
UNION ALL SELECT 1 FROM tasks t JOIN tasks f ON f.base = t.id
WHERE t.thread = %s AND (NOT f.deleted OR f.thread <> t.thread)
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


@mutable
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
    if not _delete(connection, "key", key, mine):
        raise TaskNotFound(f"no task {key} in this store")


def delete_thread(connection: Connection, thread: str, mine: int | None) -> None:
    """Take all tasks of a thread off the list, with their children, then drop all that nobody refers to any more.

    Args:
        connection: in a transaction that has the store for itself.
        thread: the thread.
        mine: the row of this process among the drivers.
    """
    version = connection.execute("SELECT version FROM threads WHERE key = %s", (thread,)).fetchone()
    if not _delete(connection, "thread", thread, mine) and (version is None or not version[0]):
        raise ThreadNotFound(f"no thread {thread!r} in this store")


def _delete(connection: Connection, root: Literal["key", "thread"], name: str, mine: int | None) -> bool:
    """Delete the tasks whose key or thread is this one; False when none is listed."""
    members: list[_Member] = []
    sql = _FAMILY.format(root=root)
    for row, member, driver, thread, *facts in connection.execute(sql, (name,)).fetchall():
        if driver is not None and driver == mine:
            raise TaskBusy(
                f"task {member} is driven by this process {facts[2]} on {facts[0]}", task_id=member
            )
        if driver is not None and facts[0] is not None and postgres_reading.is_alive(*facts):
            raise TaskBusy(f"task {member} is driven by process {facts[2]} on {facts[0]}", task_id=member)
        members.append(_Member(row, member, thread))
    rows = [member.row for member in members]
    threads = {thread for (thread,) in connection.execute(_BASES, (rows,))}
    threads |= {thread for (thread,) in connection.execute(_THREADS, (rows,))}
    threads |= {name} if root == "thread" else set()
    connection.execute("DELETE FROM inbox WHERE task = ANY(%s)", (rows,))
    connection.execute(_BURY, (rows,))
    for row in rows:
        _collect(connection, row)
    # With a fork that goes, the thread it began with may go too.
    while freed := _drop_threads(connection, threads):
        for row in freed:
            _collect(connection, row)
    return bool(members)


def _drop_threads(connection: Connection, threads: set[str]) -> list[int]:
    """Forget those threads that nobody needs any more; return the rows of those who were members of them."""
    freed: list[int] = []
    for thread in threads:
        if connection.execute(_THREAD_IN_USE, (thread, thread, thread)).fetchone():
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
