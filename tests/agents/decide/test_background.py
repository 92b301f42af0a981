"""What an answered task does about tickets that are open, and how calls in the background end, as a table."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, decided, follow, recorded, rules, step, undo
from tests.core.rules.test_deferring import completed, deferred, issued, state_after
from treadle.core import events as e
from treadle.core.effects import CallModel, UndoCall, Wait

TWO: list[Any] = [step(), answered("put", "put"), deferred(0), deferred(1), e.StepCompleted("s1")]
ANSWER: list[Any] = [step(2), answered(text="started", index=2), e.StepCompleted("s2", True, "started")]


@pytest.mark.parametrize("at_end", ["suspend", "wait"])
def test_an_answered_task_waits_for_what_is_in_the_background(at_end: Any) -> None:
    decision = decided(state_after(TWO, ANSWER), rules(at_end=at_end))
    assert isinstance(decision, Wait)
    assert (decision.reason, [call.id for call in decision.calls]) == ("background", ["s1-0", "s1-1"])
    assert decided(state_after(TWO, ANSWER), rules(at_end=at_end), finalize=False) == Wait("answered")


def test_it_goes_on_with_one_step_once_all_is_in() -> None:
    written, decision = follow(state_after(TWO, ANSWER, completed(0)))
    assert (written, getattr(decision, "reason", "")) == ([], "background")
    written, decision = follow(state_after(TWO, ANSWER, completed(0), completed(1)))
    assert [event.kind for event in written] == ["step_started"]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)


def test_with_detach_it_ends_with_its_tickets_open() -> None:
    state = state_after(TWO, ANSWER)
    written, decision = follow(state, rules(at_end="detach"))
    assert [event.kind for event in written] == ["task_ended"]
    assert (decision, list(state.deferred)) == (Wait("ended"), ["s1-0", "s1-1"])
    assert state.next_due() is None


def test_with_cancel_it_ends_after_its_tickets() -> None:
    written, _ = follow(state_after(TWO, ANSWER), rules(at_end="cancel"))
    ends = [(event.call, event.outcome) for event in written if isinstance(event, e.ToolEnded)]
    assert (ends, written[-1].kind) == ([("s1-0", "unknown"), ("s1-1", "unknown")], "task_ended")


def test_a_task_that_reached_a_limit_does_not_wait() -> None:
    limit = e.LimitReached("steps", 1, 1)
    written, _ = follow(state_after(TWO, limit, ANSWER))
    assert [event.kind for event in written] == ["task_ended"]


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        (e.TicketCompleted("s1", "s1-0", "film"), "ok"),
        (e.TicketFailed("s1", "s1-0", "no film"), "error"),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(deferred(0), id="deferred"),
        pytest.param(
            [issued(), began(0, name="put"), e.ToolStopped("s1", "s1-0", "crash")], id="cut off, idempotent"
        ),
        pytest.param([issued(), began(0, name="save"), e.ToolStopped("s1", "s1-0", "crash")], id="lost"),
        pytest.param(
            [issued(), began(0), e.ToolStopped("s1", "s1-0", "crash"), e.OutcomeUnresolved("s1", "s1-0")],
            id="unresolved",
        ),
    ],
)
def test_what_is_told_by_a_ticket_ends_the_call(before: list[Any], told: e.Event, outcome: str) -> None:
    end = recorded(state_after(step(), answered("put"), before, told))
    assert (end.kind, end.call, end.outcome) == ("tool_ended", "s1-0", outcome)
    assert end.error is None or end.error.message == "no film"


def test_a_call_whose_tool_still_runs_is_let_run() -> None:
    running = [issued(), began(0, name="put"), e.TicketCompleted("s1", "s1-0", "film")]
    decision = decided(state_after(step(), answered("put"), running))
    assert isinstance(decision, tuple)
    assert [effect.id for effect in decision] == ["s1-0"]


def test_of_a_long_result_the_model_sees_a_part() -> None:
    end = recorded(state_after(TWO, e.TicketCompleted("s1", "s1-0", "x" * 500)), rules(max_chars=100))
    assert end.output == "x" * 500
    assert "400 characters cut; full output: call s1-0" in end.observation[0].text


@pytest.mark.parametrize(("name", "outcome"), [("put", "unknown"), ("save", "unknown"), ("look", "timeout")])
def test_a_ticket_that_expired_ends_its_call_as_one_that_took_too_long(name: str, outcome: str) -> None:
    state = state_after(step(), answered(name), deferred(name=name), e.StepCompleted("s1"))
    expired = e.TicketExpired("s1", "s1-0")
    expired.seq, expired.time = state.seq + 1, 900
    from treadle.core.rules.fold import apply

    apply(state, expired)
    end = recorded(state)
    assert (end.outcome, end.error.kind, end.output) == (outcome, "timeout", "job")


@pytest.mark.parametrize(("name", "outcome"), [("put", "unknown"), ("look", "cancelled")])
def test_cancel_ends_what_is_in_the_background_too(name: str, outcome: str) -> None:
    cancelled = [step(), answered(name), deferred(name=name), e.StepCompleted("s1"), e.CancelRequested()]
    written, _ = follow(state_after(cancelled))
    assert [event.kind for event in written] == ["tool_ended", "task_ended"]
    assert getattr(written[0], "outcome", "") == outcome


def test_undo_cancels_the_tickets_of_its_steps_and_compensates_their_calls() -> None:
    done = [step(), answered("book"), deferred(name="book"), e.StepCompleted("s1"), undo("s1-0")]
    state = state_after(done)
    written, decision = follow(state)
    assert [(event.kind, getattr(event, "outcome", "")) for event in written] == [("tool_ended", "unknown")]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], UndoCall)
    assert decision[0].call.as_tool_call.output == "job"


def test_undo_leaves_the_tickets_of_earlier_steps_open() -> None:
    later = [TWO, step(2), answered(text="so", index=2), e.StepCompleted("s2")]
    written, _ = follow(state_after(later, e.UndoRequested(1, ("s2",))))
    assert written[0].kind == "rewound"
