"""Limits that every worker reaches in the same way: steps and repeats."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.policy.progress import in_circles


def steps_reached(rules: Rules, started: int) -> e.LimitReached | None:
    """Return the limit on steps if it forbids one more after this number of started steps."""
    allowed = rules.limits.allowed_steps
    return e.LimitReached("steps", allowed, started) if started >= allowed else None


def repeats_reached(
    state: TaskState, rules: Rules, newest_first: Iterable[CallState]
) -> e.LimitReached | None:
    """Return the limit on repeats if it is reached; not while the model has not seen a new message."""
    most = rules.limits.allowed_repeats
    return in_circles(most, newest_first) if most is not None and not state.unread else None


def limit_text(state: TaskState) -> str:
    """Return the limit that the task reached, with its details, as text."""
    return f"limit reached: {state.limit}" + (f": {state.limit_detail}" if state.limit_detail else "")
