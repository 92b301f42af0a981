"""Wake the streams of one feed."""

from __future__ import annotations

import asyncio
from typing import Final

PAUSE_SECONDS: Final = 0.0002
"""Seconds by which each woken stream delays the next wake-up for deltas: about five times its cost."""

LONGEST_PAUSE: Final = 0.25


class Waker:
    """Wakes one stream, which may read several feeds."""

    __slots__ = ("_awake", "_waiting")

    def __init__(self) -> None:
        self._waiting: asyncio.Future[None] | None = None
        self._awake = False

    def wake(self) -> None:
        """Make `wait` return, now or at its next call; call it in the stream's event loop."""
        self._awake = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Wait until `wake` was called after the last return."""
        if not self._awake:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        self._awake = False


class Audience:
    """The streams of one feed, which are woken together.

    Urgent items wake them at once. Other items wake them after a pause that grows with the number of streams.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wakers: dict[Waker, int | None] = {}
        """the streams, each with the length at which it cuts texts"""

        self.cuts: frozenset[int | None] = frozenset()
        """the lengths at which they cut texts"""

        self._wake_at: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_urgent = False
        self._quiet_until = 0.0

    def __len__(self) -> int:
        return len(self._wakers)

    def join(self, waker: Waker, cut: int | None) -> None:
        """Add a stream that cuts texts at a length."""
        self._wakers[waker] = cut
        self.cuts = frozenset(self._wakers.values())

    def leave(self, waker: Waker) -> None:
        """Remove a stream."""
        self._wakers.pop(waker, None)
        self.cuts = frozenset(self._wakers.values())

    def wake_soon(self, *, urgent: bool) -> None:
        """Schedule one wake-up of all streams for all items added before it."""
        if self._wake_at is not None and (self._is_urgent or not urgent):
            return
        if self._wake_at is not None:
            self._wake_at.cancel()
        self._is_urgent = urgent
        if urgent or self._loop.time() >= self._quiet_until:
            self._wake_at = self._loop.call_soon(self._wake)
        else:
            self._wake_at = self._loop.call_at(self._quiet_until, self._wake)

    def _wake(self) -> None:
        self._wake_at = None
        self._quiet_until = self._loop.time() + min(len(self._wakers) * PAUSE_SECONDS, LONGEST_PAUSE)
        for waker in self._wakers:
            waker.wake()

    def cancel(self) -> None:
        """Cancel the scheduled wake-up."""
        if self._wake_at is not None:
            self._wake_at.cancel()
