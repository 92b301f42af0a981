"""How events change the permit of a call. Rules of `fold`."""

from __future__ import annotations

from typing import TypeAlias

from treadle.core import events as e
from treadle.core.checks import Check
from treadle.core.events import IllegalEvent
from treadle.core.ids import approval_id
from treadle.core.permits import Grant, Permit, digest_of
from treadle.core.rules import guardrails
from treadle.core.state import TaskState, not_allowed
from treadle.core.steps import CallState

PermitEvent: TypeAlias = (
    e.CallJudged
    | e.ApprovalRequested
    | e.ApprovalGiven
    | e.ApprovalDenied
    | e.ApprovalExpired
    | e.ApprovalVoided
)


def judge(state: TaskState, event: e.CallJudged) -> None:
    """Record the verdict of a policy on a call that is not judged yet, or that an approver edited."""
    call = _proposed_call(state, event)
    edited = call.permit is not None and call.permit.status == "edited"
    if call.permit is not None and not edited:
        raise _illegal(state, event, call)
    if event.verdict == "replace":
        call.arguments, call.problem, call.permit = event.arguments or {}, None, None
        call.replaced += 1
    elif event.verdict == "deny":
        call.permit = Permit(
            "denied", event.rule, _with_reason("it is not allowed", event.reason), traceback=event.traceback
        )
    elif call.permit is not None:
        call.permit.status = "approved"
    else:
        call.permit = Permit("allowed", event.rule, event.reason)


def request(state: TaskState, event: e.ApprovalRequested) -> None:
    """Record a request to approve a call."""
    call = _proposed_call(state, event)
    if call.permit is not None or event.number != call.requests + 1:
        raise _illegal(state, event, call)
    call.requests = event.number
    call.permit = Permit("asked", event.rule, event.reason, event, event.digest)
    state.open_approvals[call.id] = call


def give(state: TaskState, event: e.ApprovalGiven) -> None:
    """Record that a call was approved, with its arguments or others."""
    call, permit, request = _open_request(state, event)
    permit.status, permit.by = "approved", event.by
    if event.arguments is not None:
        call.arguments, call.problem = event.arguments, None
        permit.status, permit.digest = "edited", digest_of(event.arguments)
    if event.scope == "task":
        request_id = approval_id(call.id, event.number)
        same = tuple(dict.fromkeys((*request.same, *event.same)))
        covered = call.name, request.definition, request.rule
        state.grants.append(Grant(call.id, request_id, *covered, event.by, call.arguments, same))
    _settle(state, call)


def deny(state: TaskState, event: e.ApprovalDenied) -> None:
    """Record that a person denied a call."""
    call, permit, _ = _open_request(state, event)
    permit.status, permit.by = "denied", event.by
    permit.reason = _with_reason("the approver denied it", event.reason)
    _settle(state, call)


def expire(state: TaskState, event: e.ApprovalExpired) -> None:
    """Record the expiry. Its time must have come."""
    call, permit, request = _open_request(state, event)
    if event.time < request.expires:
        raise IllegalEvent(f"task {state.task_id}: the request to approve {call.id} has not expired")
    permit.status, permit.reason = "denied", "the request for its approval expired without a decision"
    _settle(state, call)


def void(state: TaskState, event: e.ApprovalVoided) -> None:
    """Record that an approval does not apply, so that the call is judged again."""
    call = _proposed_call(state, event)
    permit = call.permit
    if permit is None or permit.status != "approved" or call.requests != event.number:
        raise _illegal(state, event, call)
    call.permit = None


def use(state: TaskState, call: CallState, permit: Permit) -> None:
    """Record the start of a call, which consumes its permit."""
    if permit.status not in ("allowed", "approved", "used"):
        raise IllegalEvent(f"task {state.task_id}: call {call.id} starts and is {permit.status}")
    permit.status = "used"


def clear(state: TaskState, call: CallState) -> None:
    """Drop the decision on a call that has changed and is judged again."""
    call.permit = None
    state.open_approvals.pop(call.id, None)


def forget(state: TaskState) -> None:
    """Drop all decisions, since a fork inherits none."""
    for step in state.under_way():
        for call in step.open.values():
            clear(state, call)
    state.grants.clear()


def _settle(state: TaskState, call: CallState | Check) -> None:
    """Apply a person's decision on content to the task. Decisions on a call wait for its start."""
    if isinstance(call, Check):
        guardrails.settle(state, call)


def _proposed_call(state: TaskState, event: PermitEvent) -> CallState | Check:
    call = state.open_call(event.call) or state.checks.get(event.call)
    if call is None:
        raise IllegalEvent(f"task {state.task_id}: call {event.call} is not open")
    event.tool_name = call.name
    if call.status != "proposed":
        raise _illegal(state, event, call)
    return call


def _open_request(
    state: TaskState, event: e.ApprovalGiven | e.ApprovalDenied | e.ApprovalExpired
) -> tuple[CallState | Check, Permit, e.ApprovalRequested]:
    """Return the call of an open request, with its permit and request, and close the request."""
    call = _proposed_call(state, event)
    permit = call.permit
    if (
        permit is None
        or permit.status != "asked"
        or permit.request is None
        or permit.request.number != event.number
    ):
        raise _illegal(state, event, call)
    del state.open_approvals[call.id]
    return call, permit, permit.request


def _with_reason(clause: str, reason: str | None) -> str:
    return f"{clause}: {reason}" if reason else clause


def _illegal(state: TaskState, event: PermitEvent, call: CallState | Check) -> IllegalEvent:
    status = call.permit.status if call.permit is not None else call.status
    return not_allowed(state, event, status)
