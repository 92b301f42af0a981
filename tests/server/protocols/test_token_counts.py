"""The tokens of a part of a task, by model."""

from __future__ import annotations

from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.messages import Message, Text
from treadle.core.model import SideCall, Usage
from treadle.server.protocols.token_counts import BELOW, TokenCounts

SAID = Message("assistant", (Text("Hi"),))


def test_tokens_are_counted_by_the_model_that_answered_or_failed():
    counts = TokenCounts()
    for event in (
        e.ModelStarted("s1", "test:a"),
        e.ModelFailed("s1", e.Failure("model", "busy", "busy"), usage=Usage(1, 1)),
        e.ModelStarted("s1", "test:a"),
        e.ModelReturned(
            "s1", SAID, usage=Usage(10, 2), model="test:b", also=(SideCall("test:c", Usage(5, 1)),)
        ),
        e.ModelStarted("s2", "test:a"),
        e.ModelStopped("s2", "interrupted", usage=Usage(3, 0)),
        e.ModelStarted("s3", "test:d"),
        e.ModelReturned("s3", SAID),
    ):
        counts.read(event, counts=True)
    assert counts.by_model == {"test:a": Usage(4, 1), "test:b": Usage(10, 2), "test:c": Usage(5, 1)}
    assert counts.total == Usage(19, 4)


def test_only_the_events_of_the_part_are_counted():
    counts = TokenCounts()
    counts.read(e.ModelStarted("s1", "test:a"), counts=False)
    counts.read(e.ModelReturned("s1", SAID, usage=Usage(7, 7)), counts=False)
    counts.read(e.ModelReturned("s1", SAID, usage=Usage(1, 1)), counts=True)
    assert counts.by_model == {"test:a": Usage(1, 1)}


def test_a_task_below_is_counted_once_however_often_it_stops():
    counts = TokenCounts()
    spent = [(SpentBy("child", usage=Usage(number, number)),) for number in (2, 5, 9)]
    counts.read(e.ToolStarted("s1", "s1-0", child="t.s1-0"), counts=False)
    counts.read(e.ToolStopped("s1", "s1-0", "parked", spent=spent[0]), counts=False)
    counts.read(e.ToolStopped("s1", "s1-0", "parked", spent=spent[1]), counts=True)
    counts.read(e.ToolEnded("s1", "s1-0", spent=spent[2]), counts=True)
    assert counts.by_model == {BELOW: Usage(7, 7)}
