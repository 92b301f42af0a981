"""The members and the queue of a thread in a journal file, read and written in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ports import (
    Commit,
    OnBusyThread,
    ThreadChange,
)
from treadle.stores import rules
from treadle.stores.rules import QueuedTask, QueueEntry
from treadle.stores.sqlite.dialect import Statements
from treadle.stores.sqlite.schema import Connection

_SINCE_NEWEST = """SELECT version, covers FROM members WHERE thread = ?1 AND gone IS NULL
AND version >= (SELECT max(version) FROM members WHERE thread = ?1 AND task = ?2 AND gone IS NULL) ORDER BY version"""


def check(sql: Statements, task: int, commit: Commit) -> tuple[int | None, int]:
    """Return the row of a commit's thread, None if it has none yet, and the version of the member to remove."""
    change = commit.thread
    assert change is not None
    row, version = sql.one("SELECT id, version FROM threads WHERE key = ?", change.thread_id) or (
        None,
        0,
    )
    members = sql.all(_SINCE_NEWEST, row, task) if change.action == "remove" else ()
    return row, rules.check_thread(commit, version, members)


def apply(
    sql: Statements, task: int, seq: int, change: ThreadChange, row: int | None, taken_out: int
) -> None:
    """Add a task to a thread with its events up to `seq`, or remove its member."""
    if row is None:
        row = sql.insert("INSERT INTO threads(key, version) VALUES (?, 0)", change.thread_id)
    sql.run("UPDATE threads SET version = version + 1 WHERE id = ?", row)
    version = sql.one("SELECT version FROM threads WHERE id = ?", row)[0]
    if change.action == "add":
        values = (row, version, task, seq, change.covers)
        sql.run("INSERT INTO members VALUES (?, ?, ?, ?, NULL, ?)", *values)
    else:
        sql.run("UPDATE members SET gone = ? WHERE thread = ? AND version = ?", version, row, taken_out)


_QUEUED = """SELECT id, key, turn, driver FROM tasks
WHERE thread = ? AND turn IS NOT NULL AND id <> ? ORDER BY turn, id"""
_VERSION = "SELECT version FROM threads WHERE key = ?"
_LATE = """INSERT OR IGNORE INTO drivers(key, host, boot, pid, started, lease)
SELECT key || ' (late)', host, boot, pid, started, 0 FROM drivers WHERE id = ?"""
_DEPOSE = """UPDATE tasks SET turn = NULL, epoch = epoch + 1, driver =
(SELECT l.id FROM drivers d JOIN drivers l ON l.key = d.key || ' (late)' WHERE d.id = tasks.driver) WHERE id = ?"""


def enter(
    connection: Connection,
    thread: str,
    row: int,
    turn: int | None,
    policy: OnBusyThread,
    living: Callable[[int], bool],
) -> QueueEntry:
    """Return the place that a task gets in the queue of its thread.

    Args:
        connection: a connection in a transaction.
        thread: the thread.
        row: the task's row; 0 for a task that does not exist yet.
        turn: the place that the task has; None without one.
        policy: how it enters; not by `parallel`.
        living: returns whether the driver of a row is alive.

    Raises:
        ThreadBusy: it enters by `reject`, but a task of a living driver is there.
    """
    queued = [QueuedTask(*columns) for columns in connection.execute(_QUEUED, (thread, row))]
    dead_drivers = {driver for driver in {task.driver for task in queued} if not living(driver)}
    version = connection.execute(_VERSION, (thread,)).fetchone()
    return rules.enter_thread(thread, version[0] if version else 0, turn, policy, queued, dead_drivers)


def depose(connection: Connection, task: QueuedTask) -> None:
    """Take the thread from a task with a dead driver; the driver still owns the task, in an epoch it never had."""
    connection.execute(_LATE, (task.driver,))
    connection.execute(_DEPOSE, (task.row,))
