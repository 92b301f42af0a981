"""Watchers get the events of answers that have not passed without their texts; the events themselves stay whole."""

from treadle.core.deltas import for_watchers
from treadle.core.events import (
    AnswerHeld,
    ApprovalGiven,
    EventOrigin,
    GuardrailJudged,
    StepStarted,
    TypedAnswer,
)
from treadle.core.messages import Message, Text

HELD = AnswerHeld("s1", Message("assistant", (Text("secret"),)), typed=TypedAnswer("secret"), seq=4, time=9)


def test_what_holds_no_answer_is_handed_out_as_it_is() -> None:
    events = [StepStarted("s1", 1), GuardrailJudged("", "in1", "input", "ask", content={"text": "said"})]
    assert for_watchers(events)[1] is events[1]
    only = [StepStarted("s1", 1)]
    assert for_watchers(only) is only


def test_texts_of_answers_are_withheld() -> None:
    rewrite = GuardrailJudged(
        "s1", "s1-said1", "output", "rewrite", "r", "", {"text": "secret"}, {"text": "secret"}
    )
    given = ApprovalGiven("s1", "s1-said1", 1, "once", {"text": "secret"}, {"text": "secret"})
    shown = for_watchers([HELD, rewrite, given])
    assert "secret" not in repr(shown)
    assert (shown[0].seq, shown[0].time, shown[0].message.role) == (4, 9, "assistant")
    assert "secret" in repr([HELD, rewrite, given])


def test_what_an_approver_wrote_in_the_place_of_arguments_is_shown() -> None:
    given = ApprovalGiven("s1", "s1-0", 1, "once", {"n": 1}, {"n": 2})
    given.tool_name, given.origin = "put", EventOrigin("t", ("a",))
    assert for_watchers([given, HELD])[0] is given
