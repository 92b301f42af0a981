"""Things that belong to one event loop, such as HTTP clients: made in it at first use, closed when it ends."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One value for each event loop that asks.

    A value is closed when its loop shuts its async generators down (as `asyncio.run` does at its end), or soon after
    this object is no longer used.

    Args:
        make: makes the value, in its loop.
        close: closes it.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, list[bool], Callable[[], object]]] = {}

    async def get(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is not None and not held[1]:
            return held[0]
        for other in [other for other in list(self._held) if other is loop or other.is_closed()]:
            _, _, forget = self._held.pop(other)
            forget()
        value, closed = self._make(), list[bool]()
        keeper = _keep(value, closed, self._close)
        # Held from outside, so that no garbage collection meets an open connection together with its owner.
        unused = weakref.finalize(self, _let_go, keeper, loop)
        unused.atexit = False
        self._held[loop] = (value, closed, unused.detach)
        await anext(keeper)
        return value


async def _keep(value: T, closed: list[bool], close: Callable[[T], Awaitable[None]]) -> AsyncGenerator[None]:
    # An event loop closes the generators begun in it before it ends: the one hook that every runner of loops calls.
    try:
        yield
    finally:
        closed.append(True)
        await close(value)


_closing: set[asyncio.Task[None]] = set()


def _let_go(keeper: AsyncGenerator[None], loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_end, keeper, loop)


def _end(keeper: AsyncGenerator[None], loop: asyncio.AbstractEventLoop) -> None:
    async def end() -> None:
        await keeper.aclose()

    task: asyncio.Task[Any] = loop.create_task(end())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
