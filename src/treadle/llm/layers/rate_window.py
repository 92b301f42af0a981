"""Where requests wait for their turn: limits on how many pass in any stretch of time, shared by threads and loops."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import count
from math import ceil
from threading import Lock

from treadle.errors import ModelError

SLACK = 0.05
"""Seconds that a second, or a minute, is taken for longer than it is: as much longer than the next one a request may be
under way, and who counts where they arrive still finds no more of them."""

GROUPS = 20
"""Into how many groups the requests of a second are divided, at least, if there are as many."""

ANSWERS_IN = 1.0
"""Seconds within which somebody who is called has to pass: then the next one is called."""

_KEPT = 1_000


class Slot:
    """A request that passed: when, and how much it counts for in each window."""

    __slots__ = ("amount", "time")

    def __init__(self, time: float, amount: int) -> None:
        self.time = time
        self.amount = amount


class Window:
    """At most so much in any stretch of so many seconds; what is more than that by itself passes alone."""

    __slots__ = ("_most", "_passed", "_seconds", "_sum", "of_tokens")

    def __init__(self, most: int, seconds: float, *, of_tokens: bool = False) -> None:
        self._most = most
        self._seconds = seconds
        self._passed: deque[Slot] = deque()
        self._sum = 0
        self.of_tokens = of_tokens

    def wait(self, now: float, amount: int, ahead: int = 0) -> float:
        """Return after how many seconds so much may pass, when so much goes ahead of it."""
        passed = self._passed
        while passed and passed[0].time + self._seconds <= now:
            self._sum -= passed.popleft().amount
        over = self._sum + ahead + min(amount, self._most) - self._most
        if over <= 0:
            return 0.0
        if over <= self._sum:
            for slot in passed:
                over -= slot.amount
                if over <= 0:
                    return slot.time + self._seconds - now
        last = passed[-1].time + self._seconds - now if passed else 0.0
        return last + ceil((over - self._sum) / self._most) * self._seconds

    def add(self, now: float, amount: int) -> Slot:
        """Let so much pass."""
        slot = Slot(now, amount)
        self._passed.append(slot)
        self._sum += amount
        return slot

    def change(self, slot: Slot, amount: int) -> None:
        """Count what passed for more or less than it did so far."""
        if self._passed and slot.time >= self._passed[0].time:
            self._sum += amount - slot.amount
            slot.amount = amount


class Waiter:
    """A request in line. Its `turn` is done whenever it is to see whether it may pass."""

    __slots__ = ("_again", "_loop", "_timer", "called_at", "is_late", "looks_at", "order", "tokens", "turn")

    def __init__(self, order: tuple[int, int], tokens: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self.order = order
        self.tokens = tokens
        self.turn: asyncio.Future[None] = self._loop.create_future()
        self.is_late = False
        """whether it has waited for as long as it may"""

        self.called_at: float | None = None
        self.looks_at: float | None = None

    def call(self) -> None:
        """Have it see whether it may pass; raises `RuntimeError` when its loop is closed. From any thread."""
        self._loop.call_soon_threadsafe(self.done)

    def call_in(self, seconds: float) -> None:
        """Have it see after some time; raises `RuntimeError` when its loop is closed. From any thread."""
        self._loop.call_soon_threadsafe(self._set, seconds)

    def look_again(self, seconds: float, left: float, look: Callable[[Waiter, float], None]) -> None:
        """Look after some time, of the time that is left for waiting."""
        self._again = self._loop.call_later(seconds, look, self, left - seconds)

    def done(self) -> None:
        """End this part of the wait."""
        if not self.turn.done():
            self.turn.set_result(None)

    async def called(self) -> None:
        """Wait until it is to see whether it may pass."""
        await self.turn
        self.turn = self._loop.create_future()

    def stop(self) -> None:
        """Forget the timers."""
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()

    def _set(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self.done)


class RateWindow:
    """Lets requests pass as its windows allow, the question first that was asked first. Safe from any thread.

    One passes at a time, and is counted in the moment in which it goes, however long its event loop took to let it.
    Whoever is first in line is called, or has a timer in its own loop; whoever leaves the line has the next one called.
    """

    def __init__(self, name: str, windows: list[Window], clock: Callable[[], float]) -> None:
        self._name = name
        self._windows = windows
        self._clock = clock
        self._lock = Lock()
        self._waiting: list[Waiter] = []
        self._numbers = count()

    def take(self, tokens: int) -> list[Slot] | None:
        """Pass at once, if nobody waits and all windows allow it."""
        with self._lock:
            now = self._clock()
            if self._waiting or self._wait(now, tokens) > 0:
                return None
            return self._add(now, tokens)

    async def wait(self, tokens: int, asked_at: int, hold: float) -> list[Slot]:
        """Pass when it is one's turn; raises `ModelError` when that is later than in `hold` seconds.

        Args:
            tokens: about how many the request costs.
            asked_at: when trying began; who began earlier goes first.
            hold: the longest wait, in seconds.
        """
        waiter = Waiter((asked_at, next(self._numbers)), tokens)
        try:
            with self._lock:
                insort(self._waiting, waiter, key=_order)
                expected = self._expected(waiter)
                if expected > hold:
                    raise self._refusal(expected)
            waiter.look_again(min(expected, hold), hold, self._look)
            while True:
                self._call_first()
                await waiter.called()
                with self._lock:
                    if (slots := self._passed(waiter)) is not None:
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
        """Say how many tokens a request has cost."""
        with self._lock:
            for window, slot in zip(self._windows, slots, strict=True):
                if window.of_tokens:
                    window.change(slot, tokens)
        self._call_first()

    def give_back(self, slots: list[Slot]) -> None:
        """Say that a request was not sent after all."""
        with self._lock:
            for window, slot in zip(self._windows, slots, strict=True):
                window.change(slot, 0)
        self._call_first()

    def ready_in(self) -> float:
        """Return after about how many seconds a further request would pass."""
        with self._lock:
            return self._wait(
                self._clock(), 1, len(self._waiting), sum(each.tokens for each in self._waiting)
            )

    def _passed(self, waiter: Waiter) -> list[Slot] | None:
        """Let a waiter pass, if it is first in line and all windows allow it."""
        waiter.called_at = waiter.looks_at = None
        if waiter not in self._waiting:  # it was left behind, and came after all
            insort(self._waiting, waiter, key=_order)
        now = self._clock()
        if self._waiting[0] is not waiter or self._wait(now, waiter.tokens) > 0:
            return None
        del self._waiting[0]
        return self._add(now, waiter.tokens)

    def _look(self, waiter: Waiter, left: float) -> None:
        """Have the first one called when somebody expects to be next, should it not have been possible before."""
        self._call_first()
        if left <= 0.0:
            waiter.is_late = True
            waiter.done()
            return
        with self._lock:
            soon = self._expected(waiter) if waiter in self._waiting else 0.0
        waiter.look_again(min(max(soon, SLACK), left), left, self._look)

    def _call_first(self) -> None:
        """Have whoever is first in line see whether it may pass, as soon as the windows allow it."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                now, first = self._clock(), self._waiting[0]
                if first.called_at is not None:
                    if now - first.called_at <= ANSWERS_IN:
                        return
                    del self._waiting[0]  # its event loop stands still
                    continue
                wait = self._wait(now, first.tokens)
                if wait <= 0:
                    first.called_at = now
                elif first.looks_at is not None and now < first.looks_at <= now + wait:
                    return  # it has a timer
                else:
                    first.looks_at = now + wait
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
        place = self._waiting.index(waiter)
        tokens = sum(each.tokens for each in self._waiting[:place])
        return self._wait(self._clock(), waiter.tokens, place, tokens)

    def _wait(self, now: float, tokens: int, ahead: int = 0, tokens_ahead: int = 0) -> float:
        wait = 0.0
        for window in self._windows:
            of_tokens = window.of_tokens
            each = window.wait(now, tokens if of_tokens else 1, tokens_ahead if of_tokens else ahead)
            wait = max(wait, each)
        return wait

    def _add(self, now: float, tokens: int) -> list[Slot]:
        return [window.add(now, tokens if window.of_tokens else 1) for window in self._windows]

    def _refusal(self, wait: float) -> ModelError:
        words = f"not sent: under the rate limit of {self._name} its turn comes in about {wait:.0f} s"
        return ModelError(words, kind="not_sent", again_in=wait)


def _order(waiter: Waiter) -> tuple[int, int]:
    return waiter.order


_turnstiles: OrderedDict[tuple[object, ...], RateWindow] = OrderedDict()
_turnstiles_lock = Lock()


def rate_window_of(
    account: str,
    per_second: int | None,
    per_minute: int | None,
    tokens_per_minute: int | None,
    clock: Callable[[], float],
) -> RateWindow:
    """Return the one turnstile of an account with these numbers."""
    key = (account, per_second, per_minute, tokens_per_minute, clock)
    with _turnstiles_lock:
        if (found := _turnstiles.get(key)) is None:
            windows: list[Window] = []
            if per_second is not None:
                # Not all at once: whoever sends many requests in one moment has them arrive at any.
                group = max(1, per_second // GROUPS)
                windows.append(Window(group, group / per_second * (1.0 + SLACK)))
            if per_minute is not None:
                windows.append(Window(per_minute, 60.0 + SLACK))
            if tokens_per_minute is not None:
                windows.append(Window(tokens_per_minute, 60.0 + SLACK, of_tokens=True))
            found = _turnstiles[key] = RateWindow(account.partition(" #")[0], windows, clock)
            if len(_turnstiles) > _KEPT:  # limits that are still used keep theirs
                _turnstiles.popitem(last=False)
        else:
            _turnstiles.move_to_end(key)
        return found
