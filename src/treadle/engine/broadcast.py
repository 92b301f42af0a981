"""Watching tasks: events go to any number of watchers once they are durable, deltas as they come.

All watchers of a task read one log, each from its own place, and those of one event loop that wait are woken together:
what it costs to publish does not depend on how many watch, and one that stalls costs nothing. The log is bounded. Who
falls behind it loses deltas and reads the events it missed from the journal: watching never slows or stops a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol, TypeAlias

from treadle.core.events import Ephemeral, Event

BUFFER: Final = 4_096
"""How many items the log of a task holds at most; its older half goes when there are more."""


REST: Final = 0.0004
"""Seconds between two times that watchers are woken for deltas, for each that is: about fifty times what it takes."""


class Stopped:
    """Marks in a log that the task was laid down here; `seq` is its last event, None if there may be later ones."""

    __slots__ = ("seq",)

    def __init__(self, seq: int | None) -> None:
        self.seq = seq


Item: TypeAlias = Event | Ephemeral | Stopped


class Wakeup:
    """The watchers of one event loop that want the same: they are woken together, once for all that came meanwhile.

    Events wake them at once. After deltas the bell rests for as long as its watchers are many, so that watching never
    takes more than two or three hundredths of its loop's time.
    """

    __slots__ = ("_later", "_rested", "_rung", "_touched", "deltas", "loop", "waiting", "watchers")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, deltas: bool) -> None:
        self.loop = loop
        self.deltas = deltas
        self.watchers = 0
        self.waiting: dict[Watcher, asyncio.Future[None]] = {}
        self._rung = self._touched = False
        self._rested = 0.0
        self._later: asyncio.TimerHandle | None = None

    def notify_all(self) -> None:
        """Wake who waits; from any thread."""
        if self.waiting and not self._rung:
            self._rung = True
            _call_in(self.loop, self._wake)

    def touch(self) -> None:
        """Wake who waits once the bell has rested; from any thread."""
        if self.waiting and not self._rung and not self._touched:
            self._touched = True
            _call_in(self.loop, self._wake_rested)

    def _wake_rested(self) -> None:
        if self.loop.time() < self._rested:
            self._later = self.loop.call_at(self._rested, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        self._rung = self._touched = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        waiting, self.waiting = self.waiting, {}
        self._rested = self.loop.time() + len(waiting) * REST
        for one in waiting.values():
            if not one.done():
                one.set_result(None)


class Watcher:
    """One consumer of a task's events, in the event loop it was made in; of what is published from then on."""

    __slots__ = ("_channel", "_place", "bell", "look", "missed", "raw")

    def __init__(self, channel: Channel, bell: Wakeup, *, raw: bool = False) -> None:
        self.bell = bell
        self.raw = raw
        self._channel = channel
        self._place = channel.end
        self.look = True
        """whether how the task stands is to be found out anew"""

        self.missed = False
        """whether the journal holds events that this watcher will not be shown"""

    def take(self) -> Sequence[Item]:
        """Return what was published since the last time; nothing, and `missed`, if the log does not hold all of it."""
        found, self._place = self._channel.since(self._place)
        if found is None:
            self.missed = self.look = True
            return ()
        return found

    def skip(self) -> None:
        """Pass over what was published until now."""
        self.look = self.missed = False
        self._place = self._channel.end

    def stir(self) -> None:
        """Have the consumer look how the task stands; from any thread."""
        self.look = True
        _call_in(self.bell.loop, self._wake)

    def _wake(self) -> None:
        waiting = self.bell.waiting.pop(self, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self, at_most: float | None = None) -> None:
        """Return when there is something to take or to look at; after `at_most` seconds there is."""
        loop, waiting = self.bell.loop, self.bell.waiting
        # Who publishes looks for waiters after it has written, so who waits looks for items after it has said so.
        waiting[self] = told = loop.create_future()
        timer = loop.call_later(at_most, self.stir) if at_most is not None else None
        try:
            if self._place == self._channel.end and not self.look:
                await told
        finally:
            self.bell.waiting.pop(self, None)
            if timer is not None:
                timer.cancel()


class Sink(Protocol):
    """Receives what happens in a task, beside its watchers: its observers, or the watchers of its parent."""

    deltas: bool
    """Whether deltas are wanted too."""

    def publish(self, items: Sequence[Item]) -> None:
        """Receive events that are durable; from any thread."""

    def tell(self, item: Ephemeral) -> None:
        """Receive a delta; from any thread."""


class Channel:
    """The log of one task in this process, and who watches it."""

    __slots__ = (
        "_bells",
        "_first",
        "_items",
        "_lock",
        "driven",
        "end",
        "listeners",
        "observed",
        "raw",
        "watchers",
    )

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._first = 0
        self._bells: tuple[Wakeup, ...] = ()
        self._lock = Lock()
        self.end = 0
        """how many items were published"""

        self.watchers: dict[Watcher, None] = {}
        """who watches, in the order in which they came and are woken"""

        self.listeners = False
        """whether somebody wants deltas"""

        self.raw = False
        """whether somebody wants what the provider sends too"""

        self.observed: Sink | None = None
        """how observers are told of the task, if there are any"""

        self.driven = False
        """whether a driver in this process publishes to it"""

    def publish(self, items: Sequence[Event | Stopped]) -> None:
        """Hand items to every watcher and observer; from any thread."""
        if self.observed is not None:
            self.observed.publish(items)
        if self.watchers:
            self._append(items)
            for bell in self._bells:
                bell.notify_all()

    def tell(self, item: Ephemeral) -> None:
        """Hand a delta to those that want deltas; from any thread."""
        if self.observed is not None and self.observed.deltas:
            self.observed.tell(item)
        self.tell_watchers(item)

    def tell_watchers(self, item: Ephemeral) -> None:
        """Hand a delta to the watchers alone; from any thread."""
        if not self.watchers:
            return
        self._append((item,))
        for bell in self._bells:
            if bell.deltas:
                bell.touch()

    def _append(self, items: Sequence[Item]) -> None:
        with self._lock:
            self._items.extend(items)
            if len(self._items) > BUFFER:
                gone = max(BUFFER // 2, len(self._items) - BUFFER)
                del self._items[:gone]
                self._first += gone
            self.end = self._first + len(self._items)

    def since(self, place: int) -> tuple[Sequence[Item] | None, int]:
        """Return the items from a place on, None if it does not hold them all any more, and the place behind them."""
        with self._lock:
            return (self._items[place - self._first :] if place >= self._first else None), self.end

    def join(self, *, deltas: bool, raw: bool = False) -> Watcher:
        """Return a new watcher."""
        loop = asyncio.get_running_loop()
        bell = next((bell for bell in self._bells if bell.loop is loop and bell.deltas == deltas), None)
        if bell is None:
            bell = Wakeup(loop, deltas=deltas)
            self._bells = (*self._bells, bell)
        bell.watchers += 1
        watcher = Watcher(self, bell, raw=raw)
        self.watchers[watcher] = None
        self._look_for_listeners()
        return watcher

    def observe(self, observed: Sink | None) -> None:
        """Have observers told of the task from now on; None ends that."""
        with self._lock:
            self.observed = observed
            self._look_for_listeners()

    def _look_for_listeners(self) -> None:
        self.listeners = any(bell.deltas for bell in self._bells) or (
            self.observed is not None and self.observed.deltas
        )
        self.raw = any(watcher.raw for watcher in self.watchers)

    def leave(self, watcher: Watcher) -> None:
        """Forget a watcher, if it is there; of what nobody watches nothing is kept."""
        if watcher not in self.watchers:
            return
        del self.watchers[watcher]
        watcher.bell.watchers -= 1
        if not watcher.bell.watchers:
            self._bells = tuple(bell for bell in self._bells if bell is not watcher.bell)
        if not watcher.bell.watchers or watcher.raw:
            self._look_for_listeners()
        if not self.watchers:
            with self._lock:
                self._items.clear()
                self._first = self.end


class Channels:
    """The channels of all tasks that are driven or watched through one runner."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        self._lock = Lock()

    def of(self, task_id: str) -> Channel:
        """Return the channel a driver of the task publishes to, until it says `drop`."""
        with self._lock:
            channel = self._channels.setdefault(task_id, Channel())
            channel.driven = True
            return channel

    def subscribe(self, task_id: str, *, deltas: bool = True, raw: bool = False) -> Watcher:
        """Return a new watcher; what is published from now on reaches it, deltas only if it wants them."""
        with self._lock:
            channel = self._channels.setdefault(task_id, Channel())
            return channel.join(deltas=deltas, raw=raw)

    def unsubscribe(self, task_id: str, watcher: Watcher) -> None:
        """Forget a watcher."""
        with self._lock:
            channel = self._channels.get(task_id)
            if channel is not None:
                channel.leave(watcher)
                self._forget_unused(task_id, channel)

    def drop(self, task_id: str) -> None:
        """Take note that the task has no driver here any more."""
        with self._lock:
            channel = self._channels.get(task_id)
            if channel is not None:
                channel.driven = False
                self._forget_unused(task_id, channel)

    def _forget_unused(self, task_id: str, channel: Channel) -> None:
        if not channel.watchers and not channel.driven:
            del self._channels[task_id]

    def wake_all(self, besides: Container[str]) -> None:
        """Let the watchers of all tasks but those driven here look again: another process may have written."""
        with self._lock:
            channels = [channel for task_id, channel in self._channels.items() if task_id not in besides]
            watchers = [watcher for channel in channels for watcher in channel.watchers]
        for watcher in watchers:
            watcher.missed = True
            watcher.stir()


def _call_in(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        loop.call_soon(wake)
    else:
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            loop.call_soon_threadsafe(wake)
