"""The effects for the open tool calls of a task, and the ends of calls that must stop.

    status of an open call    next action
    proposed                  begin, within the limits on calls and parallelism; first judge it, if it must be judged
      asked                   none: a person decides whether it begins
      denied                  end
    asking                    none: a person answers its question, and then it begins again
    begun                     perform it, or let it go on
    sleeping                  none: a timer has it begin again
    deferred                  none: its work goes on in the background, and its ticket ends it
    parked                    go on: the call runs an agent, whose task is at rest
      out of time             end, and its task with it
    lost                      reconcile, else apply the policy for unknown outcomes
    unresolved                settle

Joins of subagents: how many of the agents called in one answer must answer before the step continues.

    join         the step goes on                            a failed agent
    all          after the end of each                       is for the failure policy
    any, n       once so many answered; the rest is stopped  is for the failure policy if too few answered
    optional     after the end of each                       is for the model
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.checks import Check
from treadle.core.effects import CallTool, Decision, Effect, JudgeCall, Reconcile, RunAgent, StopAgent, Wait
from treadle.core.ends import not_begun, unknown_end, withdrawn_end, withheld_end
from treadle.core.ids import judgement_id, stop_id
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState

Closing: TypeAlias = e.Event | tuple[StopAgent, ...]
"""The end of a call, or the effects that are needed before it can end."""


def want_call(
    rules: Rules, call: CallState, effects: list[Effect], waiting: list[CallState], most: int
) -> e.ToolEnded | None:
    """Add the effect of an open call, add the call to `waiting`, or return its end.

    Args:
        rules: the rules of the task.
        call: a call of a running step.
        effects: the effects of the task so far.
        waiting: the calls so far that are in the background, or wait for a person's approval, answer or settlement.
        most: a call begins as long as there are fewer effects.
    """
    if call.status == "begun":
        effects.append(call_effect(call, call.child is not None))
    elif call.status == "proposed":
        if call.permit is not None or rules.gated:
            return _want_permitted(rules, call, effects, waiting, most)
        if len(effects) < most:
            effects.append(call_effect(call, call.name in rules.agents))
    elif call.status == "parked":
        effects.append(_stop_late(rules, call) or call_effect(call, True))
    elif call.status in ("asking", "sleeping", "deferred"):
        waiting.append(call)
    elif call.status in ("lost", "unresolved"):
        spec = rules.tools.get(call.name)
        end = settled_end(call)
        if end is not None:
            return end
        if call.status == "lost" and spec is not None and spec.reconcilable:
            effects.append(Reconcile(f"{call.id}-reconcile", call))
        elif rules.on_unknown_outcome == "wait":
            waiting.append(call)
        else:
            return unknown_end(call)
    return None


def _stop_late(rules: Rules, call: CallState) -> StopAgent | None:
    """Return the stop of an agent whose call is out of time; None if it has time left."""
    if call.stopped is None or call.stopped.kind != "timeout":
        return None
    spec = rules.tools.get(call.name)
    retries = spec is not None and len(call.failed_children) < spec.retries
    return StopAgent(stop_id(call.id), call, "timeout", call.stopped.message, retries)


Permission = Literal["start", "judge", "ask", "deny"]


def permission_of(rules: Rules, call: CallState) -> Permission:
    """Return whether a proposed call starts, needs a judgement, waits for a person, or is denied."""
    permit = call.permit
    if permit is None:
        spec = rules.tools.get(call.name)
        is_asking = spec is not None and spec.needs_approval
        return "judge" if call.name in rules.judged or is_asking else "start"
    if permit.status == "asked":
        return "ask"
    if permit.status == "edited":
        return "judge"
    return "deny" if permit.status == "denied" else "start"


def _want_permitted(
    rules: Rules, call: CallState, effects: list[Effect], waiting: list[CallState], most: int
) -> e.ToolEnded | None:
    """Do as `want_call` does, for a proposed call in a task whose calls are judged."""
    permission = permission_of(rules, call)
    if permission == "ask":
        waiting.append(call)
    elif permission == "deny":
        return denied_end(call)
    elif len(effects) < most:
        starts = permission == "start"
        effects.append(call_effect(call, call.name in rules.agents) if starts else judgement(call))
    return None


def judgement(call: CallState) -> JudgeCall:
    """Return the effect that judges whether a call may start."""
    return JudgeCall(judgement_id(call.id), call)


def denied_end(call: CallState) -> e.ToolEnded:
    """Return the end of a call that was denied."""
    why, traceback = (call.permit.reason, call.permit.traceback) if call.permit is not None else ("", "")
    text = f"{not_begun(call)}: {why.rstrip('.')}."
    return withheld_end(call, "denied", e.Failure("tool", "denied", text, call.id, traceback=traceback))


def wait_for_calls(calls: Sequence[CallState | Check]) -> Wait:
    """Return the wait of a task for decisions about these calls, or for their ends in the background."""
    statuses = {call.status for call in calls}
    if "sleeping" in statuses:
        return Wait("timer", tuple(calls))
    if statuses == {"deferred"}:
        return Wait("background", tuple(calls))
    reason = "approval" if "proposed" in statuses else "question" if "asking" in statuses else "settlement"
    return Wait(reason, tuple(calls))


def only_permitted(rules: Rules, decision: Decision) -> Decision:
    """Return a decision without calls that are not permitted: those not judged, waiting for a person, or denied.

    Calls with an unanswered question are removed too. Custom workers need this, as they decide on calls themselves.
    """
    if not isinstance(decision, tuple):
        return decision
    effects: list[Effect] = []
    waiting: list[CallState] = []
    for effect in decision:
        if isinstance(effect, (CallTool, RunAgent)) and effect.call.status == "proposed":
            end = _want_permitted(rules, effect.call, effects, waiting, len(effects) + 1)
            if end is not None:
                return end
        elif isinstance(effect, CallTool) and effect.call.status in ("asking", "sleeping"):
            waiting.append(effect.call)
        else:
            effects.append(effect)
    return wait_for_calls(waiting) if waiting and not effects else tuple(effects)


def call_effect(call: CallState, is_agent: bool) -> CallTool | RunAgent:
    """Return the effect that performs a call."""
    return RunAgent(call.id, call) if is_agent else CallTool(call.id, call)


def close_calls(state: TaskState, why: str, outcome: e.Outcome) -> Closing | None:
    """Return the end of the first open call that is not in flight, so that history stays well-formed."""
    for step in state.under_way():
        end = close_calls_of(step, why, outcome)
        if end is not None:
            return end
    return None


def close_calls_of(step: StepState, why: str, outcome: e.Outcome) -> Closing | None:
    """Return the end of the first of a step's open calls that is not in flight.

    The tasks of parked calls are stopped once all other calls are closed.
    """
    stops: list[StopAgent] = []
    for call in step.open.values():
        if call.status == "parked":
            stops.append(StopAgent(stop_id(call.id), call, outcome, why))
            continue
        end = closing_end(call, why, outcome)
        if end is not None:
            return end
    return tuple(stops) or None


def closing_end(call: CallState, why: str, outcome: e.Outcome) -> e.ToolEnded | None:
    """Return the end of an open call; None if it is in flight or runs an agent."""
    if call.status == "asking" or call.status == "sleeping":
        did = "asked a person" if call.status == "asking" else "slept"
        text = f"{call.name} {did} and does not go on: {why}."
        return withheld_end(call, outcome, e.Failure("tool", outcome, text, call.id))
    if call.status == "proposed":
        text = f"{not_begun(call)}: {why}."
        return withheld_end(call, outcome, e.Failure("tool", outcome, text, call.id))
    if call.status in ("lost", "unresolved"):
        return settled_end(call) or unknown_end(call)
    return withdrawn_end(call, why) if call.status == "deferred" else None


def settled_end(call: CallState) -> e.ToolEnded | None:
    """Return the end of a lost call that turned out to have happened."""
    if call.status != "unresolved" or call.outcome != "ok":
        return None
    return e.ToolEnded(call.step, call.id, "ok", call.output)


def may_have_acted(call: CallState) -> bool:
    """Whether a call may have changed something outside the task."""
    if call.in_doubt or call.acted or call.is_halfway:
        return True
    if call.effect == "read" or not call.attempt:
        return False
    if call.report is not None and call.report.answered_by is not None:
        return False  # its tool did not run
    if call.child is not None:
        return True  # however its task ended, calls in it may have changed something
    # A call that turned out not to have happened may begin again, or was ended like a call that never began; a call
    # that asked may begin again too.
    waits = call.status in ("proposed", "asking", "sleeping") and call.stopped is None
    return not waits and call.outcome not in ("invalid", "refused", "denied", "cancelled")


_ENOUGH: Final = "enough of the agents called beside it answered"


def is_joined(rules: Rules, step: StepState) -> bool:
    """Whether enough agents of a step have answered, so that the others are not needed."""
    needed, answered, _ = _counts(rules, step)
    return needed is not None and answered >= needed


def stop_unneeded(call: CallState, effects: list[Effect]) -> e.ToolEnded | None:
    """Add the stop of an agent's call that is no longer needed, or return its end.

    A call in flight gets no effect, so it is first cancelled and then stopped for good.
    """
    if call.status == "parked":
        effects.append(StopAgent(stop_id(call.id), call, "cancelled", _ENOUGH))
        return None
    return closing_end(call, _ENOUGH, "cancelled")


def failures_that_count(rules: Rules, step: StepState) -> list[CallState]:
    """Return the failed calls of a step to which the failure policies apply."""
    failed = [call for call in step.calls if call.failed]
    if rules.join == "all" or not failed:
        return failed
    if rules.join == "optional" or is_joined(rules, step):
        return [call for call in failed if call.name not in rules.agents]
    return failed


def failure_of(rules: Rules, step: StepState, call: CallState, error: e.Failure) -> e.Failure:
    """Return the failure of a step because of a failed call. With a join, it says how many agents answered."""
    needed, answered, called = _counts(rules, step)
    if needed is None or call.name not in rules.agents:
        return error
    text = f"{answered} of {called} agents answered, and {needed} had to: {error.message}"
    return replace(error, message=text)


def _counts(rules: Rules, step: StepState) -> tuple[int | None, int, int]:
    """Return how many agents of a step must answer, how many did, and how many were called.

    The first number is None if each must answer.
    """
    called = [call for call in step.calls if call.name in rules.agents]
    answered = sum([call.outcome == "ok" for call in called])
    if rules.join == "any":
        return min(1, len(called)), answered, len(called)
    needed = min(rules.join, len(called)) if isinstance(rules.join, int) else None
    return needed, answered, len(called)
