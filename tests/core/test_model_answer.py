"""A model's answer as it is journalled: checked, with ids of the task's own."""

from dataclasses import fields
from enum import IntEnum
from typing import Any

import pytest

from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import ModelAnswer, SideCall, Usage
from treadle.core.model_answer import MAX_CALLS, WrongAnswer, checked_answer, plain_usage, with_places

FINE = Message("assistant", (Text("4"),))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ModelAnswer(Message("assistant", [Text("4")])), "tuple of parts"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, usage=Usage(1.5, 1)), "whole numbers"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, "done"), "finish"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, model=3), "model must be a name"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, also=[SideCall("m")]), "SideCall"),  # type: ignore[arg-type]
        (ModelAnswer(Message("assistant", (), {"x": object()})), "meta"),  # type: ignore[dict-item]
    ],
)
def test_an_answer_that_no_journal_can_hold_is_refused(answer: ModelAnswer, why: str) -> None:
    checked_answer(ModelAnswer(FINE))
    with pytest.raises(WrongAnswer, match=why):
        checked_answer(answer)


def test_arguments_that_no_journal_can_hold_are_refused() -> None:
    message = Message("assistant", (ToolCall("a", "look", {"at": object()}),))  # type: ignore[dict-item]
    with pytest.raises(WrongAnswer, match="a part"):
        with_places(message, "s1", "tool_calls")


def calls(*parts: Any) -> Message:
    return Message("assistant", parts)


def test_calls_get_their_places_as_ids() -> None:
    message = calls(Text("Well."), ToolCall("x", "look", {}), ToolCall("x", "put", {}))
    placed = with_places(message, "s2", "tool_calls", first=3)
    assert [call.id for call in placed.tool_calls] == ["s2-3", "s2-4"]
    assert with_places(FINE, "s2", "stop") is FINE


@pytest.mark.parametrize(
    ("finish", "problem"), [("length", "truncated"), ("refusal", "refusal"), ("stop", None)]
)
def test_a_call_in_an_answer_that_was_cut_off_is_marked(finish: Any, problem: str | None) -> None:
    [call] = with_places(calls(ToolCall("x", "look", {})), "s1", finish).tool_calls
    assert call.problem == problem


def test_an_answer_with_too_many_calls_keeps_the_first_with_a_problem() -> None:
    message = calls(*[ToolCall(str(number), "look", {}) for number in range(MAX_CALLS + 1)])
    [call] = with_places(message, "s1", "tool_calls").tool_calls
    assert (call.id, f"{MAX_CALLS + 1:,} calls in one answer" in str(call.problem)) == ("s1-0", True)


class Count(IntEnum):
    SEVEN = 7


@pytest.mark.parametrize("name", [item.name for item in fields(Usage) if item.name.endswith("_tokens")])
def test_a_count_of_a_class_derived_from_int_becomes_a_plain_whole_number(name: str) -> None:
    used = Usage(**{"input_tokens": 9, name: Count.SEVEN})
    answer = checked_answer(ModelAnswer(FINE, usage=used, also=(SideCall("m", used),)))
    for usage in (answer.usage, answer.also[0].usage):
        assert usage == used
        assert {type(getattr(usage, item.name)) for item in fields(Usage)} == {int, bool, str}


def test_an_answer_of_plain_counts_is_taken_as_it_is() -> None:
    answer = ModelAnswer(FINE, usage=Usage(1, 2, tier="flex"))
    assert checked_answer(answer) is answer


@pytest.mark.parametrize(
    "usage",
    [
        Usage(True, 1),
        Usage(-1, 1),
        Usage(1, 10**12 + 1),
        Usage(1, 1, tier=5),
        Usage(1, 1, estimated=1),
        (1, 1),
    ],
)  # type: ignore[arg-type]
def test_what_is_no_count_of_tokens_is_refused(usage: Any) -> None:
    assert plain_usage(usage) is None
