"""Deleting tasks from a journal file: what goes, what stays for forks and threads, what goes with the last of them."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.stores.sqlite_schema import Connection

_FAMILY = """WITH RECURSIVE family(id) AS (
  VALUES (?) UNION SELECT t.id FROM family f JOIN tasks p ON p.id = f.id JOIN tasks t ON t.parent = p.key
  WHERE t.deleted = 0
) SELECT id, key, driver, thread FROM tasks WHERE id IN family"""
_NEEDED = """SELECT max(seq) FROM (
  SELECT base_seq AS seq FROM tasks WHERE base = ?1
  UNION ALL SELECT seq FROM members WHERE task = ?1 AND gone IS NULL)"""
_THREAD_IN_USE = """SELECT 1 FROM tasks WHERE thread = ?1 AND deleted = 0
UNION ALL SELECT 1 FROM threads h JOIN members m ON m.thread = h.id JOIN tasks t ON t.id = m.task
WHERE h.key = ?1 AND m.gone IS NULL AND t.deleted = 0 LIMIT 1"""
_BURY = """UPDATE tasks SET deleted = 1, state = '', agent = '', labels = '{}', driver = NULL, epoch = epoch + 1,
mark_seq = NULL, mark_digest = NULL, turn = NULL WHERE id = ?"""


@dataclass(slots=True)
class Member:
    """A task that is to go."""

    row: int
    key: str
    driver: int | None
    thread: str


def family(connection: Connection, row: int) -> list[Member]:
    """Return a task, its listed children, theirs, and so on."""
    return [Member(*found) for found in connection.execute(_FAMILY, (row,))]


def delete(connection: Connection, members: list[Member]) -> None:
    """Take tasks off the list, then drop all that nobody refers to any more."""
    for member in members:
        connection.execute("DELETE FROM inbox WHERE task = ?", (member.row,))
        connection.execute(_BURY, (member.row,))
    rows = [member.row for member in members]
    for row in rows + _drop_threads(connection, members):
        _collect(connection, row)


def _drop_threads(connection: Connection, members: list[Member]) -> list[int]:
    """Forget the threads that no listed task is in any more; return the rows of those who were members of them."""
    sql = "SELECT DISTINCT h.key FROM members m JOIN threads h ON h.id = m.thread WHERE m.task = ?"
    threads = {m.thread for m in members} | {k for m in members for (k,) in connection.execute(sql, (m.row,))}
    freed: list[int] = []
    for key in threads:
        if connection.execute(_THREAD_IN_USE, (key,)).fetchone():
            continue
        found = connection.execute("SELECT id FROM threads WHERE key = ?", (key,)).fetchone()
        if found:
            freed += [
                row for (row,) in connection.execute("SELECT task FROM members WHERE thread = ?", found)
            ]
            connection.execute("DELETE FROM members WHERE thread = ?", found)
            connection.execute("DELETE FROM threads WHERE id = ?", found)
    return freed


def _collect(connection: Connection, row: int | None) -> None:
    """Drop what nobody refers to of a deleted task, and then of the task it was forked from."""
    while row is not None:
        sql = "SELECT base FROM tasks WHERE id = ? AND deleted = 1"
        found = connection.execute(sql, (row,)).fetchone()
        if found is None:
            return
        (needed,) = connection.execute(_NEEDED, (row,)).fetchone()
        _drop_records(connection, row, 0 if needed is None else needed)
        if needed is not None:
            return
        connection.execute("DELETE FROM members WHERE task = ?", (row,))
        connection.execute("DELETE FROM tasks WHERE id = ?", (row,))
        row = found[0]


def _drop_records(connection: Connection, row: int, keep: int) -> None:
    """Delete the records behind event `keep`, and the blobs only they referred to."""
    refs = """SELECT DISTINCT blob FROM records JOIN blob_refs ON record = pos
    WHERE task = ? AND seq - count >= ? AND blobs > 0"""
    blobs = connection.execute(refs, (row, keep)).fetchall()
    connection.execute("DELETE FROM records WHERE task = ? AND seq - count >= ?", (row, keep))
    for blob in blobs:
        sql = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM blob_refs WHERE blob = ?1)"
        connection.execute(sql, blob)
