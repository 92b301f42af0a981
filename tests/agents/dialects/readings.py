"""Reading texts as dialects do: whole, and while they come in pieces."""

from collections.abc import Callable
from typing import Any

from tests.agents.dialects.transcripts import PLANNER, REACT, Case
from treadle.agents.dialects.dialect import DeltaReader, Reading
from treadle.agents.dialects.planner import Planner, read_call
from treadle.agents.dialects.react import React, read_text
from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import (
    ModelAnswer,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from treadle.core.tools import ToolSpec

SPECS = tuple(ToolSpec(name=name) for name in ("add", "say", "f", "now", "search", "pay"))


REQUEST = ModelRequest((), "", SPECS, "auto", ModelSettings(), "t", "s1", 0, 1)


DIALECTS = {"react": React(), "planner": Planner()}


PARSERS: dict[str, Callable[[str], Reading]] = {"react": read_text, "planner": read_call}


CASES = [("react", case) for case in REACT] + [("planner", case) for case in PLANNER]


def named(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, Case)) else None


def deltas_of(
    reader: DeltaReader, text: str, message: Message, cut: Callable[[], int]
) -> tuple[str, str, str, str]:
    """Return the deltas of each channel while a text comes in pieces: thought, answer, name and arguments."""
    deltas: list[Any] = []
    place = 0
    while place < len(text):
        size = cut()
        deltas += reader.feed(text[place : place + size])
        place += size
    deltas += reader.end(message)
    return (
        "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)),
        "".join(d.text for d in deltas if isinstance(d, TextDelta)),
        "".join(d.name for d in deltas if isinstance(d, ToolCallDelta)),
        "".join(d.arguments for d in deltas if isinstance(d, ToolCallDelta)),
    )


def check_stream(dialect: str, text: str, cut: Callable[[], int]) -> None:
    """Assert that the deltas of a text add up to its reading, wherever the text is cut."""
    spoken = DIALECTS[dialect]
    answer = spoken.read(ModelAnswer(Message("assistant", (Text(text),))), REQUEST)
    parts = answer.message.parts
    thought, answer_text, name, arguments = deltas_of(spoken.delta_reader(REQUEST), text, answer.message, cut)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if calls and calls[0].problem is not None:
        return  # deltas of an unreadable text may hold anything, as those of an answer that breaks off
    if "</think>" in text and not text.lstrip().startswith("<think>"):
        return  # deltas of drafts come before the text shows that they are drafts
    assert thought == "".join(part.text for part in parts if isinstance(part, Reasoning))
    assert answer_text == answer.message.text
    assert name == "".join(call.name for call in calls)
    if arguments:
        assert calls


def check_reading(dialect: str, case: Case) -> None:
    """Assert that the parser of a dialect reads a text as it is meant, or says what is wrong with it."""
    read = PARSERS[dialect](case.text)
    if case.problem is None:
        assert read == case.means
    else:
        assert read.problem is not None
        assert case.problem in read.problem
        parts = (read.thinking, read.thought, read.name, read.arguments, read.answer)
        assert parts == (case.means.thinking, case.means.thought, case.means.name, None, None)
