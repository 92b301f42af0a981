"""A whole number of more than 4,300 digits in a JSON field was written, and its record could not be read again."""

from typing import Any

import pytest

from treadle.core import codec
from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall

LONGEST = codec.LARGEST - 1


def around(number: int) -> list[e.Event]:
    """Return events that hold a number in each kind of JSON field."""
    called = Message("assistant", (ToolCall("c1", "add", {"a": number}),))
    noted = Message("assistant", (Text("hi", meta=[{"n": (number,)}]),))
    return [
        e.StepCompleted("s1", output=number, seq=1, time=1),
        e.StepCompleted("s1", output={"deep": [{"n": number}]}, seq=1, time=1),
        e.ModelReturned("s1", called, seq=1, time=1),
        e.ModelReturned("s1", noted, seq=1, time=1),
        e.ToolEnded("s1", "c1", "ok", ["9" * 9_000, number], seq=1, time=1),
    ]


@pytest.mark.parametrize("number", [LONGEST + 1, -LONGEST - 1, 10**5_000], ids=range(3))
def test_a_number_of_too_many_digits_is_refused_when_it_is_written(number: int) -> None:
    for event in around(number):
        with pytest.raises(codec.UnreadableRecord, match=r"a whole number of more than 4,300 digits"):
            codec.encode([event])
        with pytest.raises(codec.UnreadableRecord, match=r"a whole number of more than 4,300 digits"):
            codec.check_fit(event)


@pytest.mark.parametrize("number", [LONGEST, -LONGEST], ids=range(2))
def test_the_longest_number_and_longer_texts_of_digits_are_written_and_read(number: int) -> None:
    long: list[Any] = [*around(number), e.StepCompleted("s1", output="7" * 100_000, seq=1, time=1)]
    for event in long:
        data, blobs = codec.encode([event])
        codec.check_fit(event)
        assert codec.encode(codec.decode(data, blobs, 1))[0] == data
