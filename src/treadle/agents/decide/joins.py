"""Joins of subagents: how many of the agents called in one answer must answer before the step continues.

join         the step goes on                            a failed agent
all          after the end of each                       is for the failure policy
any, n       once so many answered; the rest is stopped  is for the failure policy if too few answered
optional     after the end of each                       is for the model
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from treadle.agents.decide.calls import closing_end
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Effect, StopAgent
from treadle.core.ids import stop_id
from treadle.core.steps import CallState, StepState

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
    """Return the failure of a step because of a failed call; with a join, also how many agents answered."""
    needed, answered, called = _counts(rules, step)
    if needed is None or call.name not in rules.agents:
        return error
    text = f"{answered} of {called} agents answered, and {needed} had to: {error.message}"
    return replace(error, message=text)


def _counts(rules: Rules, step: StepState) -> tuple[int | None, int, int]:
    """Return how many agents of a step must answer (None: each), how many did, and how many were called."""
    called = [call for call in step.calls if call.name in rules.agents]
    answered = sum([call.outcome == "ok" for call in called])
    if rules.join == "any":
        return min(1, len(called)), answered, len(called)
    needed = min(rules.join, len(called)) if isinstance(rules.join, int) else None
    return needed, answered, len(called)
