"""Messages are values; a view of a growing conversation stays what it was."""

from typing import Any

import pytest

from treadle.core.messages import (
    File,
    Message,
    MessageView,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    content,
    copied,
    faults,
    user,
)


def test_the_text_of_a_message_is_its_text_alone() -> None:
    message = Message("assistant", (Reasoning("hm"), Text("a"), ToolCall("s1-0", "look", {}), Text("b")))
    assert message.text == "ab"
    assert [call.id for call in message.tool_calls] == ["s1-0"]


def test_content_is_made_of_text_a_part_or_a_sequence() -> None:
    file = File(data=b"x")
    assert content("a") == (Text("a"),)
    assert content(file) == (file,)
    assert content(["a", file]) == (Text("a"), file)
    assert user("a", file) == Message("user", (Text("a"), file))


def test_copied_data_shares_no_list_and_no_object() -> None:
    value = {"a": [1, {"b": None}]}
    copy = copied(value)
    assert copy == value
    value["a"].append(2)
    assert copy == {"a": [1, {"b": None}]}


def test_a_view_does_not_grow_with_its_list() -> None:
    messages = [user(str(number)) for number in range(4)]
    view = MessageView(messages, 3)
    messages.append(user("later"))
    assert list(view) == messages[:3]
    assert view[-1] == messages[2]
    assert view[1:] == tuple(messages[1:3])
    with pytest.raises(IndexError, match="message 3 of 3"):
        view[3]


def test_a_later_view_yields_what_came_after_an_earlier_one() -> None:
    messages = [user(str(number)) for number in range(4)]
    earlier, later = MessageView(messages, 1), MessageView(messages, 3)
    new = later.after(earlier)
    assert new is not None
    assert list(new) == messages[1:3]
    assert earlier.after(later) is None
    assert later.after(MessageView(list(messages), 1)) is None


# ---------------------------------------------- conversations that no provider accepts, and why, as a table


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
