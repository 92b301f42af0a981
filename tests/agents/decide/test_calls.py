"""Open calls: which effect each wants, and how a lost call ends."""

from typing import Any

import pytest

from tests.agents.stories import (
    answered,
    began,
    decided,
    ended,
    follow,
    kinds,
    lost,
    recorded,
    rules,
    state_after,
    step,
    wanted,
)
from treadle import Quorum
from treadle.agents.decide.calls import failure_of, failures_that_count, is_joined, stop_unneeded
from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.effects import CallTool, Effect, Reconcile, StopAgent, Wait
from treadle.core.messages import Text
from treadle.core.steps import CallState, StepState


def test_no_more_calls_run_at_once_than_the_cap_allows() -> None:
    by = rules(max_parallel_tools=2)
    assert wanted(decided(state_after(step(), answered("look", "look", "look")), by)) == [
        "CallTool s1-0",
        "CallTool s1-1",
    ]
    state = state_after(step(), answered("look", "look", "look"), began(0, name="look"), ended(0))
    assert wanted(decided(state, by)) == ["CallTool s1-1", "CallTool s1-2"]


def test_a_lost_read_or_idempotent_call_runs_again() -> None:
    for name in ("look", "put"):
        state = state_after(step(), answered(name), lost(name=name))
        decision = decided(state)
        assert wanted(decision) == ["CallTool s1-0"]
        assert isinstance(decision, tuple)
        assert isinstance(decision[0], CallTool)
        assert decision[0].call.attempt == 1


def test_a_lost_write_waits_to_be_settled() -> None:
    state = state_after(step(), answered("save"), lost())
    decision = decided(state)
    assert isinstance(decision, Wait)
    assert (decision.reason, [call.id for call in decision.calls]) == ("settlement", ["s1-0"])


def test_siblings_of_a_lost_write_run_on() -> None:
    assert wanted(decided(state_after(step(), answered("save", "look"), lost()))) == ["CallTool s1-1"]


def test_a_lost_write_with_reconcile_is_reconciled() -> None:
    decision = decided(state_after(step(), answered("pay"), lost(name="pay")))
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], Reconcile)


def test_a_call_whose_reconcile_is_inconclusive_waits_to_be_settled() -> None:
    state = state_after(step(), answered("pay"), lost(name="pay"), e.OutcomeUnresolved("s1", "s1-0"))
    assert isinstance(decided(state), Wait)


def test_a_call_that_happened_ends_well_and_one_that_did_not_starts_again() -> None:
    happened = state_after(
        step(), answered("save"), lost(), e.OutcomeSettled("s1", "s1-0", "happened", "saved")
    )
    assert recorded(happened) == e.ToolEnded("s1", "s1-0", "ok", "saved")
    not_happened = state_after(
        step(), answered("save"), lost(), e.OutcomeSettled("s1", "s1-0", "not_happened")
    )
    assert wanted(decided(not_happened)) == ["CallTool s1-0"]


def test_a_call_that_failed_ends_as_it_failed_though_its_next_start_did_not_reach_the_tool() -> None:
    failed = e.ToolStopped("s1", "s1-0", "error", e.Failure("tool", "error", "no", "s1-0"))
    unentered = e.OutcomeSettled("s1", "s1-0", "not_happened", by="runner")
    again = [began(0, attempt=2, name="put"), e.ToolStopped("s1", "s1-0", "interrupted"), unentered]
    state = state_after(step(), answered("put"), began(0, name="put"), failed, again, e.CancelRequested())
    end = recorded(state)
    assert (end.outcome, end.error.message) == ("error", "no")


def test_the_model_may_see_that_an_outcome_is_unknown() -> None:
    state = state_after(step(), answered("save"), lost())
    event = recorded(state, rules(on_unknown_outcome="tell_model"))
    assert event.outcome == "unknown"
    assert "outcome_unknown" in event.error.message


def test_an_unknown_outcome_may_fail_the_task_and_the_call_is_not_repeated() -> None:
    by = rules(on_unknown_outcome="fail")
    events = [step(), answered("save"), lost()]
    written = follow(state_after(*events), by)[0]
    assert kinds(written) == ["tool_ended", "step_failed", "task_ended"]
    state = state_after(*events, written, e.TaskReopened(2, "resume"))
    assert kinds(follow(state, by)[0]) == ["step_started", "step_completed", "step_started"]


def test_after_an_unknown_outcome_failed_the_task_nothing_runs_again_and_messages_wait_for_the_next_step() -> (
    None
):
    by = rules(on_unknown_outcome="fail")
    broken = [began(1, name="look"), ended(1, "error")]
    events = [step(), answered("save", "look", "reply"), lost(), *broken, began(2, name="reply"), ended(2)]
    written = follow(state_after(*events), by)[0]
    state = state_after(*events, written, e.TaskReopened(2, "send"), e.InputReceived((Text("and?"),)))
    assert kinds(follow(state, by)[0]) == ["step_started", "step_completed", "step_started"]
    assert [(call.id, call.outcome) for call in state.steps[0].calls] == [
        ("s1-0", "unknown"),
        ("s1-1", "error"),
        ("s1-2", "ok"),
    ]
    assert [message.text for message in state.messages[3:]] == ["done", "and?"], "after the answer of `reply`"


# ---------------- joins of subagents: when enough agents have answered, and whose failures count, as tables


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


def rules_of(join: Any) -> Rules:
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
    assert is_joined(rules_of(join), step_of(*outcomes)) is joined


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
    assert [call.id for call in failures_that_count(rules_of(join), step_of(*outcomes))] == counted


def test_the_failure_of_a_join_says_how_many_answered() -> None:
    step = step_of("ok", "error", "error")
    assert failure_of(rules_of(Quorum(2)), step, step.calls[1], LATE).message == (
        "1 of 3 agents answered, and 2 had to: poet failed: no words"
    )
    assert failure_of(rules_of("all"), step, step.calls[1], LATE) is LATE
    assert failure_of(rules_of("any"), step, step.calls[3], LATE) is LATE, "the failure of a tool is its own"


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
