"""Transcripts: the text of older turns that a model summarises."""

from treadle.context.recall import PART_CHARS, transcript
from treadle.core.messages import Image, Message, Text, ToolCall, ToolResult


def exchange(content: str) -> list[Message]:
    return [Message("user", (Text(content),))]


def test_as_many_turns_as_fit_are_included_and_at_least_one() -> None:
    turns = [exchange("x" * 23), exchange("y" * 23), exchange("z" * 23)]  # ten tokens each
    assert transcript(None, turns, 30)[1] == 3
    assert transcript(None, turns, 29)[1] == 2
    assert transcript(None, turns, 1) == ("[user] " + "x" * 23, 1)
    text, held = transcript("Short.", turns, 30)
    assert held == 1, "what came before takes its room"
    assert text == "[summary of what came before]\nShort.\n\n[user] " + "x" * 23
    assert transcript(None, [], 30) == ("", 0)


def test_a_summary_request_shows_calls_and_results_as_text_and_cuts_long_parts() -> None:
    turn = [
        Message("assistant", (Text("Well."), ToolCall("a", "look", {"at": "ü"}))),
        Message("tool", (ToolResult("a", "look", (Text("seen"),)),)),
        Message("user", (Image(url="x"), Text("y" * (PART_CHARS + 1)))),
    ]
    text, _ = transcript(None, [turn], 100)
    assert '[assistant] Well.\ncalls look({"at": "ü"})\n[tool] look returned: seen\n[user] (image)' in text
    assert "y" * PART_CHARS not in text
