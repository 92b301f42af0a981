"""Delete tasks from a database, with all data that only they refer to; see `stores/rules.py`."""

from __future__ import annotations

from typing import Any, Final, LiteralString

from treadle.errors import ThreadNotFound
from treadle.stores import rules
from treadle.stores.rules import Membership
from treadle.stores.sql.dialect import Connection, Dialect

_FAMILY: Final = """WITH RECURSIVE family(id, key) AS (
  SELECT id, key FROM tasks WHERE {} = ? AND deleted = FALSE
  UNION SELECT t.id, t.key FROM family f JOIN tasks t ON t.parent = f.key WHERE t.deleted = FALSE
) SELECT t.id, t.key, t.parent, t.driver, d.host, d.boot, d.pid, d.started, LEASED
FROM family f JOIN tasks t ON t.id = f.id LEFT JOIN drivers d ON d.id = t.driver"""
_BURY: Final = """UPDATE tasks SET deleted = TRUE, state = '', agent = '', labels = '{}', driver = NULL,
epoch = epoch + 1, mark_seq = NULL, mark_digest = NULL, turn = NULL, wanted = 0, figures = NULL, search = NULL
WHERE id IN_ARRAY"""
_UNLABEL: Final = "DELETE FROM task_labels WHERE key IN (SELECT key FROM tasks WHERE id IN_ARRAY)"
_BASES: Final = """WITH RECURSIVE chain(id) AS (
  SELECT id FROM tasks WHERE id IN_ARRAY
  UNION SELECT t.base FROM chain c JOIN tasks t ON t.id = c.id WHERE t.base IS NOT NULL
) SELECT DISTINCT t.thread FROM chain c JOIN tasks t ON t.id = c.id"""
_THREADS: Final = """SELECT DISTINCT h.key FROM members m JOIN threads h ON h.THREAD_ROW = m.thread
WHERE m.task IN_ARRAY"""
_HAS_READERS: Final = """SELECT 1 FROM tasks WHERE thread = ? AND deleted = FALSE
UNION ALL SELECT 1 FROM tasks t JOIN tasks f ON f.base = t.id
WHERE t.thread = ? AND (f.deleted = FALSE OR f.thread <> t.thread) LIMIT 1"""
_HAS_MEMBERS: Final = """SELECT 1 FROM threads h JOIN members m ON m.thread = h.THREAD_ROW
WHERE h.key = ? AND m.gone IS NULL LIMIT 1"""
_TASKS_OF_MEMBERS: Final = """SELECT m.task FROM threads h JOIN members m ON m.thread = h.THREAD_ROW
WHERE h.key = ?"""
_LEAVING: Final = """SELECT h.key, m.version FROM threads h JOIN members m ON m.thread = h.THREAD_ROW
WHERE h.key = ? AND m.gone IS NULL
UNION SELECT h.key, m.version FROM members m JOIN threads h ON h.THREAD_ROW = m.thread
WHERE m.task IN_ARRAY AND m.gone IS NULL ORDER BY 1, 2 DESC"""
_MOVE: Final = "UPDATE threads SET version = version + 1 WHERE key = ? RETURNING THREAD_ROW, version"
_LEAVE: Final = "UPDATE members SET gone = ? WHERE thread = ? AND version = ?"
_DELETE_MEMBERS: Final = """DELETE FROM members WHERE thread = (SELECT THREAD_ROW FROM threads WHERE key = ?)
RETURNING task"""
_GRANTS_OF_THREAD: Final = "DELETE FROM grants WHERE thread = ?"
_DELETED: Final = "SELECT base, thread FROM tasks WHERE id = ? AND deleted = TRUE"
_FORK_POINTS: Final = "SELECT base_seq FROM tasks WHERE base = ?"
_MEMBERSHIPS: Final = """SELECT h.key, m.version, m.seq, m.gone IS NOT NULL
FROM members m JOIN threads h ON h.THREAD_ROW = m.thread WHERE m.task = ?"""
_FIRST_VERSIONS: Final = """SELECT
(SELECT min(m.version) FROM members m WHERE m.thread = h.THREAD_ROW AND m.task = t.id)
FROM threads h JOIN tasks t ON t.thread = h.key WHERE h.key = ? AND t.base IS NULL
AND (t.deleted = FALSE OR EXISTS (SELECT 1 FROM tasks f WHERE f.base = t.id))"""
_TAKEN_OUT: Final = """SELECT DISTINCT t.id FROM threads h JOIN members m ON m.thread = h.THREAD_ROW
JOIN tasks t ON t.id = m.task WHERE h.key = ? AND m.gone IS NOT NULL AND t.deleted = TRUE"""
_DELETE_RECORDS: Final = "DELETE FROM records WHERE task = ? AND seq - count >= ?"


class Deletion:
    """Deletes tasks, in a transaction in which no other process writes.

    Args:
        dialect: the SQL of the database.
        connection: the connection in that transaction.
        own_driver: the row of this process in `drivers`.
    """

    def __init__(self, dialect: Dialect, connection: Connection, own_driver: int | None) -> None:
        self._dialect = dialect
        self._connection = connection
        self._own_driver = own_driver

    def task(self, key: str) -> list[str]:
        """Take a task and its children off the list, then drop unused data; return their ids."""
        family = self._family("key", key)
        if not family:
            raise rules.task_not_found(key)
        return self._delete(family)

    def thread(self, thread: str) -> list[str]:
        """Take all tasks of a thread off the list, with their children, and drop unused data; return their ids."""
        family = self._family("thread", thread)
        if not family and not any(self._column("SELECT version FROM threads WHERE key = ?", thread)):
            raise ThreadNotFound(f"no thread {thread!r} in this store")
        return self._delete(family, thread)

    def _family(self, column: LiteralString, value: str) -> list[tuple[int, str, str | None]]:
        """Return row, key and parent of some tasks, their children and so on; raise `TaskBusy`."""
        family: list[tuple[int, str, str | None]] = []
        for row, key, parent, driver, *facts in self._all(_FAMILY.format(column), value):
            is_own = driver == self._own_driver
            if facts[0] is not None and (is_own or self._dialect.is_alive(*facts)):
                raise rules.task_busy(key, facts[2], facts[0], is_own=is_own)
            family.append((row, key, parent))
        return family

    def _delete(self, family: list[tuple[int, str, str | None]], thread: str | None = None) -> list[str]:
        """Delete tasks that are not driven, and a whole thread; return the ids of the tasks."""
        rows = [row for row, _, _ in family]
        tasks = self._dialect.array(rows)
        members = [] if thread is None else self._column(_TASKS_OF_MEMBERS, thread)
        threads = set(self._column(_BASES, self._dialect.array([*rows, *members])))
        threads.update(self._column(_THREADS, tasks), [] if thread is None else [thread])
        self._run(_GRANTS_OF_THREAD, thread)
        self._run("DELETE FROM inbox WHERE task IN_ARRAY", tasks)
        self._run(_UNLABEL, tasks)
        self._run(_BURY, tasks)
        self._take_out(thread, rules.subagent_tasks(family))
        self._collect([*rows, *self._removed_members(threads)])
        # If a fork is deleted, the thread it began with may be deleted too.
        while freed := self._drop_threads(threads):
            self._collect(freed)
        return [key for _, key, _ in family]

    def _take_out(self, thread: str | None, rows: list[int]) -> None:
        """Remove all members from a thread, and these tasks from theirs."""
        for key, member in self._all(_LEAVING, thread, self._dialect.array(rows)):
            ((thread_row, version),) = self._all(_MOVE, key)
            self._run(_LEAVE, version, thread_row, member)

    def _drop_threads(self, threads: set[str]) -> list[int]:
        """Delete those threads that no task needs any more; return the rows of their former members."""
        freed: list[int] = []
        for thread in threads:
            has_members = bool(self._all(_HAS_MEMBERS, thread))
            has_readers = bool(self._all(_HAS_READERS, thread, thread))
            if not rules.stays(has_members=has_members, has_readers=has_readers):
                self._run(_GRANTS_OF_THREAD, thread)
                freed += self._column(_DELETE_MEMBERS, thread)
                self._run("DELETE FROM threads WHERE key = ?", thread)
        return freed

    def _collect(self, waiting: list[int]) -> None:
        """Drop records of deleted tasks that are no longer read, then those of tasks kept for them."""
        while waiting:
            row = waiting.pop()
            for base, thread in self._all(_DELETED, row):
                last = rules.last_needed_event(self._column(_FORK_POINTS, row), self._memberships(row))
                self._drop_records(row, last or 0)
                if last is None:
                    self._run("DELETE FROM members WHERE task = ?", row)
                    self._run("DELETE FROM tasks WHERE id = ?", row)
                    waiting += [] if base is None else [base]
                    waiting += self._removed_members({thread})

    def _memberships(self, row: int) -> list[Membership]:
        memberships: list[Membership] = []
        for thread, version, seq, taken_out in self._all(_MEMBERSHIPS, row):
            below = rules.read_below(self._column(_FIRST_VERSIONS, thread)) if taken_out else 0
            memberships.append(Membership(version, seq, bool(taken_out), below))
        return memberships

    def _removed_members(self, threads: set[str]) -> list[int]:
        """Return the deleted tasks that are kept since tasks of these threads may have begun with them."""
        return [row for thread in threads for row in self._column(_TAKEN_OUT, thread)]

    def _drop_records(self, row: int, keep: int) -> None:
        """Delete the records after event `keep`, and the blobs that only they referred to."""
        blobs = self._column(self._dialect.referred_blobs, row, keep)
        self._run(_DELETE_RECORDS, row, keep)
        if blobs:
            self._run(self._dialect.drop_blobs, self._dialect.array(blobs))

    def _run(self, text: LiteralString, *values: Any) -> None:
        """Run a statement without rows."""
        self._dialect.execute(self._connection, text, values)

    def _all(self, text: LiteralString, *values: Any) -> list[Any]:
        """Run a statement; return its rows."""
        return self._dialect.execute(self._connection, text, values).fetchall()

    def _column(self, text: LiteralString, *values: Any) -> list[Any]:
        """Run a statement; return its rows, each of one column."""
        return [value for (value,) in self._all(text, *values)]
