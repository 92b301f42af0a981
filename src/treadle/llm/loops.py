"""Things that belong to one event loop, such as HTTP clients: made in it at first use, closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One value for each event loop that asks.

    Args:
        make: makes the value, in its loop.
        close: closes it, when the loop shuts its async generators down (as `asyncio.run` does at its end) or when
            this object is no longer used.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, list[bool], AsyncGenerator[None]]] = {}

    async def get(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None and not held[1]:
            return held[0]
        for other in [other for other in list(self._held) if other.is_closed()]:
            self._held.pop(other, None)
        value, closed = self._make(), list[bool]()
        keeper = _keep(value, closed, self._close)
        self._held[loop] = (value, closed, keeper)
        await anext(keeper)
        return value


async def _keep(value: T, closed: list[bool], close: Callable[[T], Awaitable[None]]) -> AsyncGenerator[None]:
    # An event loop closes the generators begun in it before it ends: the one hook that every runner of loops calls.
    try:
        yield
    finally:
        closed.append(True)
        await close(value)
