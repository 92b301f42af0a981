"""What filters of handoffs leave of a conversation: always one that providers take."""

from typing import Any

import pytest

from treadle import (
    LastMessages,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    only_user_messages,
    without_tool_calls,
)
from treadle.agents.handoff import filtered
from treadle.core.messages import faults, user
from treadle.errors import ConfigurationError, ModelError

CALL = ToolCall("s1-0", "look", {})
RESULT = Message("tool", (ToolResult("s1-0", "look", (Text("seen"),)),))
TALK = [
    user("hello"),
    Message("assistant", (Reasoning("hm"), Text("I look."), CALL)),
    RESULT,
    Message("assistant", (Text("There."),)),
    user("more"),
    Message("assistant", (ToolCall("s2-0", "look", {}),)),
    Message("tool", (ToolResult("s2-0", "look", (Text("seen"),)),)),
]


def texts(messages: Any) -> list[str]:
    return [message.text or message.role for message in messages]


def test_a_conversation_without_tool_calls_keeps_what_was_said_beside_them() -> None:
    seen = without_tool_calls(TALK)
    assert texts(seen) == ["hello", "I look.", "There.", "more"]
    assert seen[1].parts == (Text("I look."),)


def test_only_the_messages_of_the_user() -> None:
    assert texts(only_user_messages(TALK)) == ["hello", "more"]


@pytest.mark.parametrize(("count", "kept"), [(1, 3), (2, 3), (3, 3), (4, 7), (5, 7), (6, 7), (7, 7), (99, 7)])
def test_the_last_messages_begin_with_one_of_the_user(count: int, kept: int) -> None:
    seen = LastMessages(count)(TALK)
    assert seen == TALK[len(TALK) - kept :]
    assert seen[0].role == "user"
    assert not list(faults(seen))


@pytest.mark.parametrize("count", [1, 3, 4, 6, 99])
def test_where_no_message_of_the_user_is_before_the_last_messages_they_begin_with_a_later_one(
    count: int,
) -> None:
    greeted = [Message("assistant", (Text("Welcome."),)), Message("assistant", (Text("Well?"),)), *TALK[4:]]
    assert LastMessages(count)(greeted) == TALK[4:]


def test_the_last_messages_of_nothing_are_none() -> None:
    assert LastMessages(3)([]) == []


def test_a_conversation_without_the_user_names_the_filter_that_cannot_begin_it() -> None:
    problem = r"the filter of the handoff failed: .*LastMessages\(2\) finds no message of the user among 3"
    with pytest.raises(ModelError, match=problem):
        filtered(TALK[1:4], [LastMessages(2)], "handoff")


@pytest.mark.parametrize("count", [0, True, "3"])
def test_a_number_of_messages_is_from_one_up(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="from 1 up"):
        LastMessages(count)


def test_filters_are_applied_in_order() -> None:
    assert texts(filtered(TALK, [without_tool_calls, LastMessages(2)], "handoff")) == [
        "hello",
        "I look.",
        "There.",
        "more",
    ]
    assert texts(filtered(TALK, [only_user_messages, LastMessages(1)], "handoff")) == ["more"]


def broken(messages: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("filter", "problem"),
    [
        (broken, "the filter of the handoff x failed: ValueError: no"),
        (lambda messages: ["text"], "returned a str among the messages"),
        (lambda messages: messages[2:], "a conversation that no provider takes"),
        (lambda messages: messages[:2], "a conversation that no provider takes"),
        (lambda messages: None, "failed: TypeError"),
    ],
)
def test_a_filter_that_leaves_no_conversation_is_an_error(filter: Any, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        filtered(TALK, [filter], "handoff x")
