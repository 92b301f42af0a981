"""Deleting tasks from a journal file, together with all that only they referred to."""

from __future__ import annotations

from treadle.core.data import mutable
from treadle.stores import rules
from treadle.stores.rules import Membership
from treadle.stores.sqlite.schema import Connection

_FAMILY = """WITH RECURSIVE family(id) AS (
  {roots} UNION SELECT t.id FROM family f JOIN tasks p ON p.id = f.id JOIN tasks t ON t.parent = p.key
  WHERE t.deleted = 0
) SELECT id, key, driver, parent FROM tasks WHERE id IN family"""
_FORK_POINTS = "SELECT base_seq FROM tasks WHERE base = ?"
_MEMBERSHIPS = """SELECT h.id, h.key, m.version, m.seq, m.gone IS NOT NULL
FROM members m JOIN threads h ON h.id = m.thread WHERE m.task = ?"""
_FIRST_VERSIONS = """SELECT (SELECT min(version) FROM members WHERE thread = ?1 AND task = t.id)
FROM tasks t WHERE t.thread = ?2 AND t.base IS NULL
AND (t.deleted = 0 OR EXISTS (SELECT 1 FROM tasks f WHERE f.base = t.id))"""
_TAKEN_OUT = """SELECT DISTINCT t.id FROM threads h JOIN members m ON m.thread = h.id JOIN tasks t ON t.id = m.task
WHERE h.key = ? AND m.gone IS NOT NULL AND t.deleted = 1"""
_BASES = """WITH RECURSIVE chain(id) AS (
  VALUES (?) UNION SELECT base FROM tasks JOIN chain USING (id) WHERE base IS NOT NULL
) SELECT thread FROM tasks WHERE id IN chain"""
_HAS_READERS = """SELECT 1 FROM tasks WHERE thread = ?1 AND deleted = 0
UNION ALL SELECT 1 FROM tasks t JOIN tasks f ON f.base = t.id
WHERE t.thread = ?1 AND (f.deleted = 0 OR f.thread <> ?1) LIMIT 1"""
_HAS_MEMBERS = """SELECT 1 FROM threads h JOIN members m ON m.thread = h.id
WHERE h.key = ? AND m.gone IS NULL LIMIT 1"""
_MEMBERS_OF_THREAD = """SELECT thread, version FROM members
WHERE thread = (SELECT id FROM threads WHERE key = ?) AND gone IS NULL ORDER BY version DESC"""
_TASKS_OF_MEMBERS = "SELECT task FROM members WHERE thread = (SELECT id FROM threads WHERE key = ?)"
_MEMBERS_OF_TASK = "SELECT thread, version FROM members WHERE task = ? AND gone IS NULL"
_COUNT = "UPDATE deletions SET times = times + 1"
_GRANTS_OF_THREAD = "DELETE FROM grants WHERE thread = ?"
_BURY = """UPDATE tasks SET deleted = 1, state = '', agent = '', labels = '{}', driver = NULL, epoch = epoch + 1,
mark_seq = NULL, mark_digest = NULL, turn = NULL, figures = NULL, search = NULL WHERE id = ?"""


@mutable
class FamilyTask:
    """A task that a deletion takes off the list."""

    row: int
    key: str
    driver: int | None
    parent: str | None


def family(connection: Connection, row: int) -> list[FamilyTask]:
    """Return a task, its listed children, the children of those, and so on."""
    sql = _FAMILY.format(roots="VALUES (?)")
    return [FamilyTask(*row) for row in connection.execute(sql, (row,))]


def family_of_thread(connection: Connection, thread: str) -> list[FamilyTask]:
    """Return the listed tasks of a thread, their listed children, the children of those, and so on."""
    sql = _FAMILY.format(roots="SELECT id FROM tasks WHERE thread = ? AND deleted = 0")
    return [FamilyTask(*row) for row in connection.execute(sql, (thread,))]


def delete(connection: Connection, members: list[FamilyTask], thread: str | None = None) -> None:
    """Take tasks off the list, then drop all that is no longer referred to; also that of a `thread` to delete."""
    rows = [member.row for member in members]
    if thread is not None:
        rows += [row for (row,) in connection.execute(_TASKS_OF_MEMBERS, (thread,))]
    threads = {key for row in rows for (key,) in connection.execute(_BASES, (row,))}
    for member in members:
        connection.execute("DELETE FROM inbox WHERE task = ?", (member.row,))
        connection.execute("DELETE FROM task_labels WHERE key = ?", (member.key,))
        connection.execute(_BURY, (member.row,))
    sql = "SELECT DISTINCT h.key FROM members m JOIN threads h ON h.id = m.thread WHERE m.task = ?"
    threads |= {key for m in members for (key,) in connection.execute(sql, (m.row,))}
    leaving = list[tuple[int, int]]()
    if thread is not None:
        threads.add(thread)
        connection.execute(_GRANTS_OF_THREAD, (thread,))
        leaving += connection.execute(_MEMBERS_OF_THREAD, (thread,)).fetchall()
    for row in rules.subagent_tasks((m.row, m.key, m.parent) for m in members):
        leaving += connection.execute(_MEMBERS_OF_TASK, (row,)).fetchall()
    _take_out(connection, leaving)
    _collect(connection, [*(member.row for member in members), *_removed_members(connection, threads)])
    # With a fork that goes, the thread it began with may go too.
    while freed := _drop_threads(connection, threads):
        _collect(connection, freed)
    connection.execute(_COUNT)


def _take_out(connection: Connection, leaving: list[tuple[int, int]]) -> None:
    """Take members out of their threads, each named by the thread and the version that added it."""
    for thread, version in leaving:
        connection.execute("UPDATE threads SET version = version + 1 WHERE id = ?", (thread,))
        sql = "UPDATE members SET gone = (SELECT version FROM threads WHERE id = ?1) WHERE thread = ?1 AND version = ?2"
        connection.execute(sql, (thread, version))


def _drop_threads(connection: Connection, threads: set[str]) -> list[int]:
    """Delete those threads that no task needs any more; return the rows of their former members."""
    freed: list[int] = []
    for key in threads:
        has_members = connection.execute(_HAS_MEMBERS, (key,)).fetchone() is not None
        has_readers = connection.execute(_HAS_READERS, (key,)).fetchone() is not None
        if rules.stays(has_members=has_members, has_readers=has_readers):
            continue
        connection.execute(_GRANTS_OF_THREAD, (key,))
        thread = connection.execute("SELECT id FROM threads WHERE key = ?", (key,)).fetchone()
        if thread:
            freed += [
                row for (row,) in connection.execute("SELECT task FROM members WHERE thread = ?", thread)
            ]
            connection.execute("DELETE FROM members WHERE thread = ?", thread)
            connection.execute("DELETE FROM threads WHERE id = ?", thread)
    return freed


def _collect(connection: Connection, waiting: list[int]) -> None:
    """Drop records of deleted tasks that are no longer read, then those of the tasks kept for them."""
    while waiting:
        row = waiting.pop()
        sql = "SELECT base, thread FROM tasks WHERE id = ? AND deleted = 1"
        task = connection.execute(sql, (row,)).fetchone()
        if task is None:
            continue
        fork_points = [seq for (seq,) in connection.execute(_FORK_POINTS, (row,)).fetchall()]
        last = rules.last_needed_event(fork_points, _memberships(connection, row))
        _drop_records(connection, row, 0 if last is None else last)
        if last is not None:
            continue
        connection.execute("DELETE FROM members WHERE task = ?", (row,))
        connection.execute("DELETE FROM tasks WHERE id = ?", (row,))
        base, thread = task
        waiting += [base] if base is not None else []
        waiting += _removed_members(connection, {thread})


def _memberships(connection: Connection, row: int) -> list[Membership]:
    memberships: list[Membership] = []
    for thread, key, version, seq, taken_out in connection.execute(_MEMBERSHIPS, (row,)).fetchall():
        below = 0
        if taken_out:
            firsts = connection.execute(_FIRST_VERSIONS, (thread, key)).fetchall()
            below = rules.read_below(first for (first,) in firsts)
        memberships.append(Membership(version, seq, bool(taken_out), below))
    return memberships


def _removed_members(connection: Connection, threads: set[str]) -> list[int]:
    """Return the deleted tasks that are kept because tasks of these threads may have begun with them."""
    return [row for key in threads for (row,) in connection.execute(_TAKEN_OUT, (key,)).fetchall()]


def _drop_records(connection: Connection, row: int, keep: int) -> None:
    """Delete the records after event `keep`, and the blobs that only they referred to."""
    refs = """SELECT DISTINCT blob FROM records JOIN blob_refs ON record = pos
    WHERE task = ? AND seq - count >= ? AND blobs > 0"""
    blobs = connection.execute(refs, (row, keep)).fetchall()
    connection.execute("DELETE FROM records WHERE task = ? AND seq - count >= ?", (row, keep))
    for blob in blobs:
        sql = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = ?1)"
        connection.execute(sql, blob)
