"""What a server may send: bounds on the size of messages, and on what it sends that is no answer."""

from __future__ import annotations

from typing import Final

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

MAX_MESSAGE: Final = 8 * 2**20
"""Bytes of one message."""

MAX_UNANSWERED: Final = 32 * 2**20
"""Bytes that a server may send before it answers something that it was asked."""

MAX_REQUESTS: Final = 100
"""How many requests of its own a server may send before it answers something that it was asked."""

MAX_NOISE: Final = 1_000
"""How many lines that are no messages a server may write before it answers something that it was asked."""


class Flooded(Exception):
    """A server sent more than it may; the text says what."""


class Traffic:
    """Counts what a server sends, from one answer to the next.

    An answer is a response to a request that is open: one with another id resets nothing.
    """

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._bytes = self._requests = self._noise = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request to the server is open."""
        return not self._open

    def sent(self, message: JSONRPCMessage) -> None:
        """Note a message to the server."""
        if isinstance(message, JSONRPCRequest):
            self._open.add(message.id)

    def received(self, message: JSONRPCMessage, size: int) -> None:
        """Note a message of the server; raises `Flooded`."""
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and message.id in self._open:
            self._open.discard(message.id)
            self._bytes = self._requests = self._noise = 0
            return
        self._bytes += size
        self._requests += isinstance(message, JSONRPCRequest)
        if self._requests > MAX_REQUESTS:
            raise Flooded(f"sent more than {MAX_REQUESTS} requests of its own without an answer")
        if self._bytes > MAX_UNANSWERED:
            raise Flooded(f"sent more than {MAX_UNANSWERED:,} bytes without an answer")

    def received_bytes(self, size: int) -> None:
        """Note a part of a message; raises `Flooded`."""
        self._bytes += size
        if self._bytes > MAX_UNANSWERED:
            raise Flooded(f"sent more than {MAX_UNANSWERED:,} bytes without an answer")

    def received_noise(self, size: int) -> None:
        """Note a line that is no message; raises `Flooded`."""
        self._noise += 1
        self._bytes += size
        if self._noise > MAX_NOISE or self._bytes > MAX_UNANSWERED:
            raise Flooded(f"wrote {self._noise:,} lines that are no JSON-RPC messages")
