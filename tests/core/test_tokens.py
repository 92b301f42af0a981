"""Estimates of tokens: of texts, messages, requests and answers."""

from typing import Any

import pytest

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
