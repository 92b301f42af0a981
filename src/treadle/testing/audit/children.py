"""What must hold between a task and its children: two journals that tell of one call, and limits that they share.

Pure functions that return violations, like those of `treadle.testing.audit.events`; they use no fold of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.core import events as e
from treadle.testing.audit.events import Violation

Journals = Mapping[str, Sequence[e.Event]]
"""The events of each task of a store."""

_STARTS = (e.ModelStarted, e.ToolStarted)


def families(journals: Journals) -> Iterator[Violation]:
    """Yield what parents and children do not agree about, and limits that a tree did not keep."""
    for task, events in journals.items():
        created = _created(events)
        if created is not None and created.parent is not None:
            yield from _as_its_parent_says(task, events, created, journals.get(created.parent))
    for task, events in journals.items():
        yield from _shared_limits(task, events, journals)


def _created(events: Sequence[e.Event]) -> e.TaskCreated | None:
    first = events[0] if events else None
    forked = any(isinstance(event, e.TaskForked) for event in events)
    return first if isinstance(first, e.TaskCreated) and not forked else None


def _as_its_parent_says(
    task: str, events: Sequence[e.Event], created: e.TaskCreated, parent: Sequence[e.Event] | None
) -> Iterator[Violation]:
    if parent is None:
        yield Violation("children", task, 1, f"its parent {created.parent} is not there")
        return
    calls = [event for event in parent if getattr(event, "call", None) == created.parent_call]
    begun = next((event for event in calls if isinstance(event, e.ToolStarted)), None)
    if begun is None or begun.child != task:
        yield Violation("children", task, 1, f"call {created.parent_call} of its parent is not this task")
        return
    end = next((event for event in calls if isinstance(event, e.ToolEnded)), None)
    if end is None:
        if isinstance(parent[-1], e.TaskEnded):
            yield Violation("children", task, len(events), "its parent has ended and its call has not")
        return
    late = next((event for event in events if isinstance(event, _STARTS) and event.time > end.time), None)
    if late is not None:
        yield Violation("children", task, late.seq, f"{late.kind} after its call had ended")
    last = events[-1]
    if not isinstance(last, e.TaskEnded):
        yield Violation("children", task, last.seq, "its call has ended and it has not")
    elif end.outcome == "ok" and (last.state not in ("completed", "degraded") or last.output != end.output):
        text = f"it is {last.state} with {last.output!r}, and its call ended as {end.outcome} with {end.output!r}"
        yield Violation("children", task, last.seq, text)
    told = sum(part.model_calls for part in end.spent)
    if (made := _requests(events) + _told_below(events)) != told:
        yield Violation(
            "children", task, last.seq, f"its parent was told of {told} requests, and {made} were made"
        )


def _requests(events: Sequence[e.Event]) -> int:
    """Return how many requests a task began, those of layers on the way included."""
    asked = sum(isinstance(event, e.ModelStarted) for event in events)
    return asked + sum(
        len(event.also) for event in events if isinstance(event, (e.ModelReturned, e.ModelFailed))
    )


def _told_below(events: Sequence[e.Event]) -> int:
    """Return how many requests a task was told of by the ends of its children."""
    ends = [event for event in events if isinstance(event, e.ToolEnded)]
    return sum(part.model_calls for event in ends for part in event.spent)


def _shared_limits(task: str, events: Sequence[e.Event], journals: Journals) -> Iterator[Violation]:
    """No request of a tree begins beyond what the options of its root ever allowed."""
    allowed: list[Any] = []
    for event in events:
        if isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged)):
            limits: dict[str, Any] = (event.options or {}).get("limits") or {}
            allowed.append(limits.get("model_calls"))
    if not allowed or None in allowed:
        return
    tree = _tree(task, journals)
    made = sum(_requests(journals[one]) for one in tree)
    if len(tree) > 1 and made > max(allowed):
        yield Violation(
            "limits", task, len(events), f"{made} requests of {max(allowed)} in {len(tree)} tasks"
        )


def _tree(task: str, journals: Journals) -> list[str]:
    """Return a task and all below it."""
    found = [task]
    for one in found:
        for event in journals[one]:
            child = event.child if isinstance(event, e.ToolStarted) else None
            if child is not None and child in journals and child not in found:
                found.append(child)
    return found
