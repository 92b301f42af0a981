"""Guardrail checks that are due before a task continues; the same for every worker.

The worker decides only once no check is due; its effects may then wait for further checks.

    input that no step has read     is judged before the step starts, if a guardrail is blocking or steps are functions
    input of the step               is judged during the request; the answer is held until the input has passed
    an answer that is held          is judged, and continues as `ModelReturned`, or its attempt fails
    the result of a call            is judged before the next request, or before the calling function reads it
    an answer that no model wrote   is judged before its step ends
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from treadle.agents.decide.calls import close_calls, wait_for_calls
from treadle.agents.decide.failures import fail
from treadle.agents.decide.lifecycle import DecideFunction
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.checks import (
    Check,
    answer_content,
    input_content,
    is_judged,
    refusal,
    result_content,
    standing,
)
from treadle.core.data import mutable
from treadle.core.effects import CallModel, Decision, Effect, JudgeContent, ReleaseAnswer, RunFunction, Wait
from treadle.core.ids import (
    answer_place,
    final_place,
    input_place,
    is_final,
    judgement_id,
    release_id,
    result_place,
)
from treadle.core.messages import Json
from treadle.core.permits import digest_of
from treadle.core.state import TaskState
from treadle.core.steps import CallState, ModelCall, StepState
from treadle.policy.guardrails import Guardrail


def guarded(work: DecideFunction) -> DecideFunction:
    """Return a worker whose decisions wait for the guardrails."""

    def decide(state: TaskState, rules: Rules) -> Decision:
        due = _before_work(state, rules)
        if due is None:
            return _beside_work(state, rules, work(state, rules))
        return _beside_work(state, rules, due) if due and not isinstance(due, e.Event) else due

    return decide


def guarded_rules(rules: Rules, guardrails: Sequence[Guardrail], *, runs_functions: bool) -> Rules:
    """Return the rules of a drive with its guardrails. Functions may act before they call a model."""
    contents = frozenset(content for each in guardrails for content in each.on)
    blocking = runs_functions or any(each.blocking for each in guardrails)
    return replace(
        rules,
        guarded=contents,
        guarded_tools=frozenset(
            name for name in rules.tools if any(each.checks("result", name) for each in guardrails)
        ),
        blocks_input="input" in contents and blocking,
    )


@mutable
class _Due:
    """The pending guardrail checks of some contents."""

    effects: list[Effect]
    pending: list[Check]
    refused: Check | None = None

    def look(self, state: TaskState, judgement: JudgeContent, *, guarded: bool) -> None:
        """Add the check of a content. Content that was not judged passes if no guardrail is on it."""
        check = state.checks.get(judgement.place)
        status = standing(check)
        if status == "open":
            if guarded or (check is not None and check.permit is not None):
                self.effects.append(judgement)
        elif check is not None and status == "asked":
            self.pending.append(check)
        elif check is not None and status == "refused":
            self.refused = self.refused or check

    @property
    def is_open(self) -> bool:
        """Whether some content has not passed."""
        return bool(self.effects or self.pending) or self.refused is not None


def _judge(
    state: TaskState, step: str, place: str, guards: e.GuardedContent, content: dict[str, Json]
) -> JudgeContent:
    check = state.checks.get(place)
    content = check.arguments if check is not None and check.arguments else content
    return JudgeContent(judgement_id(place), step, place, guards, content)


def _inputs(state: TaskState, rules: Rules, inputs: Iterable[e.InputReceived], step: str = "") -> _Due:
    due = _Due([], [])
    for received in inputs:
        place, content = input_place(received.seq), input_content(received.parts)
        call = _arrived_as(state, received)
        if call is None:
            due.look(state, _judge(state, step, place, "input", content), guarded="input" in rules.guarded)
        elif not _is_used(state.checks.get(place)):
            judgement = _judge(state, "", place, "result", content)
            judgement.tool = call.name
            due.look(state, judgement, guarded=call.name in rules.guarded_tools)
    return due


def _arrived_as(state: TaskState, received: e.InputReceived) -> CallState | None:
    """Return the background call whose result arrived as this input; None for a message."""
    return next(
        (call for call in state.arrived if call.ticket is not None and call.ticket.arrival is received), None
    )


def _is_used(check: Check | None) -> bool:
    """Whether a refused content has already stopped its step or task. From then on it is read as withheld."""
    return check is not None and check.permit is not None and check.permit.status == "used"


def _answer(state: TaskState, rules: Rules, step: StepState, call: ModelCall) -> _Due:
    due = _Due([], [])
    assert call.held is not None, "it is held"
    place = answer_place(call.id or step.id, call.attempt)
    judgement = _judge(state, step.id, place, "output", answer_content(call.held))
    due.look(state, judgement, guarded="output" in rules.guarded)
    return due


def _results(state: TaskState, rules: Rules, calls: Sequence[CallState]) -> _Due:
    due = _Due([], [])
    for call in calls:
        if not is_judged(call) or _is_used(state.checks.get(result_place(call.id))):
            continue
        judgement = _judge(state, call.step, result_place(call.id), "result", result_content(call))
        judgement.tool = call.name
        due.look(state, judgement, guarded=is_result_guarded(rules, call))
    return due


def is_result_guarded(rules: Rules, call: CallState) -> bool:
    """Whether guardrails judge the result of a call."""
    return call.name in rules.guarded_tools


# --------------------------------------------------------------------------------------- before a worker


def _before_work(state: TaskState, rules: Rules) -> Decision | None:
    """Return the checks that are due before the worker decides; None if none is."""
    if state.graph is not None:
        return _before_functions(state, rules)
    step = state.step
    if step is None or step.status != "running":
        return None
    call = step.model_call
    inputs = _inputs(state, rules, step.read, step.id)
    if inputs.refused is not None or call.void:
        if call.status == "begun":
            return ()
        if inputs.refused is not None:
            return e.StepFailed(step.id, refusal(inputs.refused))
    if call.status == "held":
        answer = _answer(state, rules, step, call)
        if answer.refused is not None:
            return e.ModelFailed(step.id, refusal(answer.refused))
        effects, pending = [*inputs.effects, *answer.effects], [*inputs.pending, *answer.pending]
        if effects or pending:
            return tuple(effects) or wait_for_calls(pending)
        return (ReleaseAnswer(release_id(step.id), step, call),)
    if step.calls and not step.open:
        results = _results(state, rules, step.calls)
        if results.refused is not None:
            return e.StepFailed(step.id, refusal(results.refused))
        if results.is_open:
            return tuple(results.effects) or wait_for_calls(results.pending)
    return None


def _before_functions(state: TaskState, rules: Rules) -> e.Event | None:
    """Return the event for a refused content of a step function; None if none was refused."""
    assert state.graph is not None, "its steps are functions"
    for node in state.graph.running.values():
        step = node.step
        if step is None or node.id in state.graph.unneeded:
            continue
        refused: Check | None = None
        for call_id, call in node.model_calls.items():
            if call.status == "held":
                answer = _answer(state, rules, step, call).refused
                if answer is not None:
                    return e.ModelFailed(step.id, refusal(answer), call_id)
        for check in state.checks.values():
            is_refused = (
                check.step == step.id and check.permit is not None and check.permit.status == "denied"
            )
            if is_refused and check.guards != "input":
                refused = refused or check
        if refused is not None and all(call.status != "begun" for call in step.open.values()):
            return e.StepFailed(step.id, refusal(refused))
    return None


# --------------------------------------------------------------------------------------- beside a worker


def _beside_work(state: TaskState, rules: Rules, decision: Decision) -> Decision:
    """Return a worker's decision with the guardrail checks beside it, or the checks before it."""
    if isinstance(decision, e.StepStarted):
        return _before_start(state, rules, decision)
    if isinstance(decision, e.StepCompleted):
        return _before_end(state, rules, decision)
    if isinstance(decision, e.Event):
        return decision
    if state.graph is not None:
        return _beside_functions(state, rules, decision)
    step = state.step
    if step is None or step.status != "running":
        return decision
    results = _results(state, rules, step.calls) if step.open else _Due([], [])
    if isinstance(decision, Wait):
        due = [*results.effects, *_inputs(state, rules, step.read, step.id).effects]
        if due:
            return tuple(due)
        if results.pending and decision.reason in ("approval", "settlement"):
            return Wait("approval", (*decision.calls, *results.pending))
        return decision
    effects = [*decision, *results.effects]
    if any(type(effect) is CallModel for effect in decision):
        inputs = _inputs(state, rules, step.read, step.id)
        effects += inputs.effects
        if inputs.pending and step.model_call.status != "begun":
            effects = [effect for effect in effects if type(effect) is not CallModel]
            return tuple(effects) or wait_for_calls(inputs.pending)
    return _once(effects)


def _once(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return effects without duplicates."""
    return tuple({effect.id: effect for effect in effects}.values())


def _before_start(state: TaskState, rules: Rules, start: e.StepStarted) -> Decision:
    """Return the start of a step, or the checks of its input that must come before it."""
    inputs = _inputs(state, rules, state.unread)
    if inputs.refused is not None:
        return _stop(state, inputs.refused)
    results = [
        effect for effect in inputs.effects if type(effect) is JudgeContent and effect.guards == "result"
    ]
    comes_first = rules.blocks_input or results or any(check.guards == "result" for check in inputs.pending)
    if not comes_first or not inputs.is_open:
        return start
    return tuple(inputs.effects) or wait_for_calls(inputs.pending)


def _stop(state: TaskState, refused: Check) -> Decision:
    """Return the end of a task whose input was refused before a step read it. Effects in flight stop first."""
    if state.in_flight():
        return ()
    error = refusal(refused)
    return close_calls(state, error.message, "refused") or fail(state, error)


def is_input_held(state: TaskState, rules: Rules) -> bool:
    """Whether steps may not start yet, because their input has not passed."""
    return rules.blocks_input and _inputs(state, rules, state.unread).is_open


def _before_end(state: TaskState, rules: Rules, end: e.StepCompleted) -> Decision:
    """Return the end of a plain step, or the check of a direct answer that must come before it."""
    step = state.step
    if step is None or not end.last or not end.direct or step.typed is not None:
        return end
    content: dict[str, Json] = {"answer": end.output}
    due = _Due([], [])
    place = final_place(step.id, digest_of(end.output))
    judgement = _judge(state, step.id, place, "output", content)
    due.look(state, judgement, guarded="output" in rules.guarded)
    if due.refused is not None:
        return e.StepFailed(step.id, refusal(due.refused))
    if due.is_open:
        return tuple(due.effects) or wait_for_calls(due.pending)
    check = state.checks.get(place)
    if check is not None and check.changed:
        end.output = check.arguments["answer"]
    return end


def _beside_functions(state: TaskState, rules: Rules, decision: tuple[Effect, ...] | Wait) -> Decision:
    """Return the effects of step functions, with the guardrail checks for them."""
    assert state.graph is not None, "its steps are functions"
    effects, pending = list[Effect](), list[Check]()
    unread = _inputs(state, rules, state.unread)
    if unread.refused is not None:
        return _stop(state, unread.refused)
    withheld = set[str]()
    for node in state.graph.running.values():
        step = node.step
        if step is None or node.id in state.graph.unneeded:
            continue
        for call_id, call in node.model_calls.items():
            if call.status == "held":
                answer = _answer(state, rules, step, call)
                effects += answer.effects
                pending += answer.pending
                if not answer.is_open:
                    effects.append(ReleaseAnswer(release_id(call_id), step, call))
        results = _results(state, rules, step.calls)
        effects += results.effects
        pending += results.pending
        if results.is_open:
            withheld.add(step.id)
    effects += unread.effects
    pending += unread.pending
    for check in state.checks.values():
        if standing(check) == "asked" and is_final(check.id):
            pending.append(check)  # after the decision, the function runs again and gives the same answer
    waiting = {check.step for check in pending if is_final(check.id)}
    if isinstance(decision, tuple):
        allowed = [effect for effect in decision if not _is_held(effect, withheld, waiting)]
        if allowed or effects:
            return _once([*allowed, *effects])
        return wait_for_calls(pending) if pending else decision
    if effects:
        return tuple(effects)
    if pending and decision.reason in ("approval", "settlement", "idle"):
        return Wait("approval", tuple({call.id: call for call in (*decision.calls, *pending)}.values()))
    return decision


def _is_held(effect: Effect, withheld: set[str], waiting: set[str]) -> bool:
    """Whether an effect of a step function waits for guardrails: for results, or for its answer."""
    if type(effect) is RunFunction:
        return effect.node.id in waiting
    return type(effect) is CallModel and effect.call.status != "begun" and effect.step.id in withheld
