"""Deleting tasks from a PostgreSQL schema, together with all that only they referred to."""

from __future__ import annotations

from typing import Final, Literal

from treadle.errors import ThreadNotFound
from treadle.stores import rules
from treadle.stores.postgres import reading
from treadle.stores.postgres.schema import BoundedConnection
from treadle.stores.rules import Membership

_FAMILY: Final = """WITH RECURSIVE family(id, key) AS (
  SELECT id, key FROM tasks WHERE {root} = %s AND NOT deleted
  UNION SELECT t.id, t.key FROM family f JOIN tasks t ON t.parent = f.key WHERE NOT t.deleted
) SELECT t.id, t.key, t.parent, t.driver, d.host, d.boot, d.pid, d.started, d.lease > clock_timestamp()
FROM tasks t JOIN family USING (id) LEFT JOIN drivers d ON d.id = t.driver"""
_BURY: Final = """UPDATE tasks SET deleted = true, state = '', agent = '', labels = '{}', driver = NULL,
epoch = epoch + 1, mark_seq = NULL, mark_digest = NULL, turn = NULL, wanted = 0, figures = NULL, search = NULL
WHERE id = ANY(%s)"""
_UNLABEL: Final = "DELETE FROM task_labels l USING tasks t WHERE t.id = ANY(%s) AND l.key = t.key"
_BASES: Final = """WITH RECURSIVE chain(id) AS (
  SELECT unnest(%s::bigint[]) UNION SELECT base FROM tasks JOIN chain USING (id) WHERE base IS NOT NULL
) SELECT DISTINCT thread FROM tasks JOIN chain USING (id)"""
_THREADS: Final = "SELECT DISTINCT thread FROM members WHERE task = ANY(%s)"
_HAS_READERS: Final = """SELECT 1 FROM tasks WHERE thread = %s AND NOT deleted
UNION ALL SELECT 1 FROM tasks t JOIN tasks f ON f.base = t.id
WHERE t.thread = %s AND (NOT f.deleted OR f.thread <> t.thread) LIMIT 1"""
_HAS_MEMBERS: Final = "SELECT 1 FROM members WHERE thread = %s AND gone IS NULL LIMIT 1"
_TASKS_OF_MEMBERS: Final = "SELECT task FROM members WHERE thread = %s"
_MEMBERS: Final = """SELECT thread, version FROM members
WHERE (thread = %s OR task = ANY(%s)) AND gone IS NULL ORDER BY thread, version DESC"""
_GRANTS_OF_THREAD: Final = "DELETE FROM grants WHERE thread = %s"
_FORK_POINTS: Final = "SELECT base_seq FROM tasks WHERE base = %s"
_MEMBERSHIPS: Final = "SELECT thread, version, seq, gone IS NOT NULL FROM members WHERE task = %s"
_FIRST_VERSIONS: Final = """SELECT (SELECT min(version) FROM members WHERE thread = t.thread AND task = t.id)
FROM tasks t WHERE t.thread = %s AND t.base IS NULL
AND (NOT t.deleted OR EXISTS (SELECT 1 FROM tasks f WHERE f.base = t.id))"""
_TAKEN_OUT: Final = """SELECT DISTINCT t.id FROM members m JOIN tasks t ON t.id = m.task
WHERE m.thread = ANY(%s) AND m.gone IS NOT NULL AND t.deleted"""
_DROP_RECORDS: Final = "DELETE FROM records WHERE task = %s AND seq - count >= %s"
_REFERRED: Final = """SELECT DISTINCT r.digest FROM blob_refs r JOIN records s ON s.task = r.task AND s.seq = r.seq
WHERE s.task = %s AND s.seq - s.count >= %s"""
_DROP_BLOBS: Final = """DELETE FROM blobs b WHERE digest = ANY(%s)
AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.digest = b.digest)"""


def delete(connection: BoundedConnection, key: str, own_driver: int | None) -> list[str]:
    """Take a task and its children off the list, then drop all that is no longer referred to; return their ids.

    Args:
        connection: in a transaction that has the store for itself.
        key: the task.
        own_driver: the row of this process in `drivers`.
    """
    deleted = _delete(connection, "key", key, own_driver)
    if not deleted:
        raise rules.task_not_found(key)
    return deleted


def delete_thread(connection: BoundedConnection, thread: str, own_driver: int | None) -> list[str]:
    """Take all tasks of a thread off the list, with their children, and drop unused data; return their ids.

    Args:
        connection: in a transaction that has the store for itself.
        thread: the thread.
        own_driver: the row of this process in `drivers`.
    """
    version = connection.execute("SELECT version FROM threads WHERE key = %s", (thread,)).fetchone()
    deleted = _delete(connection, "thread", thread, own_driver)
    if not deleted and (version is None or not version[0]):
        raise ThreadNotFound(f"no thread {thread!r} in this store")
    return deleted


def _delete(
    connection: BoundedConnection, root: Literal["key", "thread"], name: str, own_driver: int | None
) -> list[str]:
    """Delete the tasks with this key or thread, with their children, and return their ids."""
    rows: list[int] = []
    family: list[tuple[int, str, str | None]] = []
    sql = _FAMILY.format(root=root)
    for row, key, parent, driver, *facts in connection.execute(sql, (name,)).fetchall():
        if driver is not None and (
            driver == own_driver or (facts[0] is not None and reading.is_alive(*facts))
        ):
            raise rules.task_busy(key, facts[2], facts[0], is_own=driver == own_driver)
        rows.append(row)
        family.append((row, key, parent))
    whole_thread = name if root == "thread" else None
    member_rows = [row for (row,) in connection.execute(_TASKS_OF_MEMBERS, (whole_thread,))]
    threads = {thread for (thread,) in connection.execute(_BASES, ([*rows, *member_rows],))}
    threads |= {thread for (thread,) in connection.execute(_THREADS, (rows,))}
    threads |= {name} if root == "thread" else set()
    connection.execute(_GRANTS_OF_THREAD, (whole_thread,))
    connection.execute("DELETE FROM inbox WHERE task = ANY(%s)", (rows,))
    connection.execute(_UNLABEL, (rows,))
    connection.execute(_BURY, (rows,))
    _take_out(connection, whole_thread, rules.subagent_tasks(family))
    _collect(connection, [*rows, *_removed_members(connection, threads)])
    # With a fork that goes, the thread it began with may go too.
    while freed := _drop_threads(connection, threads):
        _collect(connection, freed)
    return [key for _, key, _ in family]


def _take_out(connection: BoundedConnection, thread: str | None, rows: list[int]) -> None:
    """Take all members out of a thread, and these tasks out of theirs."""
    for leaves, version in connection.execute(_MEMBERS, (thread, rows)).fetchall():
        sql = "UPDATE threads SET version = version + 1 WHERE key = %s RETURNING version"
        gone = connection.execute(sql, (leaves,)).fetchone()
        assert gone is not None, "a thread with members has a row"
        sql = "UPDATE members SET gone = %s WHERE thread = %s AND version = %s"
        connection.execute(sql, (gone[0], leaves, version))


def _drop_threads(connection: BoundedConnection, threads: set[str]) -> list[int]:
    """Delete those threads that no task needs any more; return the rows of their former members."""
    freed: list[int] = []
    for thread in threads:
        has_members = connection.execute(_HAS_MEMBERS, (thread,)).fetchone() is not None
        has_readers = connection.execute(_HAS_READERS, (thread, thread)).fetchone() is not None
        if rules.stays(has_members=has_members, has_readers=has_readers):
            continue
        connection.execute(_GRANTS_OF_THREAD, (thread,))
        deleted = connection.execute(
            "DELETE FROM members WHERE thread = %s RETURNING task", (thread,)
        ).fetchall()
        freed += [row for (row,) in deleted]
        connection.execute("DELETE FROM threads WHERE key = %s", (thread,))
    return freed


def _collect(connection: BoundedConnection, waiting: list[int]) -> None:
    """Drop records of deleted tasks that are no longer read, then those of the tasks kept for them."""
    while waiting:
        row = waiting.pop()
        sql = "SELECT base, thread FROM tasks WHERE id = %s AND deleted"
        task = connection.execute(sql, (row,)).fetchone()
        if task is None:
            continue
        fork_points = [seq for (seq,) in connection.execute(_FORK_POINTS, (row,)).fetchall()]
        last = rules.last_needed_event(fork_points, _memberships(connection, row))
        _drop_records(connection, row, 0 if last is None else last)
        if last is not None:
            continue
        connection.execute("DELETE FROM members WHERE task = %s", (row,))
        connection.execute("DELETE FROM tasks WHERE id = %s", (row,))
        base, thread = task
        waiting += [base] if base is not None else []
        waiting += _removed_members(connection, {thread})


def _memberships(connection: BoundedConnection, row: int) -> list[Membership]:
    memberships: list[Membership] = []
    for thread, version, seq, taken_out in connection.execute(_MEMBERSHIPS, (row,)).fetchall():
        below = 0
        if taken_out:
            firsts = connection.execute(_FIRST_VERSIONS, (thread,)).fetchall()
            below = rules.read_below(first for (first,) in firsts)
        memberships.append(Membership(version, seq, taken_out, below))
    return memberships


def _removed_members(connection: BoundedConnection, threads: set[str]) -> list[int]:
    """Return the deleted tasks that are kept because tasks of these threads may have begun with them."""
    return [row for (row,) in connection.execute(_TAKEN_OUT, (list(threads),)).fetchall()]


def _drop_records(connection: BoundedConnection, row: int, keep: int) -> None:
    """Delete the records after event `keep`, and the blobs that only they referred to."""
    blobs = [digest for (digest,) in connection.execute(_REFERRED, (row, keep))]
    connection.execute(_DROP_RECORDS, (row, keep))
    if blobs:
        connection.execute(_DROP_BLOBS, (blobs,))
