"""The states of tasks, as callers see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast

from treadle.core.state import TaskState, TicketExpiry
from treadle.core.steps import CallState
from treadle.ports import BETWEEN_STEPS, TaskRow

NO_TASKS: Final[Mapping[str, TaskState]] = {}
"""The tasks below a task if none is known."""

StateWord = Literal[
    "created",
    "running",
    "answered",
    "completed",
    "degraded",
    "failed",
    "cancelled",
    "paused",
    "waiting",
    "interrupted",
]

UNSETTLED: Final = ("lost", "unresolved")
"""The statuses of calls with unknown outcomes, until they are settled."""


def state_text(state: StateWord, *, driven: bool) -> str:
    """Return a task's state for people to read: a `running` task that no process drives is between steps."""
    return BETWEEN_STEPS if state == "running" and not driven else state


def state_at_rest(state: TaskState) -> StateWord:
    """Return the state of a task at rest, as callers see it."""
    if state.ended is not None:
        return state.ended
    if state.pausing:
        return "paused"
    if state.interrupting:
        return "interrupted"
    if state.undo is not None or any(True for _ in unsettled_calls(state)):
        return "waiting"
    if any(not isinstance(timer, TicketExpiry) for timer in state.timers()):
        return "waiting"
    if state.deferred and (state.answered or state.graph is not None):
        return "waiting"
    if state.questions:
        return "waiting"
    if any(True for _ in stopped_subagents(state)):
        return "waiting"
    if state.answered:
        return "answered"
    return "running" if state.began else "created"


def unsettled_calls(state: TaskState) -> Iterable[CallState]:
    """Return the calls with unknown outcomes."""
    calls = (call for step in state.under_way() for call in step.open.values())
    return (call for call in calls if call.status in UNSETTLED and call.outcome is None)


def stopped_subagents(state: TaskState) -> Iterable[CallState]:
    """Return the calls of agents whose tasks have stopped."""
    calls = (call for step in state.under_way() for call in step.open.values())
    return (call for call in calls if call.status == "parked" and call.stopped is not None)


def state_of_row(row: TaskRow) -> StateWord:
    """Return a task's state by its row. If its driver crashed, the task is interrupted."""
    return cast("StateWord", row.display_state)
