"""`Recall`: the port `Memory`, as the composition root hands it to a runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.context import summaries
from treadle.context.window import ConversationWindow
from treadle.core.messages import Message
from treadle.core.tokens import message_tokens
from treadle.ports import Conversation


class Recall:
    """Reduces long conversations for models: windows and transcripts.

    Args:
        count: returns the tokens of a message; by default an estimate from its size.
    """

    def __init__(self, count: Callable[[Message], int] | None = None) -> None:
        self._count = count or message_tokens

    def window(self, conversation: Conversation) -> ConversationWindow:
        """Return a window that follows a conversation; see `Memory.window`."""
        return ConversationWindow(conversation, self._count)

    def tokens(self, messages: Sequence[Message]) -> int:
        """Return the number of tokens of messages."""
        return sum([self._count(message) for message in messages])

    def transcript(
        self, previous: str | None, turns: Sequence[Sequence[Message]], limit: int
    ) -> tuple[str, int]:
        """Return the text to summarise, and the number of turns in it; see `Memory.transcript`."""
        return summaries.transcript(previous, turns, limit)
