"""A cache of framed messages. A conversation is sent again each turn, but framed once.

An entry's key is the nonce of the message's first frame. It counts only for the same message object. The oldest entries
are dropped when all texts together exceed `MOST_CHARS`.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

from treadle.core.framing import framed_message
from treadle.core.messages import Message, Text, ToolResult

MOST_CHARS: Final = 8_000_000
"""The most characters of framed messages that a process keeps."""


class FramedMessages:
    """A cache of framed messages, safe from any thread.

    Args:
        most: the most characters that it keeps.
    """

    def __init__(self, most: int = MOST_CHARS) -> None:
        self._most = most
        self._entries: dict[str, tuple[Message, Message, int]] = {}
        self._chars = 0
        self._lock = Lock()

    def of(self, message: Message) -> Message:
        """Return a message with its untrusted content in frames, or the message itself if it has none."""
        if message.role == "assistant" or not (nonce := _first_nonce(message)):
            return framed_message(message)
        entry = self._entries.get(nonce)
        if entry is not None and entry[0] is message:
            return entry[1]
        framed = framed_message(message)
        self._keep(nonce, message, framed)
        return framed

    def _keep(self, nonce: str, message: Message, framed: Message) -> None:
        size = sum([len(part.text) for part in framed.parts if isinstance(part, (Text, ToolResult))])
        if 2 * size > self._most:
            return
        with self._lock:
            if (former := self._entries.pop(nonce, None)) is not None:
                self._chars -= former[2]
            self._entries[nonce] = (message, framed, size)
            self._chars += size
            while self._chars > self._most:
                self._chars -= self._entries.pop(next(iter(self._entries)))[2]


def _first_nonce(message: Message) -> str | None:
    for part in message.parts:
        if isinstance(part, ToolResult):
            if part.frame:
                return part.frame
        elif isinstance(part, Text) and part.label is not None and part.label.frame:
            return part.label.frame
    return None


FRAMED: Final = FramedMessages()
"""The cache of the process. Conversations outlive the models, which are made anew for each client."""
