"""How events change a request to a model, in plain steps and in step functions.

    event                      from                      to
    ModelStarted               not begun, not held       begun      (refused while a timer is pending)
    ModelReturned              begun, held               answered
    AnswerHeld                 begun                     held       (proposed if the input was rewritten meanwhile)
    ModelFailed, retry_at set  begun                     proposed   (a timer is pending)
    ModelFailed                begun, held               failed
    ModelStopped               begun, held               proposed
    TimerFired                 proposed, timer pending   proposed   (no timer)
    RequestJudged              not begun, not held       the same   (with the verdict, which holds until it ends)

The request of a plain step is `StepState.model_call`. It begins again after an answer that does not fit the output
type, or if a limit asks for a last answer. A step function's requests are in `StepNode.model_calls` until they end.
Each is sent once. `fold` and `schedule` apply answers to the conversation.
"""

from __future__ import annotations

from typing import Final

from treadle.core.events import (
    AnswerHeld,
    IllegalEvent,
    ModelFailed,
    ModelReturned,
    ModelStarted,
    ModelStopped,
    RequestJudged,
    TimerFired,
)
from treadle.core.model import NO_USAGE, FailedAttempt, SideCall, Tries, Usage
from treadle.core.origins import merged
from treadle.core.state import TaskState, not_running
from treadle.core.steps import ModelCall, StepState

UNSENT: Final = frozenset(("not_sent", "denied"))
"""The kinds of failure of an attempt that a layer or a policy held back, before a request was sent."""

ModelEvent = (
    RequestJudged | ModelStarted | AnswerHeld | ModelReturned | ModelFailed | ModelStopped | TimerFired
)


def judge(state: TaskState, event: RequestJudged) -> None:
    """Record the policies' verdict on a request before it is sent."""
    step, call = _request_of(state, event)
    if call.status in ("begun", "held"):
        raise _not_begun(state, step, call, event)
    call.permit = event.verdict


def allow_asked(state: TaskState) -> None:
    """Allow the requests that a person had to decide, after a resume of the task that paused for them."""
    for _, call in state.open_model_calls():
        if call.permit == "ask":
            call.permit = "allow"


def forget_permits(state: TaskState) -> None:
    """Reset the verdicts on unsent requests, since permission for a task is not permission for its fork."""
    for _, call in state.open_model_calls():
        call.permit = None
        void(call)


def start(state: TaskState, event: ModelStarted) -> None:
    """Record that a request was sent. Refuse one that was sent before its time."""
    step, call = _request_of(state, event)
    tries = call.tries
    if tries is not None and tries.retry_at is not None:
        raise IllegalEvent(
            f"task {state.task_id}: {event.kind} names {call.id or step.id}, "
            f"which is not to be asked before {tries.retry_at}"
        )
    if call.status == "begun" or call.status == "held":
        raise IllegalEvent(
            f"task {state.task_id}: {event.kind} names {call.id or step.id}, which is asked already"
        )
    if tries is None or tries.epoch != state.epoch:
        call.asked_at = event.time
    call.status, call.attempt, call.final, call.offered = "begun", event.attempt, event.final, event.offered
    call.error = step.error = None
    step.paused = False
    state.model = event.model
    state.model_calls += 1
    if event.untrusted:
        step.shown = merged(step.shown, event.untrusted)


def finish(state: TaskState, event: ModelReturned | AnswerHeld) -> tuple[StepState, ModelCall]:
    """Record the answer to a request, or that it is held, and its cost. Return the step and the request."""
    step, call = _request_of(state, event)
    if call.status == "begun":
        usage, cost = event.usage, event.cost
        step.usage = step.usage + usage
        state.usage = state.usage + usage
        if cost is None:
            _note_unpriced(state, step, event.model)
        else:
            step.cost += cost
            state.cost += cost
        if event.also:
            _count_side_calls(state, step, event.also)
        state.last_request_tokens = usage.input_tokens + usage.output_tokens
        state.last_request_cost = cost or 0
    elif call.status != "held" or type(event) is AnswerHeld:
        raise _not_begun(state, step, call, event)
    if type(event) is AnswerHeld:
        call.status, call.held = "held", event
        if call.void:
            void(call)
        return step, call
    call.status, call.message, call.finish, call.usage = "answered", event.message, event.finish, event.usage
    call.tries = call.permit = call.held = None
    state.turn += 1
    return step, call


def void(call: ModelCall) -> None:
    """Discard the answer to a request whose input was rewritten or whose task is a fork."""
    if call.status == "held":
        call.status, call.held, call.void, call.final = "proposed", None, False, False
    else:
        call.void = call.status == "begun"


def fail(state: TaskState, event: ModelFailed) -> tuple[StepState, ModelCall]:
    """Record a failed attempt and its cost. Return the step and the request."""
    step, call = _request_of(state, event)
    if call.status not in ("begun", "held"):
        raise _not_begun(state, step, call, event)
    error = event.error
    if error.kind in UNSENT:
        state.model_calls -= 1
    _spend(state, step, event.model, event.usage, event.cost)
    if event.also:
        _count_side_calls(state, step, event.also)
    call.final, call.held, call.void = False, None, False
    if event.retry_at is None or event.next_route != event.route:
        call.permit = None
    if event.retry_at is None:
        call.status, call.error, call.tries = "failed", error, None
    else:
        attempt = FailedAttempt(event.model, error.kind, error.status, event.time, event.route)
        before = call.tries.failures if call.tries is not None else ()
        failures = (*before, attempt)
        call.status = "proposed"
        call.tries = Tries(failures, event.retry_at, event.next_route, state.epoch, error.message)
    return step, call


def stop(state: TaskState, event: ModelStopped) -> None:
    """Record that a request was stopped before its answer, and its cost. It is sent again when the task continues."""
    step, call = _request_of(state, event)
    if call.status not in ("begun", "held"):
        raise _not_begun(state, step, call, event)
    _spend(state, step, "", event.usage, event.cost)
    call.status, call.final, call.held, call.void = "proposed", False, None, False


def fire(state: TaskState, event: TimerFired) -> None:
    """Let a request be sent again. Its time must have come."""
    step, call = _request_of(state, event)
    tries = call.tries
    if tries is None or tries.retry_at is None or event.time < tries.retry_at:
        raise IllegalEvent(f"task {state.task_id}: no timer of {call.id or step.id} can fire at {event.time}")
    tries.retry_at = None


def _request_of(state: TaskState, event: ModelEvent) -> tuple[StepState, ModelCall]:
    graph = state.graph
    if graph is None:
        step = state.step
        if step is not None and step.id == event.step:
            return step, step.model_call
    elif (node := graph.of(event.step)) is not None and node.step is not None:
        call = node.model_calls.get(event.call or "")
        if call is not None:
            return node.step, call
        raise IllegalEvent(f"task {state.task_id}: step {node.id} has no request {event.call} to the model")
    raise not_running(state, event)


def _not_begun(state: TaskState, step: StepState, call: ModelCall, event: ModelEvent) -> IllegalEvent:
    name = call.id or step.id
    return IllegalEvent(f"task {state.task_id}: {event.kind} names {name}, whose request is {call.status}")


def _count_side_calls(state: TaskState, step: StepState, also: tuple[SideCall, ...]) -> None:
    """Add the usage of side calls."""
    state.model_calls += len(also)
    for side in also:
        _spend(state, step, side.model, side.usage, side.cost)


def _spend(state: TaskState, step: StepState, model: str, usage: Usage, cost: int | None) -> None:
    """Add the usage of a request. Without usage there is no cost either."""
    if usage == NO_USAGE:
        return
    step.usage, state.usage = step.usage + usage, state.usage + usage
    if cost is None:
        _note_unpriced(state, step, model)
    else:
        step.cost += cost
        state.cost += cost


def _note_unpriced(state: TaskState, step: StepState, model: str) -> None:
    """Record the name of a model whose price is not known, by default that of the requested model."""
    name = model or state.model
    if name not in state.unpriced:
        state.unpriced = (*state.unpriced, name)
    if name not in step.unpriced:
        step.unpriced = (*step.unpriced, name)
