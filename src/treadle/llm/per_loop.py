"""Values that belong to one event loop, such as HTTP clients.

The loop makes one at first use and closes it when it ends.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One value for each event loop.

    A value is closed when its loop shuts down its async generators, as `asyncio.run` does at its end. It is also closed
    soon after this object is garbage-collected.

    Args:
        make: makes the value, in its loop.
        close: closes the value.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._values: dict[asyncio.AbstractEventLoop, tuple[T, list[bool], Callable[[], object]]] = {}
        """by loop: the value, a list that is not empty once it is closed, and how to detach its finalizer"""

    async def get(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        entry = self._values.get(loop)
        if entry is not None and not entry[1]:
            return entry[0]
        for stale in [other for other in list(self._values) if other is loop or other.is_closed()]:
            _, _, detach = self._values.pop(stale)
            detach()
        value, closed = self._make(), list[bool]()
        closer = _close_with_loop(value, closed, self._close)
        # The finalizer holds the closer: an open connection is never garbage-collected together with its owner.
        finalizer = weakref.finalize(self, _close_soon, closer, loop)
        finalizer.atexit = False
        self._values[loop] = (value, closed, finalizer.detach)
        await anext(closer)
        return value


async def _close_with_loop(
    value: T, closed: list[bool], close: Callable[[T], Awaitable[None]]
) -> AsyncGenerator[None]:
    # An event loop closes its async generators before it ends. It is the one hook that all runners of loops support.
    try:
        yield
    finally:
        closed.append(True)
        await close(value)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(closer: AsyncGenerator[None], loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_close_in_task, closer, loop)


def _close_in_task(closer: AsyncGenerator[None], loop: asyncio.AbstractEventLoop) -> None:
    async def close() -> None:
        await closer.aclose()

    task: asyncio.Task[Any] = loop.create_task(close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
