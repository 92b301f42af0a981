"""The event loop for MCP servers, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_lock = Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None


def _loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop; a forked child makes a new one."""
    global _running  # noqa: PLW0603  one loop for each process, made at its first use
    with _lock:
        if _running is None or _running[0] != os.getpid():
            loop = asyncio.new_event_loop()
            Thread(target=loop.run_forever, name="treadle-mcp", daemon=True).start()
            _running = os.getpid(), loop
        return _running[1]


async def in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop for MCP servers; cancelling the caller cancels it."""
    loop = _loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
