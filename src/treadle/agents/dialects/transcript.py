"""A conversation in plain text: calls and results as words, pictures and files as they are.

Messages are put into words when somebody looks at them, one by one: a conversation is shared and never copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final, overload

from treadle.core.data import frozen
from treadle.core.messages import (
    IN_WORDS,
    UNSEEN,
    Content,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from treadle.core.observation import bounded

RAW_CHARS: Final = 4_000
"""How many characters a model sees of an answer of its own that could not be read."""


@frozen
class ModelTurn:
    """What a model did in one turn: its thought, its calls, or without any, its answer."""

    thought: str
    words: str
    calls: tuple[ToolCall, ...]


class Transcript(Sequence[Message]):
    """A conversation in words.

    Args:
        messages: the conversation.
        write: puts a turn of the model into words.
    """

    def __init__(self, messages: Sequence[Message], write: Callable[[ModelTurn], str]) -> None:
        self._messages = messages
        self._write = write

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return map(self._said, self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        found = self._messages[index]
        return self._said(found) if isinstance(found, Message) else tuple(map(self._said, found))

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"

    def _said(self, message: Message) -> Message:
        if message.role == "assistant":
            return self._turn(message)
        return Message("user", _observations(message)) if message.role == "tool" else message

    def _turn(self, message: Message) -> Message:
        """Return what a model said, with what its provider wants back before it."""
        parts: list[Part] = []
        thoughts: list[str] = []
        words: list[str] = []
        for part in message.parts:
            if isinstance(part, Reasoning) and part.meta == IN_WORDS:
                thoughts.append(part.text)
            elif isinstance(part, Text):
                words.append(part.text)
            elif isinstance(part, ToolCall) and part.problem is not None and part.meta == IN_WORDS:
                written = bounded((part.raw or "").strip(), RAW_CHARS) or "(nothing)"
                return Message("assistant", (*parts, Text(written)), message.meta)
            elif not isinstance(part, (ToolCall, ToolResult)) and part.meta != UNSEEN:
                parts.append(part)
        turn = ModelTurn("\n".join(thoughts), "".join(words), message.tool_calls)
        return Message("assistant", (*parts, Text(self._write(turn))), message.meta)


def _observations(message: Message) -> tuple[Content, ...]:
    """Return the results of a turn's calls, in their order; pictures and files stay what they are."""
    parts: list[Content] = []
    words: list[str] = []
    for number, result in enumerate([part for part in message.parts if isinstance(part, ToolResult)]):
        words.append("\nObservation: " if number else "Observation: ")
        for part in result.parts:
            if isinstance(part, Text):
                words.append(part.text)
            else:
                parts += [Text("".join(words)), part] if words else [part]
                words = []
    return (*parts, Text("".join(words))) if words else tuple(parts)


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON, or as they were written when they could not be read."""
    if call.problem is not None:
        return bounded(call.raw or "", RAW_CHARS)
    return json.dumps(call.arguments, ensure_ascii=False)
