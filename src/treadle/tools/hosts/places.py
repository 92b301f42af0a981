"""Limit how many processes of tools run at the same time in this process; further calls queue."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from typing import Final

MAX_PROCESSES: Final = max(4, 2 * (os.cpu_count() or 1))
"""Most calls in processes of their own at the same time, across all event loops of this process."""


class Places:
    """A first-in, first-out semaphore for tasks of any event loop."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take a place; wait if none is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                had_waited = turn in self._waiting
                if had_waited:
                    self._waiting.remove(turn)
            if not had_waited:
                self.give_back()  # cancelled just after it got the place
            raise

    def give_back(self) -> None:
        """Give the place to the longest waiting task."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(_wake, turn)
                except RuntimeError:
                    continue  # the waiting task's event loop is closed
                return
            self._free += 1

    def waiting(self) -> int:
        """Return how many tasks wait."""
        return len(self._waiting)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


places: Final = Places(MAX_PROCESSES)
if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's calls.
    os.register_at_fork(after_in_child=lambda: places.__init__(MAX_PROCESSES))
