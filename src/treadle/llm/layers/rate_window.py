"""The queue of a rate limit: sliding windows let requests pass in the order in which their calls began.

Theory of operation
-------------------

A `SlidingWindow` counts the requests and tokens of the last second or minute. A `RateWindow` holds the windows of one
account and the requests that wait for them. Event loops and threads share it under one lock.

    acquire --> waiting --called--> first, and all windows allow it? --yes--> passed (counted at this moment)
                   ^                        |
                   +----------no------------+      --would wait longer than `hold`--> refused (`ModelError`)

Only the first waiter is called. If the windows allow it to pass, that is at once, else a timer in its own event loop
does it. A waiter that leaves the queue calls the next one.

Invariant: while a runnable waiter is in the queue, the first waiter is called, has a timer, or is called by another
waiter's periodic check. The periodic check exists because another event loop may be blocked or closed. A called waiter
that does not pass within `CALL_SECONDS` is removed. If it wakes up after all, it joins the queue again at its old
place.

Example: two requests a second, three callers at time 0. `GROUPS` makes a window of one request in 0.525 s. The first
passes; the second and third wait. The second has a timer for 0.525, passes, and sets a timer for the third at 1.05.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from itertools import count
from math import ceil
from threading import Lock
from typing import Final

from treadle.errors import ModelError
from treadle.llm.layers.layer import Shared

SLACK = 0.05
"""Seconds by which a window is longer than a second or a minute.

The provider counts arrivals, and one request may travel that much longer than the next.
"""

GROUPS = 20
"""The number of groups into which the requests of a second are divided, if there are as many."""

CALL_SECONDS = 1.0
"""Seconds within which a called waiter has to pass, before the next one is called."""


class Slot:
    """A request that passed: its time, and its amount in a window."""

    __slots__ = ("amount", "time")

    def __init__(self, time: float, amount: int) -> None:
        self.time = time
        self.amount = amount


class SlidingWindow:
    """A limit on the amount that passes in any stretch of time. A larger amount passes alone.

    Args:
        limit: the largest amount in any such stretch.
        seconds: the length of the stretch.
        of_tokens: whether it counts tokens, not requests.
    """

    __slots__ = ("_limit", "_passed", "_seconds", "_sum", "of_tokens")

    def __init__(self, limit: int, seconds: float, *, of_tokens: bool = False) -> None:
        self._limit = limit
        self._seconds = seconds
        self._passed: deque[Slot] = deque()
        self._sum = 0
        self.of_tokens = of_tokens

    def wait(self, now: float, amount: int, ahead: int = 0) -> float:
        """Return the seconds until an amount may pass, if another amount passes before it."""
        passed = self._passed
        while passed and passed[0].time + self._seconds <= now:
            self._sum -= passed.popleft().amount
        over = self._sum + ahead + min(amount, self._limit) - self._limit
        if over <= 0:
            return 0.0
        if over <= self._sum:
            for slot in passed:
                over -= slot.amount
                if over <= 0:
                    return slot.time + self._seconds - now
        last = passed[-1].time + self._seconds - now if passed else 0.0
        return last + ceil((over - self._sum) / self._limit) * self._seconds

    def add(self, now: float, amount: int) -> Slot:
        """Count an amount that passes now."""
        slot = Slot(now, amount)
        self._passed.append(slot)
        self._sum += amount
        return slot

    def change(self, slot: Slot, amount: int) -> None:
        """Change the amount of a slot that is still inside the window."""
        if self._passed and slot.time >= self._passed[0].time:
            self._sum += amount - slot.amount
            slot.amount = amount


class Waiter:
    """A request in the queue. Its `turn` is done when it has to check whether it may pass."""

    __slots__ = (
        "_check_timer",
        "_loop",
        "_turn_timer",
        "call_due",
        "called_at",
        "is_late",
        "order",
        "tokens",
        "turn",
    )

    def __init__(self, order: tuple[int, int], tokens: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._turn_timer: asyncio.TimerHandle | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self.order = order
        self.tokens = tokens
        self.turn: asyncio.Future[None] = self._loop.create_future()
        self.is_late = False
        """whether it has waited for the longest time allowed"""

        self.called_at: float | None = None
        self.call_due: float | None = None
        """the time for which its timer is set"""

    def call(self) -> None:
        """Have the waiter check whether it may pass; from any thread.

        Raises:
            RuntimeError: its event loop is closed.
        """
        self._loop.call_soon_threadsafe(self.end_turn)

    def call_in(self, seconds: float) -> None:
        """Call the waiter after some time; from any thread.

        Raises:
            RuntimeError: its event loop is closed.
        """
        self._loop.call_soon_threadsafe(self._set_timer, seconds)

    def check_in(self, seconds: float, remaining: float, check: Callable[[Waiter, float], None]) -> None:
        """Run a check of the queue after some time, with the rest of the waiter's time."""
        self._check_timer = self._loop.call_later(seconds, check, self, remaining - seconds)

    def end_turn(self) -> None:
        """Wake the waiter."""
        if not self.turn.done():
            self.turn.set_result(None)

    async def called(self) -> None:
        """Wait until the waiter is called."""
        await self.turn
        self.turn = self._loop.create_future()

    def stop(self) -> None:
        """Cancel the timers."""
        for timer in (self._turn_timer, self._check_timer):
            if timer is not None:
                timer.cancel()

    def _set_timer(self, seconds: float) -> None:
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._turn_timer = self._loop.call_later(seconds, self.end_turn)


class RateWindow:
    """Lets requests pass as its windows allow, in the order in which their model calls began.

    Safe from any thread.

    A request counts from the moment it passes, however late its event loop wakes it.

    Args:
        name: the account, for error messages.
        windows: the limits.
        clock: returns the time in seconds; the same for all threads.
    """

    def __init__(self, name: str, windows: list[SlidingWindow], clock: Callable[[], float]) -> None:
        self._name = name
        self._windows = windows
        self._clock = clock
        self._lock = Lock()
        self._waiting: list[Waiter] = []
        self._numbers = count()

    def try_acquire(self, tokens: int) -> list[Slot] | None:
        """Pass now, if no request waits and all windows allow it; else return None."""
        with self._lock:
            now = self._clock()
            if self._waiting or self._wait(now, tokens) > 0:
                return None
            return self._add(now, tokens)

    async def acquire(self, tokens: int, asked_at: int, hold: float) -> list[Slot]:
        """Wait for the request's turn and pass.

        Args:
            tokens: the estimated tokens of the request.
            asked_at: when the first attempt of its model call began. Earlier ones go first.
            hold: the longest wait, in seconds.

        Raises:
            ModelError: its turn is more than `hold` seconds away.
        """
        waiter = Waiter((asked_at, next(self._numbers)), tokens)
        try:
            with self._lock:
                insort(self._waiting, waiter, key=_order)
                expected = self._expected(waiter)
                if expected > hold:
                    raise self._refusal(expected)
            waiter.check_in(min(expected, hold), hold, self._check)
            while True:
                self._call_first()
                await waiter.called()
                with self._lock:
                    if (slots := self._pass(waiter)) is not None:
                        return slots
                    if waiter.is_late:
                        raise self._refusal(self._expected(waiter))
        finally:
            waiter.stop()
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
            self._call_first()

    def correct(self, slots: list[Slot], tokens: int) -> None:
        """Set how many tokens a request has used."""
        with self._lock:
            for window, slot in zip(self._windows, slots, strict=True):
                if window.of_tokens:
                    window.change(slot, tokens)
        self._call_first()

    def refund(self, slots: list[Slot]) -> None:
        """Take back a request that was not sent after all."""
        with self._lock:
            for window, slot in zip(self._windows, slots, strict=True):
                window.change(slot, 0)
        self._call_first()

    def ready_in(self) -> float:
        """Return the approximate seconds until a further request would pass."""
        with self._lock:
            tokens = sum(waiter.tokens for waiter in self._waiting)
            return self._wait(self._clock(), 1, len(self._waiting), tokens)

    def _pass(self, waiter: Waiter) -> list[Slot] | None:
        """Let a waiter pass, if it is the first and all windows allow it."""
        waiter.called_at = waiter.call_due = None
        if waiter not in self._waiting:  # removed because its event loop was blocked
            insort(self._waiting, waiter, key=_order)
        now = self._clock()
        if self._waiting[0] is not waiter or self._wait(now, waiter.tokens) > 0:
            return None
        del self._waiting[0]
        return self._add(now, waiter.tokens)

    def _check(self, waiter: Waiter, remaining: float) -> None:
        """Call the first waiter again, since its event loop may be gone, and end the own wait in time."""
        self._call_first()
        if remaining <= 0.0:
            waiter.is_late = True
            waiter.end_turn()
            return
        with self._lock:
            expected = self._expected(waiter) if waiter in self._waiting else 0.0
        waiter.check_in(min(max(expected, SLACK), remaining), remaining, self._check)

    def _call_first(self) -> None:
        """Call the first waiter as soon as the windows allow it to pass."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                now, first = self._clock(), self._waiting[0]
                if first.called_at is not None:
                    if now - first.called_at <= CALL_SECONDS:
                        return
                    del self._waiting[0]  # its event loop is blocked
                    continue
                wait = self._wait(now, first.tokens)
                if wait <= 0:
                    first.called_at = now
                elif first.call_due is not None and now < first.call_due <= now + wait:
                    return  # its timer is set
                else:
                    first.call_due = now + wait
            try:
                if wait <= 0:
                    first.call()
                else:
                    first.call_in(wait)
                return
            except RuntimeError:  # its event loop was closed, with the request in it
                with self._lock:
                    if first in self._waiting:
                        self._waiting.remove(first)

    def _expected(self, waiter: Waiter) -> float:
        index = self._waiting.index(waiter)
        tokens = sum(earlier.tokens for earlier in self._waiting[:index])
        return self._wait(self._clock(), waiter.tokens, index, tokens)

    def _wait(self, now: float, tokens: int, ahead: int = 0, tokens_ahead: int = 0) -> float:
        longest = 0.0
        for window in self._windows:
            of_tokens = window.of_tokens
            wait = window.wait(now, tokens if of_tokens else 1, tokens_ahead if of_tokens else ahead)
            longest = max(longest, wait)
        return longest

    def _add(self, now: float, tokens: int) -> list[Slot]:
        return [window.add(now, tokens if window.of_tokens else 1) for window in self._windows]

    def _refusal(self, wait: float) -> ModelError:
        message = f"not sent: under the rate limit of {self._name} its turn comes in about {wait:.0f} s"
        return ModelError(message, kind="not_sent", again_in=wait)


def _order(waiter: Waiter) -> tuple[int, int]:
    return waiter.order


_rate_windows: Final = Shared[RateWindow]()


def rate_window_of(
    account: str,
    per_second: int | None,
    per_minute: int | None,
    tokens_per_minute: int | None,
    clock: Callable[[], float],
) -> RateWindow:
    """Return the rate window that all limits with these numbers share for an account."""

    def make() -> RateWindow:
        windows: list[SlidingWindow] = []
        if per_second is not None:
            # In groups, not all at once: requests sent at one moment do not arrive at one moment.
            group = max(1, per_second // GROUPS)
            windows.append(SlidingWindow(group, group / per_second * (1.0 + SLACK)))
        if per_minute is not None:
            windows.append(SlidingWindow(per_minute, 60.0 + SLACK))
        if tokens_per_minute is not None:
            windows.append(SlidingWindow(tokens_per_minute, 60.0 + SLACK, of_tokens=True))
        return RateWindow(account.partition(" #")[0], windows, clock)

    return _rate_windows.get((account, per_second, per_minute, tokens_per_minute, clock), make)
