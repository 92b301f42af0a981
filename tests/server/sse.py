"""Reading `text/event-stream`, as little as tests need."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Frame:
    """One frame as it was sent; a frame of a comment alone has only that."""

    id: str | None = None
    event: str | None = None
    text: str | None = None
    retry: int | None = None
    comment: str | None = None

    @property
    def data(self) -> Any:
        return None if self.text is None else json.loads(self.text)

    @property
    def seq(self) -> int | None:
        return None if self.id is None else int(self.id)


def parsed(block: str) -> Frame:
    """Return the frame of the lines between two empty ones."""
    made = Frame()
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            made.comment = value
        elif name == "retry":
            made.retry = int(value)
        elif name == "data":
            assert made.text is None, "data stands on one line"
            made.text = value
        elif name in ("id", "event"):
            setattr(made, name, value)
        else:
            raise AssertionError(f"no field of a frame: {line!r}")
    return made


async def frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
    """Yield the frames of a body; a frame that was cut off is left out."""
    buffered = b""
    async for chunk in chunks:
        buffered += chunk
        *whole, buffered = buffered.split(b"\n\n")
        for block in whole:
            yield parsed(block.decode())
