"""Joins of subagents: when enough agents have answered, and whose failures count, as tables."""

from typing import Any

import pytest

from treadle import Quorum
from treadle.agents.decide.calls import failure_of, failures_that_count, is_joined, stop_unneeded
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import Effect, StopAgent
from treadle.core.steps import CallState, StepState

LATE = e.Failure("subagent", "error", "poet failed: no words", "s1-0")


def step_of(*outcomes: Any) -> StepState:
    """Return a step that called agents with these outcomes, None for those that have not ended, and a tool."""
    step = StepState("s1", 1)
    for number, outcome in enumerate(outcomes):
        call = CallState(f"s1-{number}", "s1", "poet", {}, status="ended" if outcome else "begun")
        call.outcome, call.child = outcome, f"t.s1-{number}"
        step.calls.append(call)
    step.calls.append(CallState("s1-9", "s1", "tool", {}, status="ended", outcome="error"))
    return step


def rules(join: Any) -> Rules:
    return Rules(agents=frozenset({"poet"}), join=join)


@pytest.mark.parametrize(
    ("join", "outcomes", "joined"),
    [
        ("all", ("ok", "ok"), False),
        ("optional", ("ok", "ok"), False),
        ("any", (None, None), False),
        ("any", ("error", None), False),
        ("any", ("error", "ok", None), True),
        ("any", (), True),
        (Quorum(2), ("ok", None, None), False),
        (Quorum(2), ("ok", None, "ok"), True),
        (Quorum(2), ("ok",), True),
        (Quorum(3), ("ok", "error", "ok"), False),
    ],
)
def test_a_step_is_joined_once_so_many_of_its_agents_answered(join: Any, outcomes: Any, joined: bool) -> None:
    assert is_joined(rules(join), step_of(*outcomes)) is joined


@pytest.mark.parametrize(
    ("join", "outcomes", "counted"),
    [
        ("all", ("ok", "error"), ["s1-1", "s1-9"]),
        ("any", ("ok", "error"), ["s1-9"]),
        ("any", ("timeout", "error"), ["s1-0", "s1-1", "s1-9"]),
        (Quorum(2), ("ok", "ok", "error"), ["s1-9"]),
        (Quorum(2), ("ok", "error", "cancelled"), ["s1-1", "s1-9"]),
        ("optional", ("error", "error"), ["s1-9"]),
    ],
)
def test_failures_count_where_too_few_agents_answered(join: Any, outcomes: Any, counted: list[str]) -> None:
    assert [call.id for call in failures_that_count(rules(join), step_of(*outcomes))] == counted


def test_the_failure_of_a_join_says_how_many_answered() -> None:
    step = step_of("ok", "error", "error")
    assert failure_of(rules(Quorum(2)), step, step.calls[1], LATE).message == (
        "1 of 3 agents answered, and 2 had to: poet failed: no words"
    )
    assert failure_of(rules("all"), step, step.calls[1], LATE) is LATE
    assert failure_of(rules("any"), step, step.calls[3], LATE) is LATE, "the failure of a tool is its own"


@pytest.mark.parametrize("status", ["proposed", "begun", "parked"])
def test_an_agent_that_is_not_needed_any_more_is_stopped_for_good(status: Any) -> None:
    call, effects = CallState("s1-0", "s1", "poet", {}, status=status), list[Effect]()
    end = stop_unneeded(call, effects)
    if status == "proposed":
        assert end is not None
        assert (end.outcome, end.error and end.error.message) == (
            "cancelled",
            "poet was not run: enough of the agents called beside it answered.",
        )
    assert [type(effect) for effect in effects] == ([StopAgent] if status == "parked" else [])
    assert (end is None) is (status != "proposed")
