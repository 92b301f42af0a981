"""Who comes to have a thread and who waits for it: the rule, whatever database the places are kept in."""

from __future__ import annotations

from collections.abc import Container, Sequence

from treadle.core.data import mutable
from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition


@mutable
class Other:
    """Another task with a place in the thread: 0 has it, others wait, smallest first."""

    row: int
    key: str
    turn: int
    driver: int


@mutable
class Entry:
    """A task's new place, not written yet, and the tasks that lose the thread by it since their drivers died."""

    turn: int
    place: QueuePosition | None
    deposed: tuple[Other, ...] = ()


BESIDE_OTHERS = Entry(0, None)
"""Who comes in beside others asks nothing and is told nothing."""


def rejected(thread: str, holder: str) -> ThreadBusy:
    """Return what a task is told that rejects a busy thread."""
    message = (
        f"thread {thread!r} is held by task {holder}: wait for that one, or choose another "
        "on_busy_thread (--on-busy-thread), such as 'enqueue'"
    )
    return ThreadBusy(message, task_id=holder, thread_id=thread)


def entry(
    thread: str,
    version: int,
    turn: int | None,
    how: OnBusyThread,
    others: Sequence[Other],
    dead: Container[int],
) -> Entry:
    """Return the place a task gets in its thread.

    Args:
        thread: its name.
        version: its version.
        turn: the place the task has; None without one.
        how: the way it asks; not `parallel`.
        others: who else has a place, in the order of turns.
        dead: those of their drivers that are not alive.

    Raises:
        ThreadBusy: it rejects a busy thread.
    """
    alive = [other for other in others if other.driver not in dead]
    holders = tuple([other.key for other in alive if other.turn == 0])
    if how == "reject" and alive and turn != 0:
        raise rejected(thread, alive[0].key)
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
    return Entry(turn, QueuePosition(turn == 0, version, holders, turn), deposed if turn == 0 else ())
