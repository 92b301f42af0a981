"""The rules for every task, with any worker: undo, cancel, interrupt, pause, limits and the end.

The order of the rules is the order of `decide`. Each rule is tried only if those before it do not apply.

Also the judgement of requests to models before they are sent, which is the same for every worker.

The permit of a model call is the verdict on its next request. It holds until the call is answered or has failed, or
until another of several models is called.

Also calls in the background: their ends, and the open tickets of an answered task.

    option `at_end`     an answered task with open tickets
    wait, suspend       waits until all are completed or expired, then continues with their results
    detach              ends; a later result is stored with it
    cancel              cancels them, and ends
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.agents.decide.calls import (
    Closing,
    call_effect,
    close_calls,
    close_calls_of,
    may_have_acted,
    only_permitted,
)
from treadle.agents.decide.failures import degrade, fail, limit_text
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.cut_outputs import SPEC
from treadle.core.effects import CallModel, ConsultWorker, Decision, Effect, JudgeRequest, UndoCall, Wait
from treadle.core.ends import expired_end, observe, withdrawn_end
from treadle.core.graph import Graph
from treadle.core.ids import judgement_id, undo_id
from treadle.core.labels import Label
from treadle.core.observation import READ_OUTPUT, as_text
from treadle.core.rules.schedule import UNNEEDED
from treadle.core.state import TaskState, UndoState
from treadle.core.steps import CallState, StepState
from treadle.core.tickets import Completion
from treadle.policy.limits import has_room_for_an_answer


def completed_end(state: TaskState, rules: Rules) -> e.ToolEnded | None:
    """Return the end of the first call whose ticket is completed and whose tool no longer runs."""
    for call in state.completed.values():
        if call.status != "begun" and call.ticket is not None and call.ticket.completion is not None:
            return _end_of_background(call, call.ticket.completion, rules)
    return None


def _end_of_background(call: CallState, completion: Completion, rules: Rules) -> e.ToolEnded:
    if isinstance(completion, e.TicketExpired):
        return expired_end(call)
    label = delivered_label(call)
    if isinstance(completion, e.TicketFailed):
        failure = e.Failure("tool", "error", completion.error, call.id)
        return e.ToolEnded(call.step, call.id, "error", call.output, error=failure, label=label)
    end = e.ToolEnded(call.step, call.id, "ok", completion.output, label=label)
    reads_on = rules.tools.get(READ_OUTPUT) is SPEC
    return observe(end, as_text(completion.output), rules.max_chars, is_output=True, reads_on=reads_on)


def delivered_label(call: CallState) -> Label | None:
    """Return the label of a ticket holder's result: untrusted, even if the tool itself is trusted."""
    if call.label is None or call.label.integrity == "untrusted":
        return None  # the call has that label already
    return Label(call.label.origin, "untrusted")


def at_end(state: TaskState, rules: Rules) -> Wait | e.ToolEnded | None:
    """Return the action of an answered task with open tickets; None if it ends.

    A task that reached a limit does not wait, since it could not continue with the results.
    """
    if state.limit is not None or rules.at_end == "detach":
        return None
    if rules.at_end == "cancel":
        return withdrawn_end(next(iter(state.deferred.values())), "the task ended")
    return Wait("background", tuple(state.deferred.values()))


def only_judged(decision: Decision) -> Decision:
    """Return a decision in which each request to a model is first judged by the policies."""
    if not isinstance(decision, tuple):
        return decision
    return tuple([_judged(effect) for effect in decision])


def _judged(effect: Effect) -> Effect:
    if type(effect) is not CallModel or effect.call.status == "begun" or effect.call.permit == "allow":
        return effect
    return JudgeRequest(judgement_id(effect.id), effect.step, effect.call, effect.final)


DecideFunction = Callable[[TaskState, Rules], Decision]


def decide(state: TaskState, rules: Rules, work: DecideFunction, *, finalize: bool) -> Decision:
    """Return the task's next action; with `finalize`, an answered task is brought to its end."""
    if state.completed:
        end = completed_end(state, rules)
        if end is not None:
            return end
    if state.ended is not None:
        return Wait("ended")
    if state.overwritten:
        pair = state.overwritten[0]
        return e.StateOverwritten(pair.step, pair.kept, pair.lost, pair.keys)
    if state.cancelling:
        return _cancel(state)
    if state.interrupting:
        return () if state.in_flight() else Wait("interrupted")
    if state.undo is not None:
        return _undo(state, rules, state.undo)
    if state.pausing:
        return _in_flight(state) or Wait("paused")
    if state.answered:
        if state.graph is not None and state.graph.unneeded:
            return () if state.in_flight() else give_up(state.graph) or ()
        if not finalize:
            return Wait("answered")
        return (at_end(state, rules) if state.deferred else None) or _end(state, rules)
    if state.limit is not None and rules.knows_agent:
        at_limit = _at_limit(state, rules)
        if at_limit is not None:
            return at_limit
    decision = work(state, rules)
    if not rules.gated and not state.open_approvals and not state.questions:
        return decision
    decision = only_permitted(rules, decision)
    return only_judged(decision) if rules.judges_requests else decision


def _end(state: TaskState, rules: Rules) -> Decision:
    if rules.finalizes_answers and not state.finalized:
        if state.error is not None:
            return fail(state, state.error)
        return (ConsultWorker("finalize"),)
    reasons = tuple(state.reasons)
    return e.TaskEnded("degraded" if reasons else "completed", state.output, None, reasons)


def _in_flight(state: TaskState) -> tuple[Effect, ...]:
    """Return the effects that have begun, so that they continue."""
    effects: list[Effect] = [
        call_effect(call, call.child is not None)
        for step in state.under_way()
        for call in step.open.values()
        if call.status == "begun"
    ]
    for step, call in state.begun_model_calls():
        effects.append(CallModel(call.id or step.id, step, call, call.final))
    return tuple(effects)


def give_up(graph: Graph) -> Closing | None:
    """Return the end of the first step that is no longer needed, once none of its effects is in flight."""
    for node in graph.unneeded.values():
        step = node.step
        if step is None:
            return e.StepSkipped(node.id, UNNEEDED)
        has_begun = any(call.status == "begun" for call in step.open.values())
        if not has_begun and all(call.status != "begun" for call in node.model_calls.values()):
            ended = close_calls_of(step, "its step is not needed any more", "cancelled")
            return ended or e.StepSkipped(step.id, UNNEEDED)
    return None


# --------------------------------------------------------------------------------------------- cancel


def _cancel(state: TaskState) -> Decision:
    if state.in_flight():
        return ()
    open_call = close_calls(state, "the task was cancelled", "cancelled") or _close_undo(state)
    if open_call is None and state.deferred:
        open_call = withdrawn_end(next(iter(state.deferred.values())), "the task was cancelled")
    if open_call is not None:
        return open_call
    text = f"cancelled: {state.stop_reason}" if state.stop_reason else "cancelled"
    return e.TaskEnded("cancelled", None, e.Failure("agent", "cancelled", text), tuple(state.reasons))


def _close_undo(state: TaskState) -> e.Event | None:
    """Return the end of a compensation that a crash cut off: its outcome is unknown, or it did not happen."""
    for call in state.undo.queue if state.undo is not None else ():
        name = undo_id(call.id)
        if call.undo_status == "not_happened":
            text = f"the compensation of {call.name} did not happen, and was not begun again"
            return e.ToolEnded(call.step, name, "cancelled", error=e.Failure("tool", "cancelled", text, name))
        if call.undo_status == "lost":
            text = f"outcome_unknown: the compensation of {call.name} began and its end is not known"
            return e.ToolEnded(call.step, name, "unknown", error=e.Failure("tool", "unknown", text, name))
    return None


# ---------------------------------------------------------------------------------------------- limits


def _at_limit(state: TaskState, rules: Rules) -> Decision | None:
    """Return the decision on a reached limit; None lets the worker request a last answer."""
    step = state.step
    out_of_time = state.limit == "seconds"
    if (
        step is not None
        and step.model_call.final
        and step.model_call.status in (("answered",) if out_of_time else ("begun", "held", "answered"))
    ):
        return None  # only the limit on time stops a last answer in flight
    if state.in_flight() and (out_of_time or rules.on_limit != "pause"):
        return ()
    if rules.on_limit == "pause":
        return e.PauseRequested("limit", limit_text(state))
    open_call = close_calls(state, f"the limit on {state.limit} was reached", "refused")
    if open_call is not None:
        return open_call
    reason = limit_text(state)
    if rules.on_limit == "fail":
        return fail(state, e.Failure("limit", str(state.limit), reason))
    if step is not None and has_room_for_an_answer(rules.limits, state):
        return None
    return degrade(state, rules, reason)


# ----------------------------------------------------------------------------------------------- undo


def _undo(state: TaskState, rules: Rules, undo: UndoState) -> Decision:
    """Close the open calls of the undone steps, compensate all calls one by one, newest first, then rewind."""
    for step in state.under_way():
        open_call = close_calls_of(step, "its step was undone", "cancelled")
        if open_call is not None and is_undone(undo, step):
            return open_call
    if state.deferred:
        gone = {step.id for step in (*state.steps, *state.under_way()) if is_undone(undo, step)}
        for call in state.deferred.values():
            if call.step in gone:
                return withdrawn_end(call, "its step was undone")
    for call in undo.queue:
        if call.undo_status == "begun":
            return (UndoCall(undo_id(call.id), call),)
        if call.undo_status == "lost":
            return Wait("undo_unknown", (call,))
        if call.undo_status == "failed":
            return Wait("undo_failed", (call,))
        if call.undo_status in ("none", "not_happened"):
            return (UndoCall(undo_id(call.id), call),) if rules.knows_agent else Wait("undo_failed", (call,))
    return e.Rewound(undo.to, state.branch + 1, undo_report(state, undo), undo.steps)


def undo_report(state: TaskState, undo: UndoState) -> tuple[e.UndoneCall, ...]:
    """Return the progress of an undo for each call of the undone steps, newest first."""
    steps = [step for step in (*state.steps, *state.under_way()) if is_undone(undo, step)]
    return tuple(_undone(call) for step in reversed(steps) for call in reversed(step.calls))


def is_undone(undo: UndoState, step: StepState) -> bool:
    """Whether an undo takes a step back."""
    return step.id in undo.steps if undo.steps else step.index > undo.to


def _undone(call: CallState) -> e.UndoneCall:
    if call.in_doubt and call.undo_status == "none":
        return e.UndoneCall(call.id, call.name, "unknown", "it is not known whether the call took effect")
    if call.undo_status == "done":
        return e.UndoneCall(call.id, call.name, "compensated")
    if call.undo_status in ("begun", "lost"):
        return e.UndoneCall(call.id, call.name, "unknown", "the compensation began and its end is not known")
    if call.undo_status in ("failed", "skipped"):
        return e.UndoneCall(call.id, call.name, "not_compensated", call.undo_error)
    if not may_have_acted(call):
        return e.UndoneCall(call.id, call.name, "nothing_to_compensate")
    if not call.took_effect and (call.undo or (call.outcome is not None and call.child is None)):
        why = f"the call ended as {call.outcome}, so there is no result to take back"
    else:
        why = "waiting for its compensation" if call.undo else "the tool has no undo="
    return e.UndoneCall(call.id, call.name, "not_compensated", why)
