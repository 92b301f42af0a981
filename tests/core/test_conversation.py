"""Conversations that no provider accepts, and why, as a table."""

from typing import Any

import pytest

from treadle.core.conversation import faults
from treadle.core.messages import Message, Text, ToolCall, ToolResult

ASK = Message("user", (Text("go"),))


def asked(*ids: str, role: Any = "assistant") -> Message:
    return Message(role, tuple([ToolCall(call, "look", {}) for call in ids]))


def gave(*ids: str, role: Any = "tool") -> Message:
    return Message(role, tuple([ToolResult(call, "look", (Text("seen"),)) for call in ids]))


@pytest.mark.parametrize(
    "words",
    [
        [],
        [ASK],
        [ASK, asked("a", "b"), gave("a", "b"), asked("c"), gave("c"), Message("assistant", (Text("done"),))],
    ],
    ids=len,
)
def test_a_well_formed_conversation_has_no_faults(words: list[Message]) -> None:
    assert list(faults(words)) == []


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([asked("a"), gave("b")], "message 1 gives results ['b'] where ['a'] are owed"),
        ([asked("a", "b"), gave("b", "a")], "message 1 gives results ['b', 'a'] where ['a', 'b'] are owed"),
        ([asked("a"), ASK], "message 1 gives results [] where ['a'] are owed"),
        ([ASK, gave("a")], "message 1 gives results ['a'] where [] are owed"),
        ([asked("a"), gave("a", role="user")], "message 1 of role user holds the results ['a']"),
        ([Message("tool", (Text("seen"),))], "message 0 of role tool holds the results []"),
        ([asked("a", role="user"), gave("a")], "message 0 of role user asks for ['a']"),
        ([asked("a"), gave("a"), asked("a"), gave("a")], "message 2: call id 'a' twice or empty"),
        ([asked("a", "a"), gave("a", "a")], "message 0: call id 'a' twice or empty"),
        ([asked(""), gave("")], "message 0: call id '' twice or empty"),
        ([asked("a")], "no results for ['a']"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_is_named_once_and_by_its_message(words: list[Message], fault: str) -> None:
    assert list(faults(words)) == [fault]
