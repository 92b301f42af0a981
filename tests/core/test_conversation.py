"""Conversations that no provider accepts, and why, as a table."""

from typing import Any

import pytest

from treadle.core.messages import Message, Text, ToolCall, ToolResult, faults

ASK = Message("user", (Text("go"),))


def calls(*ids: str, role: Any = "assistant") -> Message:
    return Message(role, tuple([ToolCall(call, "look", {}) for call in ids]))


def gave(*ids: str, role: Any = "tool") -> Message:
    return Message(role, tuple([ToolResult(call, "look", (Text("seen"),)) for call in ids]))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [ASK],
        [ASK, calls("a", "b"), gave("a", "b"), calls("c"), gave("c"), Message("assistant", (Text("done"),))],
    ],
    ids=len,
)
def test_a_well_formed_conversation_has_no_faults(messages: list[Message]) -> None:
    assert list(faults(messages)) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([calls("a"), gave("b")], "message 1 gives results ['b'] where ['a'] are owed"),
        ([calls("a", "b"), gave("b", "a")], "message 1 gives results ['b', 'a'] where ['a', 'b'] are owed"),
        ([calls("a"), ASK], "message 1 gives results [] where ['a'] are owed"),
        ([ASK, gave("a")], "message 1 gives results ['a'] where [] are owed"),
        ([calls("a"), gave("a", role="user")], "message 1 of role user holds the results ['a']"),
        ([Message("tool", (Text("seen"),))], "message 0 of role tool holds the results []"),
        ([calls("a", role="user"), gave("a")], "message 0 of role user asks for ['a']"),
        ([calls("a"), gave("a"), calls("a"), gave("a")], "message 2: call id 'a' twice or empty"),
        ([calls("a", "a"), gave("a", "a")], "message 0: call id 'a' twice or empty"),
        ([calls(""), gave("")], "message 0: call id '' twice or empty"),
        ([calls("a")], "no results for ['a']"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_is_named_once_and_by_its_message(messages: list[Message], fault: str) -> None:
    assert list(faults(messages)) == [fault]
