"""Who has a thread in a journal file and who waits for it: places of owned tasks, given in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, Place
from treadle.stores.sqlite_schema import Connection

_OTHERS = """SELECT id, key, turn, driver FROM tasks
WHERE thread = ? AND turn IS NOT NULL AND id <> ? ORDER BY turn, id"""
_VERSION = "SELECT version FROM threads WHERE key = ?"
_LATE = """INSERT OR IGNORE INTO drivers(key, host, boot, pid, started, lease)
SELECT key || ' (late)', host, boot, pid, started, 0 FROM drivers WHERE id = ?"""
_DEPOSE = """UPDATE tasks SET turn = NULL, epoch = epoch + 1, driver =
(SELECT l.id FROM drivers d JOIN drivers l ON l.key = d.key || ' (late)' WHERE d.id = tasks.driver) WHERE id = ?"""


@dataclass(slots=True)
class _Other:
    """Another task with a place in the thread."""

    row: int
    key: str
    turn: int
    driver: int


@dataclass(slots=True)
class Entry:
    """A task's new place, not written yet, and the tasks that lose the thread by it since their drivers died."""

    turn: int
    place: Place | None
    deposed: tuple[_Other, ...] = ()


BESIDE_OTHERS = Entry(0, None)
"""Who comes in beside others asks nothing and is told nothing."""


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
    others = [_Other(*found) for found in connection.execute(_OTHERS, (thread, row))]
    dead = {driver for driver in {other.driver for other in others} if not living(driver)}
    alive = [other for other in others if other.driver not in dead]
    holders = tuple([other.key for other in alive if other.turn == 0])
    if how == "reject" and alive and turn != 0:
        first = alive[0].key
        raise ThreadBusy(f"thread {thread!r} is held by task {first}", task_id=first, thread_id=thread)
    if how == "reject":
        turn = 0
    elif turn != 0:
        places = [0, *(other.turn for other in others)]
        if how == "interrupt" and (turn is None or turn > 0):
            turn = min(places) - 1
        elif turn is None:
            turn = max(places) + 1
        if not holders and all(turn < other.turn for other in alive):
            turn = 0
    deposed = tuple([other for other in others if other.driver in dead and other.turn == 0])
    found = connection.execute(_VERSION, (thread,)).fetchone()
    place = Place(turn == 0, found[0] if found else 0, holders, turn)
    return Entry(turn, place, deposed if turn == 0 else ())


def depose(connection: Connection, other: _Other) -> None:
    """Take the thread from a task whose driver died: it stays that driver's, under an epoch that driver never had."""
    connection.execute(_LATE, (other.driver,))
    connection.execute(_DEPOSE, (other.row,))
