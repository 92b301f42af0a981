"""Filters of handoffs: each is a function of messages that returns those an agent sees after a handoff.

A filter keeps a conversation well-formed: each call has its result, and each result its call.
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
    """Return the conversation without tool calls and their results; text beside a call stays."""
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
    """Return the messages of the user."""
    return [message for message in messages if message.role == "user"]


@frozen
class LastMessages:
    """Keep the newest messages, from a user message on: providers refuse a conversation that begins otherwise.

    If the oldest of them is an answer or a result, the messages before it are kept too, back to the user message that
    it follows. If it follows none, the conversation is cut to the next user message after it.

    Args:
        count: the minimum number of messages, from 1 up; each tool result and each answer is a message.

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
        """Return the newest messages; raises `ModelError` if none of them is from the user."""
        oldest = max(0, len(messages) - self.count)
        earlier = (index for index in range(oldest, -1, -1) if messages[index].role == "user")
        later = (index for index in range(oldest, len(messages)) if messages[index].role == "user")
        start = next(earlier, next(later, None)) if messages else 0
        if start is None:
            text = f"{self.facts()} finds no message of the user among {len(messages)} to begin with"
            raise ModelError(text, kind="invalid_request")
        return list(messages[start:])


def filtered(messages: Sequence[Message], filters: Sequence[Any], name: str) -> list[Message]:
    """Return a conversation after its filters; raises `ModelError` if the result is malformed.

    Args:
        messages: the conversation so far.
        filters: applied in order.
        name: the name of the handoff in errors.
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
