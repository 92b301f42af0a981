"""Invariants of tasks and their children: their journals agree about the call, and they share limits.

Pure functions that return violations, like those of `treadle.testing.audit.events`. They do not use the engine's fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.core import events as e
from treadle.testing.audit.events import Violation, until_end

Journals = Mapping[str, Sequence[e.Event]]
"""The events of each task of a store."""

_STARTS = (e.ModelStarted, e.ToolStarted)


def families(journals: Journals, *, clocks_agree: bool = True) -> Iterator[Violation]:
    """Yield disagreements between journals of parents and children, and exceeded limits of a tree.

    Args:
        journals: the journals of all tasks of a store.
        clocks_agree: whether times order events of different journals.
    """
    for task, events in journals.items():
        yield from _begins_anew(task, events)
        created = _created(events)
        if created is not None and created.parent is not None:
            parent = journals.get(created.parent)
            yield from _agrees_with_parent(task, events, created, parent, clocks_agree=clocks_agree)
    for task, events in journals.items():
        yield from _shared_limits(task, events, journals)


def _begins_anew(task: str, events: Sequence[e.Event]) -> Iterator[Violation]:
    """Check that a retried call begins another task than the failed one."""
    failed: set[str] = set()
    for event in events:
        if isinstance(event, e.ToolStopped) and event.failed is not None:
            failed.add(event.failed)
        elif isinstance(event, e.ToolStarted) and event.child in failed:
            text = f"{event.call} begins again with task {event.child}, which failed"
            yield Violation("children", task, event.seq, text)


def _created(events: Sequence[e.Event]) -> e.TaskCreated | None:
    first = events[0] if events else None
    forked = any(isinstance(event, e.TaskForked) for event in events)
    return first if isinstance(first, e.TaskCreated) and not forked else None


def _agrees_with_parent(
    task: str,
    events: Sequence[e.Event],
    created: e.TaskCreated,
    parent: Sequence[e.Event] | None,
    *,
    clocks_agree: bool,
) -> Iterator[Violation]:
    if parent is None:
        yield Violation("children", task, 1, f"its parent {created.parent} is not in the store")
        return
    calls = [event for event in parent if getattr(event, "call", None) == created.parent_call]
    begun = [event.seq for event in calls if isinstance(event, e.ToolStarted) and event.child == task]
    if not begun:
        yield Violation("children", task, 1, f"call {created.parent_call} of its parent is not this task")
        return
    # After the task has failed another may replace it. The first end after its begin is its own.
    ends = [event for event in calls if isinstance(event, e.ToolEnded) or _is_tried_again(event)]
    end: Any = next((event for event in ends if event.seq > begun[0]), None)
    if end is None:
        if isinstance(until_end(parent)[-1], e.TaskEnded):
            yield Violation("children", task, len(events), "its parent has ended and its call has not")
        return
    reopened = [event for event in events if isinstance(event, e.TaskReopened)]
    if clocks_agree:
        reopening = next((event for event in reopened if event.time >= end.time), None)
        if reopening is not None:
            yield from _was_given_up(task, reopening, parent, end, clocks_agree=True)
            events = events[: events.index(reopening)]
        late = next((event for event in events if isinstance(event, _STARTS) and event.time > end.time), None)
        if late is not None:
            yield Violation("children", task, late.seq, f"{late.kind} after its call had ended")
        yield from _agrees_with_end(task, events, end)
        return
    # The parent may hold the result of any end of the task.
    each = [[*_agrees_with_end(task, events, end)]]
    for reopening in reopened:
        given_up = _was_given_up(task, reopening, parent, end, clocks_agree=False)
        each.append([*given_up, *_agrees_with_end(task, events[: events.index(reopening)], end)])
    yield from min(each, key=len)


def _agrees_with_end(task: str, events: Sequence[e.Event], end: Any) -> Iterator[Violation]:
    """Check that the end of a call reports its task's answer and usage."""
    last = until_end(events)[-1]
    if not isinstance(last, e.TaskEnded):
        yield Violation("children", task, last.seq, "its call has ended and it has not")
    elif isinstance(end, e.ToolStopped):
        if end.failed != task or last.state in ("completed", "degraded"):
            yield Violation(
                "children", task, last.seq, f"it is {last.state}, and {end.failed} is said to fail"
            )
    elif end.outcome == "ok" and (last.state not in ("completed", "degraded") or last.output != end.output):
        text = f"it is {last.state} with {last.output!r}, and its call ended as {end.outcome} with {end.output!r}"
        yield Violation("children", task, last.seq, text)
    reported = sum(part.model_calls for part in end.spent)
    counted = _requests(events) + _requests_of_children(events)
    if counted != reported:
        text = f"{reported} requests were reported to its parent, and {counted} were made"
        yield Violation("children", task, last.seq, text)


def _was_given_up(
    task: str, reopening: e.TaskReopened, parent: Sequence[e.Event], end: Any, *, clocks_agree: bool
) -> Iterator[Violation]:
    """Check that a child is not reopened after its parent has its result, unless the parent has undone the call."""
    undone = [event for event in parent if isinstance(event, e.Rewound) and event.seq > end.seq]
    if clocks_agree:
        undone = [event for event in undone if event.time <= reopening.time]
    if not (undone or isinstance(end, e.ToolStopped)):
        yield Violation(
            "children", task, reopening.seq, "it is taken up again, and its parent has its result"
        )


def _is_tried_again(event: e.Event) -> bool:
    return isinstance(event, e.ToolStopped) and event.failed is not None


def _requests(events: Sequence[e.Event]) -> int:
    """Return the number of requests that a task began, including those of layers."""
    started = sum(isinstance(event, e.ModelStarted) for event in events)
    ends = [event for event in events if isinstance(event, (e.ModelReturned, e.ModelFailed))]
    return started + sum(len(event.also) for event in ends)


def _requests_of_children(events: Sequence[e.Event]) -> int:
    """Return the number of requests that the ends of a task's children report."""
    ends: list[Any] = [event for event in events if isinstance(event, e.ToolEnded) or _is_tried_again(event)]
    return sum(part.model_calls for event in ends for part in event.spent)


def _shared_limits(task: str, events: Sequence[e.Event], journals: Journals) -> Iterator[Violation]:
    """Check that a tree of tasks makes no more requests than its root's options ever allowed."""
    allowed: list[Any] = []
    for event in events:
        if isinstance(event, (e.TaskCreated, e.TaskForked, e.OptionsChanged)):
            limits: dict[str, Any] = (event.options or {}).get("limits") or {}
            allowed.append(limits.get("model_calls"))
    if not allowed or None in allowed:
        return
    tree = _tree(task, journals)
    counted = sum(_requests(journals[member]) for member in tree)
    if len(tree) > 1 and counted > max(allowed):
        yield Violation(
            "limits", task, len(events), f"{counted} requests of {max(allowed)} in {len(tree)} tasks"
        )


def _tree(task: str, journals: Journals) -> list[str]:
    """Return a task and all its descendants."""
    tree = [task]
    for member in tree:
        for event in journals[member]:
            child = event.child if isinstance(event, e.ToolStarted) else None
            if child is not None and child in journals and child not in tree:
                tree.append(child)
    return tree
