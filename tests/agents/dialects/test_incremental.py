"""Deltas of answers that a model writes as text."""

import pytest

from tests.agents.dialects.readings import CASES, DIALECTS, REQUEST, check_stream, deltas_of, named
from tests.agents.dialects.transcripts import Case
from treadle.core.messages import Message, Text
from treadle.core.model import (
    ModelAnswer,
    TextDelta,
)


@pytest.mark.parametrize(("dialect", "case"), CASES, ids=named)
def test_deltas_add_up_to_the_reading_of_the_whole_text(dialect: str, case: Case) -> None:
    for size in (1, 2, 3, 7, 1_000):
        check_stream(dialect, case.text, lambda size=size: size)


def test_arguments_become_deltas_as_they_are_written() -> None:
    text = 'Thought: x\nAction: add\nAction Input: ```json\n{"a": "}", "b": [1]}\n```\n'
    spoken = DIALECTS["react"]
    answer = spoken.read(ModelAnswer(Message("assistant", (Text(text),))), REQUEST)
    deltas = deltas_of(spoken.delta_reader(REQUEST), text, answer.message, lambda: 1)
    assert deltas == ("x", "", "add", '{"a": "}", "b": [1]}')


def test_no_marker_of_the_protocol_becomes_a_delta_of_the_answer() -> None:
    reader = DIALECTS["react"].delta_reader(REQUEST)
    batches = [list(reader.feed(letter)) for letter in "Thought: x\nAnswer: five\nObserv"]
    texts = [delta.text for deltas in batches for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(texts) == "five"
