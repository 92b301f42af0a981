"""Requests that offer tools of a stranger, for older drivers; wrong answers, for people."""

import pytest

from treadle.core import events as e
from treadle.core.codec import decode, encode


@pytest.mark.parametrize(("untrusted", "known"), [((), 1), (("mcp:desk",), 5)])
def test_older_drivers_adopt_a_task_unless_its_request_offered_tools_of_a_stranger(untrusted, known):
    started = e.ModelStarted("s1", "scripted", untrusted=untrusted)
    assert started.format == known
    data, blobs = encode([started])
    assert (b"untrusted" in data) is bool(untrusted)
    assert decode(data, blobs, 1)[0].untrusted == untrusted


def test_people_are_told_what_is_wrong_with_an_answer_without_the_words_to_the_model() -> None:
    answer = e.TypedAnswer.rejected("founded: missing", "s1-0")
    assert answer.problem is not None
    assert answer.problem.endswith(": founded: missing. Give the whole answer again.")
    assert (answer.why_rejected, answer.call, answer.output) == ("founded: missing", "s1-0", None)
