"""How much of a message from another process is parsed: what is short to send may take much memory and time to read."""

from __future__ import annotations

from typing import Final

MAX_PARTS: Final = 100_000
"""Objects and lists of one message: to parse more would hold up the loops in which tasks are driven."""


def parts_of(data: bytes) -> int:
    """Return how many objects and lists a message may hold at most, without parsing it."""
    return data.count(b"{") + data.count(b"[")
