"""Filters of handoffs: what an agent sees of a conversation that moves to it. Each is a function of messages.

A filter keeps a conversation well-formed: no call is left without its result, and no result without its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from treadle.core.conversation import faults
from treadle.core.data import frozen
from treadle.core.messages import Json, Message, Reasoning, Text, ToolCall
from treadle.errors import ConfigurationError, ModelError


def without_tool_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation without tool calls and their results; what a model wrote beside a call stays."""
    kept: list[Message] = []
    for message in messages:
        if message.role == "tool":
            continue
        if not message.tool_calls:
            kept.append(message)
            continue
        # Reasoning belongs to the calls that it led to: providers refuse it without them.
        parts = tuple([part for part in message.parts if not isinstance(part, (ToolCall, Reasoning))])
        if any(not isinstance(part, Text) or part.text.strip() for part in parts):
            kept.append(replace(message, parts=parts))
    return kept


def only_user_messages(messages: Sequence[Message]) -> list[Message]:
    """Return what the user wrote."""
    return [message for message in messages if message.role == "user"]


@frozen
class LastMessages:
    """Keep the newest messages, from a message of the user on: providers refuse a conversation that begins otherwise.

    Where the oldest of them is an answer or a result, the messages before it are kept too, back to the user's message
    that it follows. If it follows none, the conversation is cut to the first message of the user after it.

    Args:
        count: how many at least, from 1 up; each result of a tool is in a message, and each answer is one.

    Raises:
        ConfigurationError: the count is not valid.
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"LastMessages takes a whole number from 1 up, got {self.count!r}")

    def facts(self) -> Json:
        """Return JSON data that differs when the settings do, for the fingerprint of an agent."""
        return f"LastMessages({self.count})"

    def __call__(self, messages: Sequence[Message]) -> list[Message]:
        """Return the newest messages; raises `ModelError` if the user wrote none of them all."""
        oldest = max(0, len(messages) - self.count)
        earlier = (index for index in range(oldest, -1, -1) if messages[index].role == "user")
        later = (index for index in range(oldest, len(messages)) if messages[index].role == "user")
        start = next(earlier, next(later, None)) if messages else 0
        if start is None:
            text = f"{self.facts()} finds no message of the user among {len(messages)} to begin with"
            raise ModelError(text, kind="invalid_request")
        return list(messages[start:])


def filtered(messages: Sequence[Message], filters: Sequence[Any], name: str) -> list[Message]:
    """Return what filters leave of a conversation; raises `ModelError` if that is not a conversation.

    Args:
        messages: the conversation so far.
        filters: applied in order.
        name: what to call the handoff in an error.
    """
    seen: Any = messages
    for each in filters:
        try:
            seen = list(each(seen))
        except Exception as error:
            text = f"the filter of the {name} failed: {type(error).__name__}: {error}"
            raise ModelError(text, kind="invalid_request") from error
        wrong = next((item for item in seen if not isinstance(item, Message)), None)
        if wrong is not None:
            text = f"the filter of the {name} returned a {type(wrong).__name__} among the messages"
            raise ModelError(text, kind="invalid_request")
    fault = next(faults(seen), None)
    if fault is not None:
        text = f"the filter of the {name} left a conversation that no provider takes: {fault}"
        raise ModelError(text, kind="invalid_request")
    return seen
