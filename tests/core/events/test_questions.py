"""Events of questions name their request."""

from treadle.core import events as e


def test_the_request_of_an_event_is_that_of_its_call_or_of_its_step() -> None:
    assert e.QuestionAnswered("s1", "s1-0", 2, True).request_id == "s1-0-q2"
    assert e.QuestionExpired("s1", "", 3).request_id == "s1-q3"
    assert e.QuestionAsked("s1", "s1-0", 1, "secret?", {}, "d").description == "a person is asked (s1-0-q1)"
