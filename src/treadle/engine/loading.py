"""Apply events from a journal, and refuse events that drivers of this version cannot have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treadle.core import events as e
from treadle.core.journal import apply_all_stored, apply_stored
from treadle.core.state import TaskState
from treadle.engine.options import from_json
from treadle.errors import JournalCorrupt, TreadleError
from treadle.ports import TaskRow


def apply_checked(state: TaskState, event: e.Event, epoch: int = 0) -> None:
    """Apply an event from a journal.

    Args:
        state: the state before the event. It is unusable after an error.
        event: the next event.
        epoch: the epoch of its record.

    Raises:
        JournalCorrupt: the event cannot follow those before it, or its options cannot be read.
    """
    if type(event) not in _EXAMINED and state.seq:
        apply_stored(state, event, epoch)
    else:
        _examine_and_apply(state, event, epoch)


def apply_all_checked(state: TaskState, events: Sequence[e.Event], epoch: int) -> None:
    """Apply events of one record, in order. Arguments and errors are those of `apply_checked`."""
    if state.seq and _EXAMINED.isdisjoint(map(type, events)):
        apply_all_stored(state, events, epoch)
    else:
        for event in events:
            apply_checked(state, event, epoch)


_EXAMINED: Final[frozenset[type[e.Event]]] = frozenset(
    (e.TaskCreated, e.TaskForked, e.OptionsChanged, e.TaskEnded, e.UnknownEvent)
)
"""The events that need more checks than the fold makes."""


def _examine_and_apply(state: TaskState, event: e.Event, epoch: int) -> None:
    known_event = e.known_part(event)
    if (state.seq == 0) is not (type(known_event) is e.TaskCreated):
        message = (
            f"task {state.task_id}, event {event.seq}: a journal begins with task_created, and has no other"
        )
        raise JournalCorrupt(message, task_id=state.task_id, seq=event.seq)
    if type(known_event) is e.TaskEnded and state.in_flight():
        message = f"task {state.task_id}, event {event.seq}: it ended while a call was under way"
        raise JournalCorrupt(message, task_id=state.task_id, seq=event.seq)
    apply_stored(state, event, epoch)
    if (
        known_event is event
        and isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged))
        and event.options
    ):
        _check_options(state.task_id, event, event.options)


def contradicts(row: TaskRow, state: TaskState) -> str | None:
    """Return the field in which the row of a task contradicts its journal, or None."""
    for name, here, there in (
        ("agent", row.agent, state.created_for),
        ("thread", row.thread_id, state.thread),
        ("base", row.base, state.forked_from),
        ("base_seq", row.base_seq, state.fork_seq),
    ):
        if here != there:
            return f"the row says {name} {here!r}, the journal {there!r}"
    return None


def _check_options(task_id: str, event: e.Event, options: dict[str, object]) -> None:
    try:
        from_json(options)
    except (TreadleError, TypeError, ValueError, AttributeError) as error:
        message = f"task {task_id}, event {event.seq}: the options in it cannot be read: {error}"
        raise JournalCorrupt(message, task_id=task_id, seq=event.seq) from error
