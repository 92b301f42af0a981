"""Questions: what they are bound to, and when they expire."""

import pytest

from treadle.core import events as e
from treadle.core.questions import Question, expires_at, question_digest


def test_an_answer_is_bound_to_the_text_and_the_schema_of_its_question() -> None:
    assert question_digest("Go?", {"type": "boolean"}) == question_digest("Go?", {"type": "boolean"})
    assert question_digest("Go?", {"type": "boolean"}) != question_digest("Go on?", {"type": "boolean"})
    assert question_digest("Go?", {"type": "boolean"}) != question_digest("Go?", {"type": "string"})


@pytest.mark.parametrize(
    ("seconds", "headless", "due"),
    [(None, False, None), (2.5, False, 2_500_100), (None, True, 100), (2.5, True, 100)],
)
def test_a_question_expires_after_its_seconds_and_at_once_where_no_person_is(
    seconds: float | None, headless: bool, due: int | None
) -> None:
    assert expires_at(100, seconds, headless=headless) == due


def test_an_expired_question_is_answered_by_its_default_alone() -> None:
    plain = Question(e.QuestionAsked("s1", "s1-0", 1, "Go?", {}, "d"), "expired")
    with_none = Question(e.QuestionAsked("s1", "s1-0", 1, "Go?", {}, "d", has_default=True), "expired")
    assert (plain.is_answered, with_none.is_answered) == (False, True)
    assert Question(plain.event, "answered").is_answered
    assert not Question(plain.event).is_answered
