"""Limit the size of messages from other processes. Short JSON can take much memory and time to parse."""

from __future__ import annotations

from typing import Final

MAX_PARTS: Final = 100_000
"""Most objects and lists in one message. Parsing more would block the event loops that drive tasks."""


def parts_of(data: bytes) -> int:
    """Return an upper bound of the objects and lists in a message, without parsing it."""
    return data.count(b"{") + data.count(b"[")
