"""Handoffs in a model's answer: the first that is let through moves the conversation, once all other calls have ended.

state of the step's calls                  what becomes of a handoff
another call is open                       it is judged, where that is due, and waits; also for a handoff that began
a call before it handed over               refused
the answer of the task is there            refused
no step, or no handoff, is left            refused
none of these                              it begins; it ends at once, and the step ends with the next agent
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
    """Add what a step's first open handoff wants, or add it to the calls that wait for a person; or return its end.

    Args:
        state: of the task.
        rules: of the task.
        step: the step under way.
        call: the handoff.
        effects: what the other calls of the step want.
        waiting: those of them that wait for a person.
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
    """Whether an open call is a handoff that has not begun: it follows the first of these, or is it."""
    return call.status == "proposed" and call.name in rules.handoffs


def next_agent_of(rules: Rules, step: StepState) -> e.NextAgent | None:
    """Return the agent that a step, whose calls have all ended, hands over to; None if it does not."""
    call = _handed_over(rules, step)
    return e.NextAgent(rules.handoffs[call.name], call.id, call.name) if call is not None else None


def _handed_over(rules: Rules, step: StepState) -> CallState | None:
    return next((call for call in step.calls if call.outcome == "ok" and call.name in rules.handoffs), None)


def _refusal(state: TaskState, rules: Rules, step: StepState) -> tuple[Literal["tool", "limit"], str] | None:
    """Return what keeps a handoff from its start, a limit or another call, and why; None if nothing does."""
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
