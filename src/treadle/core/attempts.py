"""Attempts at a question to a model: what is known of those that failed, and what else was sent on the way."""

from __future__ import annotations

from typing import Final

from treadle.core.events import IllegalEvent, ModelFailed, ModelStarted, TimerFired
from treadle.core.graph import Asked
from treadle.core.model import NO_USAGE, FailedAttempt, SideCall, Tries, Usage
from treadle.core.state import StepState, TaskState

NOT_SENT: Final = "not_sent"
"""The kind of failure of an attempt that a layer held back: nothing was asked, and nothing spent."""


def after_failure(tries: Tries | None, event: ModelFailed, epoch: int) -> Tries:
    """Return what is known of a question after one more attempt at it failed that another is to follow."""
    error = event.error
    failed = FailedAttempt(event.model, error.kind, error.status, event.time, event.route)
    before = tries.failures if tries is not None else ()
    return Tries((*before, failed), event.retry_at, event.next_route, epoch, error.message)


def begin(state: TaskState, question: StepState | Asked, event: ModelStarted) -> None:
    """Take down when trying to have a question answered began; refuse to ask it again before its time."""
    tries = question.tries
    if tries is not None and tries.retry_at is not None:
        raise IllegalEvent(
            f"task {state.task_id}: {event.kind} names {question.id}, which is not to be asked before {tries.retry_at}"
        )
    if tries is None or tries.epoch != state.epoch:
        question.asked_at = event.time
    state.model = event.model


def fire(state: TaskState, question: StepState | Asked, event: TimerFired) -> None:
    """Let a question be asked again; its time must have come."""
    tries = question.tries
    if tries is None or tries.retry_at is None or event.time < tries.retry_at:
        raise IllegalEvent(f"task {state.task_id}: no timer of {question.id} can fire at {event.time}")
    tries.retry_at = None


def count_failure(state: TaskState, step: StepState, event: ModelFailed) -> None:
    """Count what an attempt that failed came to: nothing if a layer held it back, more if others were sent besides."""
    if event.error.kind == NOT_SENT:
        state.model_calls -= 1
    spend(state, step, event.model, event.usage, event.cost)
    if event.also:
        count_side_calls(state, step, event.also)


def count_side_calls(state: TaskState, step: StepState, also: tuple[SideCall, ...]) -> None:
    """Count other requests that were sent on the way to an answer, or to none."""
    state.model_calls += len(also)
    for side in also:
        spend(state, step, side.model, side.usage, side.cost)


def spend(state: TaskState, step: StepState, model: str, usage: Usage, cost: int | None) -> None:
    """Take down what a request came to; of one that came to nothing there is nothing to say."""
    if usage == NO_USAGE:
        return
    step.usage, state.usage = step.usage + usage, state.usage + usage
    pay(state, step, model, cost)


def pay(state: TaskState, step: StepState, model: str, cost: int | None) -> None:
    """Take down what an answer cost, or whose cost nobody knows; without a model it is that of the one asked."""
    if cost is not None:
        step.cost += cost
        state.cost += cost
        return
    name = model or state.model
    if name not in state.unpriced:
        state.unpriced = (*state.unpriced, name)
    if name not in step.unpriced:
        step.unpriced = (*step.unpriced, name)
