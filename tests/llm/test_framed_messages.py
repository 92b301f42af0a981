"""Framed messages that are kept from request to request."""

from __future__ import annotations

from dataclasses import replace

from treadle.core.framing import framed_message
from treadle.core.labels import Label
from treadle.core.messages import Message, Text, ToolResult, user
from treadle.llm.framed_messages import FramedMessages


def result(number: int, text: str = "a page") -> Message:
    return Message("tool", (ToolResult(f"s{number}-0", "look", (Text(text),), frame=f"x{number:011x}"),))


def test_a_message_is_framed_once():
    cache, message = FramedMessages(), result(1)
    framed = cache.of(message)
    assert framed == framed_message(message)
    assert cache.of(message) is framed


def test_another_message_with_the_same_nonce_is_framed_anew():
    cache = FramedMessages()
    cache.of(result(1))
    other = result(1, "what a guardrail made of it")
    assert cache.of(other) == framed_message(other)
    assert cache.of(replace(other)) == framed_message(other)


def test_messages_without_a_nonce_are_not_kept_and_trusted_ones_stay_as_they_are():
    cache, said = FramedMessages(), user("hello")
    assert cache.of(said) is said
    unplaced = Message("tool", (ToolResult("s1-0", "look", (Text("a page"),)),))
    assert cache.of(unplaced) == framed_message(unplaced)
    assert cache.of(unplaced) is not cache.of(unplaced)
    mail = Message("user", (Text("mail", label=Label("mail", "untrusted", "x0123456789a")),))
    assert cache.of(mail) is cache.of(mail)


def test_the_oldest_messages_go_when_there_are_too_many_characters():
    cache = FramedMessages(most=1_000)
    messages = [result(number, "y" * 200) for number in range(10)]
    framed = [cache.of(message) for message in messages]
    assert cache.of(messages[-1]) is framed[-1]
    assert cache.of(messages[0]) is not framed[0]
    assert cache.of(messages[0]) == framed[0]
    huge = result(99, "y" * 5_000)
    assert cache.of(huge) is not cache.of(huge), "it would leave no room for others"
