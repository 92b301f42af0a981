"""The records of steps, their tool calls and their model calls."""

import pytest

from treadle.core.events import Failure, ModelRequested
from treadle.core.messages import Message, user
from treadle.core.steps import CallState, ModelCall, StepState, repeat_call


def test_a_side_request_that_follows_another_includes_its_messages_and_answer() -> None:
    first = ModelCall("s1-m1", ModelRequested("s1", "s1-m1", "k", "d", (user("one"),)))
    first.message = Message("assistant", ())
    second = ModelCall("s1-m2", ModelRequested("s1", "s1-m2", "l", "d", (user("two"),)), follows=first)
    assert second.side_messages() == [user("one"), first.message, user("two")]
    assert ModelCall().side_messages() == []


def test_a_request_sees_the_conversation_unless_it_is_on_the_side() -> None:
    beside = ModelRequested("s1", "s1-m1", "k", "d", (user("?"),))
    after = ModelRequested("s1", "s1-m1", "k", "d", (user("?"),), after_conversation=True)
    own = ModelRequested("s1", "s1-m1", "k", "d")
    calls = [ModelCall(), *[ModelCall("s1-m1", request) for request in (own, after, beside)]]
    assert [call.in_conversation for call in calls] == [True, True, False, False]
    assert [call.sees_conversation for call in calls] == [True, True, True, False]


@pytest.mark.parametrize(
    ("outcome", "effect", "kind", "failed"),
    [
        ("ok", "write", None, False),
        ("error", "write", "error", True),
        ("timeout", "read", "timeout", True),
        ("refused", "read", "refused", False),
        ("unknown", "write", "timeout", False),
        ("unknown", "idempotent", "timeout", True),
        ("unknown", "idempotent", "cancelled", False),
    ],
)
def test_which_ended_calls_a_new_attempt_of_the_step_repeats(
    outcome: str, effect: str, kind: str | None, failed: bool
) -> None:
    call = CallState("s1-0", "s1", "put", {}, outcome=outcome, effect=effect)  # type: ignore[arg-type]
    call.error = None if kind is None else Failure("tool", kind, "no")
    assert call.failed is failed


def test_a_repeated_call_takes_the_place_and_the_doubts_of_the_first() -> None:
    first, other = CallState("s1-0", "s1", "put", {"n": 1}), CallState("s1-1", "s1", "look", {})
    first.effect, first.cut_off, first.offered = "idempotent", 2, ("put",)
    step = StepState("s1", 1, calls=[first, other])
    again = repeat_call(step, first)
    assert (again.id, again.arguments, again.effect, again.cut_off) == ("s1-0r2", {"n": 1}, "idempotent", 2)
    assert (again.status, again.offered) == ("proposed", ("put",))
    assert (step.calls, step.open) == ([again, other], {"s1-0r2": again})
