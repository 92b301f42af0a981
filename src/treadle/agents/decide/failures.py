"""Consequences of a failure: a pause, another attempt of the step, or the end of the task.

Also the limits that every worker reaches in the same way: steps and repeats.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.agents.decide.rules import Rules, ToolFailurePolicy
from treadle.core import events as e
from treadle.core.messages import Json
from treadle.core.rules.fold import FAILURE_POLICY
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState
from treadle.policy.progress import in_circles


def steps_reached(rules: Rules, started: int) -> e.LimitReached | None:
    """Return the limit on steps if it forbids one more after this number of started steps."""
    allowed = rules.limits.allowed_steps
    return e.LimitReached("steps", allowed, started) if started >= allowed else None


def repeats_reached(
    state: TaskState, rules: Rules, newest_first: Iterable[CallState]
) -> e.LimitReached | None:
    """Return the limit on repeats if it is reached; None while a new message is unseen by the model."""
    most = rules.limits.allowed_repeats
    return in_circles(most, newest_first) if most is not None and not state.unread else None


def limit_text(state: TaskState) -> str:
    """Return the limit that the task reached, with its details, as text."""
    return f"limit reached: {state.limit}" + (f": {state.limit_detail}" if state.limit_detail else "")


def policy_for(rules: Rules, source: str) -> ToolFailurePolicy:
    """Return the failure policy for a source: `model`, `tool` or `subagent`. Other failures fail the task."""
    if source == "model":
        return rules.on_model_failure
    if source == "tool":
        return rules.on_tool_failure
    return rules.on_subagent_failure if source == "subagent" else "fail"


def pause(step: StepState, reason: str) -> e.PauseRequested | None:
    """Return the pause for a failure of a step; None if it was requested before and lifted since."""
    return None if step.paused else e.PauseRequested(FAILURE_POLICY, reason)


def next_attempt(step: StepState) -> e.StepStarted:
    """Return the start of a failed step's next attempt."""
    return e.StepStarted(step.id, step.index, step.attempt + 1)


def fail(state: TaskState, error: e.Failure) -> e.TaskEnded:
    """Return the end of a task that cannot go on."""
    return e.TaskEnded("failed", None, error, tuple(state.reasons))


def degrade(state: TaskState, rules: Rules, reason: str, error: e.Failure | None = None) -> e.TaskEnded:
    """Return the end of a task that cannot go on, with its answer so far."""
    return e.TaskEnded("degraded", partial_answer(state, rules), error, (*state.reasons, reason))


def partial_answer(state: TaskState, rules: Rules) -> Json:
    """Return the task's last answer, else the last text of the model, else an empty text.

    If answers are typed, return the last valid one, else None.
    """
    if rules.output_retries is not None:
        typed = state.step.typed if state.step is not None else None
        return typed.output if typed is not None and typed.problem is None else None
    for step in (*state.under_way(), *reversed(state.steps[state.floor :])):
        node = state.node_of(step.id)
        if node is not None and node.overtaken is not None:
            return step.output
        if step.text:
            return step.text
    return ""
