"""`Recall`, the implementation of the port `Memory` for a runner.

Transcripts for summaries: the text that a model summarises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from treadle.context.window import ConversationWindow
from treadle.core.messages import Message, Part, Text, ToolCall, ToolResult
from treadle.core.observation import bounded
from treadle.core.tokens import message_tokens, text_tokens
from treadle.ports import Conversation

PART_CHARS: Final = 2_000
"""Maximum number of characters of each part of a message."""


def transcript(previous: str | None, turns: Sequence[Sequence[Message]], limit: int) -> tuple[str, int]:
    """Return a text to summarise of at most about `limit` tokens, and the number of turns in it.

    Args:
        previous: the summary of earlier turns, if any.
        turns: messages by task, the oldest first. The first one is included whole even if it is too long.
        limit: in tokens.
    """
    texts = [f"[summary of what came before]\n{previous}"] if previous else []
    spent = sum([text_tokens(text) for text in texts])
    skipped = 0
    for turn in turns:
        text = "\n".join([_message_text(message) for message in turn])
        spent += text_tokens(text)
        if skipped and spent > limit:
            break
        texts.append(text)
        skipped += 1
    return "\n\n".join(texts), skipped


def _message_text(message: Message) -> str:
    return f"[{message.role}] " + "\n".join([_part_text(part) for part in message.parts])


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        return bounded(part.text, PART_CHARS)
    if isinstance(part, ToolCall):
        return f"calls {part.name}({bounded(json.dumps(part.arguments, ensure_ascii=False), PART_CHARS)})"
    if isinstance(part, ToolResult):
        return f"{part.name} returned: {bounded(part.text, PART_CHARS)}"
    return f"({type(part).__name__.lower()})"


class Recall:
    """Reduces long conversations for models: windows and transcripts.

    Args:
        count: returns the tokens of a message. Default: an estimate from its size.
    """

    def __init__(self, count: Callable[[Message], int] | None = None) -> None:
        self._count = count or message_tokens

    def window(self, conversation: Conversation) -> ConversationWindow:
        return ConversationWindow(conversation, self._count)

    def tokens(self, messages: Sequence[Message]) -> int:
        return sum([self._count(message) for message in messages])

    def transcript(
        self, previous: str | None, turns: Sequence[Sequence[Message]], limit: int
    ) -> tuple[str, int]:
        """Return the text to summarise, and the number of turns in it. See `Memory.transcript`."""
        return transcript(previous, turns, limit)
