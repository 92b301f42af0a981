"""What a request costs, what is told to who summarises, and the window on a conversation as a sequence."""

from typing import Any

import pytest

from treadle.context.summaries import PART_CHARS, transcript
from treadle.context.window import Shown
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from treadle.core.tokens import PER_PICTURE, message_tokens, request_tokens, text_tokens
from treadle.core.tools import ToolSpec


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("äöü", 2), ("日本", 2), ("\ud800", 1)]
)
def test_a_text_costs_by_its_bytes_and_never_too_little(text: str, tokens: int) -> None:
    assert text_tokens(text) == tokens


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (Text("abcdef"), 2),
        (Reasoning("abcdef"), 2),
        (ToolCall("a", "look", {"at": "it"}), 4 + text_tokens('look{"at":"it"}')),
        (ToolCall("a", "look", {}, raw='{"at": '), 4 + text_tokens('look{}{"at": ')),
        (ToolResult("a", "look", (Text("abcdef"), Image(url="x"))), 4 + 2 + PER_PICTURE),
        (Image(url="https://x"), PER_PICTURE),
        (File(data=b"x" * 30_000), 10_000),
        (File(data=b"x"), PER_PICTURE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_part_of_a_message_has_its_price(part: Any, tokens: int) -> None:
    assert message_tokens(Message("user", (part,))) == 4 + tokens
    assert message_tokens(Message("user", (part, part))) == 4 + 2 * tokens


def test_tools_cost_their_names_descriptions_and_schemas() -> None:
    tool = ToolSpec(name="abc", description="def", parameters={})
    assert request_tokens("", []) == 4
    assert request_tokens("abcdef", []) == 4 + 2
    assert request_tokens("abcdef", [tool, tool]) == 4 + 2 + 2 * (4 + text_tokens("abcdef{}"))


def said(words: str) -> list[Message]:
    return [Message("user", (Text(words),))]


def test_as_many_turns_are_told_as_fit_and_one_at_least() -> None:
    turns = [said("x" * 23), said("y" * 23), said("z" * 23)]  # ten tokens each
    assert transcript(None, turns, 30)[1] == 3
    assert transcript(None, turns, 29)[1] == 2
    assert transcript(None, turns, 1) == ("[user] " + "x" * 23, 1)
    text, held = transcript("Short.", turns, 30)
    assert held == 1, "what came before takes its room"
    assert text == "[summary of what came before]\nShort.\n\n[user] " + "x" * 23
    assert transcript(None, [], 30) == ("", 0)


def test_calls_and_results_are_told_in_words_and_long_parts_are_cut() -> None:
    turn = [
        Message("assistant", (Text("Well."), ToolCall("a", "look", {"at": "ü"}))),
        Message("tool", (ToolResult("a", "look", (Text("seen"),)),)),
        Message("user", (Image(url="x"), Text("y" * (PART_CHARS + 1)))),
    ]
    text, _ = transcript(None, [turn], 100)
    assert '[assistant] Well.\ncalls look({"at": "ü"})\n[tool] look returned: seen\n[user] (image)' in text
    assert "y" * PART_CHARS not in text


def test_what_is_shown_is_a_sequence_like_any_other() -> None:
    words = [said(str(number))[0] for number in range(9)]
    shown = Shown((words[0],), words, 4, 7)
    assert list(shown) == [words[0], *words[4:7]]
    assert [shown[at] for at in range(-4, 4)] == [*shown, *shown]
    for part in (slice(None), slice(1, 3), slice(-2, None), slice(None, None, -1), slice(9, 12)):
        assert shown[part] == tuple(list(shown)[part])
    for at in (4, -5):
        with pytest.raises(IndexError, match=f"message {at} of 4"):
            shown[at]
    words.append(said("later")[0])
    assert len(shown) == 4, "what is said later is not in it"
