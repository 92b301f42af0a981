"""A model's answer as it is journalled: checked, with ids of the task's own."""

from typing import Any

import pytest

from treadle.core.messages import Message, Text, ToolCall
from treadle.core.model import ModelAnswer, SideCall, Usage
from treadle.core.model_answer import MAX_CALLS, WrongAnswer, check_answer, with_places

FINE = Message("assistant", (Text("4"),))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ModelAnswer(Message("assistant", [Text("4")])), "tuple of parts"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, usage=Usage(1.5, 1)), "whole numbers"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, "done"), "finish"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, model=3), "model must be a name"),  # type: ignore[arg-type]
        (ModelAnswer(FINE, also=[SideCall("m")]), "SideCall"),  # type: ignore[arg-type]
        (ModelAnswer(Message("assistant", (ToolCall("a", "look", {"at": object()}),))), "a part"),  # type: ignore[dict-item]
        (ModelAnswer(Message("assistant", (), {"x": object()})), "meta"),  # type: ignore[dict-item]
    ],
)
def test_an_answer_that_no_journal_can_hold_is_refused(answer: ModelAnswer, why: str) -> None:
    check_answer(ModelAnswer(FINE))
    with pytest.raises(WrongAnswer, match=why):
        check_answer(answer)


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
