"""The queue of a thread in a journal file: its places are read and written in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ports import OnBusyThread
from treadle.stores import rules
from treadle.stores.rules import QueuedTask, QueueEntry
from treadle.stores.sqlite.schema import Connection

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
        connection: in a transaction.
        thread: the thread.
        row: the task's row; 0 for a task that is about to be created.
        turn: the place that the task has; None without one.
        policy: how it enters; not by `parallel`.
        living: returns whether the driver of a row is alive.

    Raises:
        ThreadBusy: it enters by `reject`, and a task of a living driver is there.
    """
    queued = [QueuedTask(*columns) for columns in connection.execute(_QUEUED, (thread, row))]
    dead_drivers = {driver for driver in {task.driver for task in queued} if not living(driver)}
    version = connection.execute(_VERSION, (thread,)).fetchone()
    return rules.enter_thread(thread, version[0] if version else 0, turn, policy, queued, dead_drivers)


def depose(connection: Connection, task: QueuedTask) -> None:
    """Take the thread from a task with a dead driver: it stays that driver's, under an epoch that driver never had."""
    connection.execute(_LATE, (task.driver,))
    connection.execute(_DEPOSE, (task.row,))
