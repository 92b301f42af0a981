"""What the simulation has to cover: each rule, each state, and the critical moments."""

from collections.abc import Mapping

from tests.simulation.run import RULES
from treadle.core.events import END_STATES

STATES = ("created", "running", "answered", "waiting", "paused", "interrupted", *END_STATES)
OUTCOMES = ("ok", "error", "timeout", "invalid", "refused", "denied", "cancelled", "unknown")
EVENTS = (
    "tool_stopped",
    "outcome_settled",
    "outcome_unresolved",
    "limit_reached",
    "rewound",
    "task_forked",
    "task_reopened",
    "thread_awaited",
    "step_failed",
    "step_skipped",
    "model_stopped",
    "timer_fired",
    "call_judged",
    "approval_requested",
    "approval_given",
    "approval_denied",
    "approval_expired",
    "answer_held",
    "guardrail_judged",
    "question_asked",
    "question_answered",
    "question_expired",
    "call_deferred",
    "ticket_completed",
    "ticket_failed",
    "ticket_progressed",
    "ticket_expired",
    "sleep_started",
    "sleep_ended",
    "command_rejected",
    "agent_changed",
)
MOMENTS = (
    "death between begin and end",
    "lease ran out",
    "fenced commit",
    "acknowledgement lost",
    "commit failed",
    "asked again soon",
    "asked again late",
    "cancel that all may know of",
    "answer that does not fit",
    "forged ticket",
    "double completion",
    "a server takes its time",
    "a server cannot be had",
)

GRANTS = ("a grant stands", "a grant is revoked")
"""Approvals for later calls, in a thread or in all tasks."""

TREES = ("child", "a child asks", "decided above a child")
"""What befalls the tasks of agents that others called, in every fourth run."""


def missing(fired: Mapping[str, int], runs: int) -> list[str]:
    """Return what was reached too seldom in so many runs: rules, states of tasks and calls, events, moments."""
    least = dict.fromkeys(RULES, runs // 10)
    least |= {f"state {state}": runs // 200 for state in STATES}
    least |= {f"call {outcome}": runs // 400 for outcome in OUTCOMES}
    least |= {f"event {event}": runs // 1000 for event in EVENTS}
    least |= dict.fromkeys(MOMENTS, runs // 50)
    least |= dict.fromkeys(TREES, runs // 100)
    least |= dict.fromkeys(GRANTS, runs // 200)
    least["forged ticket"] = runs // 200  # an eighth of what is told of tickets, which few runs have
    least["fenced commit"] = runs // 100  # the rarest: about 1 of 20 runs, several in one, none in many
    return [
        f"{name} ({fired.get(name, 0)} of {times})"
        for name, times in least.items()
        if fired.get(name, 0) < times
    ]
