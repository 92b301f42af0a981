"""Ends of calls that brought no result: the table in `ends`, row by row."""

import pytest

from treadle.core.ends import failed_end, unknown_end, withheld_end
from treadle.core.events import Failure
from treadle.core.steps import CallState

WHY = Failure("agent", "cancelled", "The task was cancelled.")


def call(effect: str = "write", *, cut_off: int = 0, stopped: Failure | None = None) -> CallState:
    state = CallState("s1-0", "s1", "put", {}, attempt=1, effect=effect)  # type: ignore[arg-type]
    state.cut_off, state.stopped = cut_off, stopped
    return state


@pytest.mark.parametrize("outcome", ["refused", "cancelled", "invalid"])
def test_a_call_that_never_began_ends_with_the_reason_it_was_withheld_for(outcome: str) -> None:
    assert withheld_end(call(), outcome, WHY).outcome == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "outcome"), [("timeout", "timeout"), ("error", "error")])
def test_a_call_whose_last_attempt_failed_ends_as_that_failed(kind: str, outcome: str) -> None:
    end = withheld_end(call(stopped=Failure("tool", kind, "it failed")), "cancelled", WHY)
    assert end.error is not None
    assert (end.outcome, end.error.kind, end.error.message) == (outcome, "cancelled", "it failed")


def test_a_read_that_was_cut_off_was_stopped() -> None:
    end = withheld_end(call("read", cut_off=1), "refused", WHY)
    assert end.error is not None
    assert (end.outcome, "was stopped after it began" in end.error.message) == ("cancelled", True)


@pytest.mark.parametrize("effect", ["write", "idempotent"])
def test_a_call_that_was_cut_off_and_may_write_is_unknown(effect: str) -> None:
    doubtful = call(effect, cut_off=1)
    assert withheld_end(doubtful, "cancelled", WHY).outcome == "unknown"
    assert failed_end(doubtful, Failure("tool", "error", "no")).outcome == "unknown"
    assert failed_end(call(effect), Failure("tool", "timeout", "late"), cut_off=True).outcome == "unknown"


@pytest.mark.parametrize("kind", ["error", "timeout", "abandoned"])
def test_a_failure_of_its_own_ends_a_call(kind: str) -> None:
    assert failed_end(call("read"), Failure("tool", kind, "no")).outcome == kind


def test_the_text_of_an_unknown_outcome_has_the_number_of_attempts() -> None:
    repeated = call("idempotent", cut_off=1)
    repeated.attempt = 3
    assert "begun 3 times" in str(unknown_end(repeated).error)
    assert "It was not repeated." in str(unknown_end(call(cut_off=1)).error)
