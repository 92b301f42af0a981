"""Who has a thread in a journal file and who waits for it: places of owned tasks, given in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ports import OnBusyThread
from treadle.stores import thread_queue
from treadle.stores.sqlite.schema import Connection
from treadle.stores.thread_queue import Entry, Other

_OTHERS = """SELECT id, key, turn, driver FROM tasks
WHERE thread = ? AND turn IS NOT NULL AND id <> ? ORDER BY turn, id"""
_VERSION = "SELECT version FROM threads WHERE key = ?"
_LATE = """INSERT OR IGNORE INTO drivers(key, host, boot, pid, started, lease)
SELECT key || ' (late)', host, boot, pid, started, 0 FROM drivers WHERE id = ?"""
_DEPOSE = """UPDATE tasks SET turn = NULL, epoch = epoch + 1, driver =
(SELECT l.id FROM drivers d JOIN drivers l ON l.key = d.key || ' (late)' WHERE d.id = tasks.driver) WHERE id = ?"""


def entry(
    connection: Connection,
    thread: str,
    row: int,
    turn: int | None,
    how: OnBusyThread,
    living: Callable[[int], bool],
) -> Entry:
    """Return the place a task gets in its thread; `row` is 0 for a task that is about to be created.

    `living` tells whether a driver still is. Raises `ThreadBusy`.
    """
    others = [Other(*found) for found in connection.execute(_OTHERS, (thread, row))]
    dead = {driver for driver in {other.driver for other in others} if not living(driver)}
    found = connection.execute(_VERSION, (thread,)).fetchone()
    return thread_queue.entry(thread, found[0] if found else 0, turn, how, others, dead)


def depose(connection: Connection, other: Other) -> None:
    """Take the thread from a task whose driver died: it stays that driver's, under an epoch that driver never had."""
    connection.execute(_LATE, (other.driver,))
    connection.execute(_DEPOSE, (other.row,))
