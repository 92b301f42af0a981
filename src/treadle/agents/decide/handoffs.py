"""Handoffs in a model's answer. The first permitted one moves the conversation, once all other calls have ended.

state of the step's calls                  the handoff
another call is open                       is judged, if it must be, and waits; a handoff that began waits too
a call before it handed over               is refused
the answer of the task is there            is refused
no step, or no handoff, is left            is refused
none of these                              begins; it ends at once, and the step ends with the next agent
"""

from __future__ import annotations

from typing import Literal

from treadle.agents.decide.calls import permission_of, want_call
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Effect
from treadle.core.ends import not_begun, withheld_end
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState


def want_handoff(
    state: TaskState,
    rules: Rules,
    step: StepState,
    call: CallState,
    effects: list[Effect],
    waiting: list[CallState],
) -> e.ToolEnded | None:
    """Add the effect of a step's first open handoff, add it to `waiting`, or return its end.

    Args:
        state: the state of the task.
        rules: the rules of the task.
        step: the running step.
        call: the handoff.
        effects: the effects of the step's other calls.
        waiting: the other calls that wait for a person.
    """
    refusal = _refusal(state, rules, step)
    if refusal is not None:
        source, why = refusal
        text = f"{not_begun(call)}: {why}."
        kind = "handoffs" if source == "limit" else "refused"
        return withheld_end(call, "refused", e.Failure(source, kind, text, call.id))
    gated = call.permit is not None or rules.gated
    begins = not gated or permission_of(rules, call) == "start"
    if begins and any(not _is_later(rules, other) for other in step.open.values()):
        return None
    return want_call(rules, call, effects, waiting, rules.max_parallel_tools)


def _is_later(rules: Rules, call: CallState) -> bool:
    """Whether an open call is a handoff that has not begun, from the first one on."""
    return call.status == "proposed" and call.name in rules.handoffs


def next_agent_of(rules: Rules, step: StepState) -> e.NextAgent | None:
    """Return the agent to which a step hands over once all its calls have ended; None without a handoff."""
    call = _handed_over(rules, step)
    return e.NextAgent(rules.handoffs[call.name], call.id, call.name) if call is not None else None


def _handed_over(rules: Rules, step: StepState) -> CallState | None:
    return next((call for call in step.calls if call.outcome == "ok" and call.name in rules.handoffs), None)


def _refusal(state: TaskState, rules: Rules, step: StepState) -> tuple[Literal["tool", "limit"], str] | None:
    """Return the reason against a handoff and its source, a limit or a call; None if it may start."""
    earlier = _handed_over(rules, step)
    if earlier is not None:
        return "tool", f"the conversation goes to {rules.handoffs[earlier.name]} already"
    if step.typed is not None and step.typed.problem is None:
        return "tool", "the answer of the task was given beside it"
    for other in step.calls:
        spec = rules.tools.get(other.name)
        if spec is not None and spec.return_direct and other.outcome == "ok":
            return "tool", f"the result of {other.name} is the answer of the task"
    allowed = rules.limits.allowed_handoffs
    if state.team is not None and state.team.handoffs >= allowed:
        return "limit", f"the limit of {allowed} handoffs is reached, so you have to go on yourself"
    if allowed == 0:
        return "limit", "the task allows no handoffs"
    if step.index >= rules.limits.allowed_steps:
        return "limit", f"the limit of {rules.limits.allowed_steps} steps leaves none for another agent"
    return None
