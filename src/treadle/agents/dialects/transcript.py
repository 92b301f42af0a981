"""A conversation in plain text: calls and results as text, images and files as they are.

A message is converted when it is read: the conversation is shared and never copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, overload

from treadle.core.data import frozen
from treadle.core.labels import inside, label_of
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
"""The most characters that a model sees of its own unreadable answer."""


@frozen
class ModelTurn:
    """One turn of a model: its thought, and its calls or else its answer."""

    thought: str
    text: str
    calls: tuple[ToolCall, ...]


class Transcript(Sequence[Message]):
    """A view of a conversation as plain text.

    Args:
        messages: the conversation.
        write: returns the text of a turn of the model.
    """

    def __init__(self, messages: Sequence[Message], write: Callable[[ModelTurn], str]) -> None:
        self._messages = messages
        self._write = write

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return map(self._as_text, self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        item = self._messages[index]
        return self._as_text(item) if isinstance(item, Message) else tuple(map(self._as_text, item))

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"

    def _as_text(self, message: Message) -> Message:
        if message.role == "assistant":
            return self._turn(message)
        return Message("user", _observations(message)) if message.role == "tool" else message

    def _turn(self, message: Message) -> Message:
        """Return a message of the model as text, after the parts that its provider needs back."""
        parts: list[Part] = []
        thoughts: list[str] = []
        texts: list[str] = []
        for part in message.parts:
            if isinstance(part, Reasoning) and part.meta == IN_WORDS:
                thoughts.append(part.text)
            elif isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, ToolCall) and part.problem is not None and part.meta == IN_WORDS:
                written = bounded((part.raw or "").strip(), RAW_CHARS) or "(nothing)"
                return Message("assistant", (*parts, Text(written)), message.meta)
            elif not isinstance(part, (ToolCall, ToolResult)) and part.meta != UNSEEN:
                parts.append(part)
        turn = ModelTurn("\n".join(thoughts), "".join(texts), message.tool_calls)
        return Message("assistant", (*parts, Text(self._write(turn))), message.meta)


def _observations(message: Message) -> tuple[Content, ...]:
    """Return the results of a turn's calls, in their order; images and files stay unchanged.

    Untrusted content is a part of its own, with its label. It is framed when the request is sent.
    """
    parts: list[Content] = []
    texts: list[str] = []
    for number, result in enumerate([part for part in message.parts if isinstance(part, ToolResult)]):
        whole = label_of("tool", result)
        texts.append("\nObservation: " if number else "Observation: ")
        for part in result.parts:
            label = inside(whole, part.label)
            if isinstance(part, Text) and label.integrity == "trusted":
                texts.append(part.text)
                continue
            if texts:
                parts.append(Text("".join(texts)))
            texts = []
            untrusted = label.integrity == "untrusted"
            parts.append(replace(part, label=replace(label, frame=result.frame)) if untrusted else part)
    return (*parts, Text("".join(texts))) if texts else tuple(parts)


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON, or as the model wrote them if they could not be read."""
    if call.problem is not None:
        return bounded(call.raw or "", RAW_CHARS)
    return json.dumps(call.arguments, ensure_ascii=False)
