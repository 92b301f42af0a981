"""The one bridge from code without asyncio to the runner: a private event loop in a thread of its own.

It works from anywhere, also from inside a running event loop, since the calling thread only waits. The loop is made at
the first call and its thread is a daemon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from threading import Lock, Thread
from typing import Any, TypeVar

R = TypeVar("R")


class Bridge:
    """Runs coroutines in a loop of its own and waits for them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Return what the coroutine returns. Ctrl-C cancels it, waits until it has ended, and is raised again."""
        future: Future[R] = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            self._drain()
            raise
        except CancelledError:
            raise asyncio.CancelledError from None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                Thread(target=self._loop.run_forever, name="treadle-sync", daemon=True).start()
            return self._loop

    def _drain(self) -> None:
        """Wait until what was cancelled has really ended: the task is interrupted durably by then."""
        loop = self._running()

        async def rest() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if others:
                await asyncio.wait(others, timeout=10)

        asyncio.run_coroutine_threadsafe(rest(), loop).result()


BRIDGE = Bridge()
"""Shared by all runners of the process: it holds no state of theirs."""
