"""Comparing journals: whether two tasks went the same way, apart from fields that differ between any two tasks.

The events are the same for a stepped or a free run, with or without a crash and resume, on any store. The fields that
may differ are listed here, and all others are compared. Epochs, digests and record boundaries are not part of an event,
so they are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from treadle.core.events import Event
from treadle.core.journal import events_with_epochs
from treadle.ports import JournalStore

IGNORED: Final[dict[str, str]] = {
    "time": "when an event happened",
    "thread": "the id of the thread",
    "parent": "the id of the task that another was forked from, or is a child of",
    "incarnation": "which of the tasks of one id it is",
    "frame_key": "what the nonces of frames around untrusted content are made with",
    "inbox": "the id that the sender of a command chose",
}
"""The fields that are not compared, with descriptions."""


async def journal_of(store: JournalStore, task_id: str) -> list[Event]:
    """Return all events of a task, verified.

    Args:
        store: the store of the task's journal, such as `runner.store`.
        task_id: the task.

    Raises:
        TaskNotFound: there is no such task.
        JournalCorrupt: a record was changed, lost or cut.
    """
    await store.open()
    records = await store.read(task_id)
    return [event for _, event in events_with_epochs(task_id, records)]


def first_difference(a: Sequence[Event], b: Sequence[Event]) -> str | None:
    """Return the first difference of two journals, None if they are equal.

    Args:
        a: the events of one task, in order.
        b: the events of another task.
    """
    for number, (event, other) in enumerate(zip(a, b, strict=False), 1):
        if event.kind != other.kind:
            return f"event {number}: {event.kind} in one, {other.kind} in the other"
        other_facts = facts(other)
        for name, value in facts(event).items():
            if value != other_facts[name]:
                difference = f"{name} is {value!r} in one, {other_facts[name]!r} in the other"
                return f"event {number} ({event.kind}): {difference}"
    if len(a) != len(b):
        longer = a if len(a) > len(b) else b
        number = min(len(a), len(b)) + 1
        return f"event {number}: {longer[number - 1].kind} in one, nothing in the other"
    return None


def assert_same_journal(a: Sequence[Event], b: Sequence[Event]) -> None:
    """Raise `AssertionError` with the first difference, unless two journals are equal."""
    difference = first_difference(a, b)
    if difference is not None:
        raise AssertionError(difference)


def facts(event: Event) -> dict[str, Any]:
    """Return the compared fields of an event: all but those in `IGNORED`."""
    return {item.name: getattr(event, item.name) for item in fields(event) if item.name not in IGNORED}
