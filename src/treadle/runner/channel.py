"""Watching tasks: events go to any number of watchers once they are durable, deltas as they come.

A watcher has a bounded buffer. One that falls behind loses its deltas and reads the events it missed from the journal:
watching never slows or stops a task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final

from treadle.core.events import Ephemeral, Event

BUFFER: Final = 4_096
"""How many items a watcher may be behind before it has to catch up from the journal."""


class Stopped:
    """Marks in a watcher's buffer that the task stopped."""


class Watcher:
    """One consumer of a task's events, in the event loop it was made in."""

    __slots__ = ("_loop", "_waiting", "items", "lagging")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self.items: deque[Event | Ephemeral | Stopped] = deque()
        self.lagging = False

    def put(self, items: Sequence[Event | Ephemeral | Stopped]) -> None:
        """Add items and wake the consumer, unless it is about to look anyway; from any thread."""
        if self.lagging or len(self.items) + len(items) > BUFFER:
            self._fall_behind(items)
        else:
            self.items.extend(items)
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            self.wake()

    def _fall_behind(self, items: Sequence[Event | Ephemeral | Stopped]) -> None:
        """Keep nothing but that the task stopped: the consumer reads the journal before it looks at items again."""
        stopped = [item for item in (*self.items, *items) if isinstance(item, Stopped)]
        self.items.clear()
        self.items.extend(stopped[-1:])
        self.lagging = True

    def wake(self) -> None:
        """Let the consumer look again; from any thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._wake()
        else:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, at_most: float | None = None) -> None:
        """Return when there is something to look at, or after `at_most` seconds."""
        self._waiting = self._loop.create_future()
        timer = self._loop.call_later(at_most, self._wake) if at_most is not None else None
        try:
            if not self.items and not self.lagging:
                await self._waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()


class Channel:
    """The watchers of one task in this process."""

    __slots__ = ("driven", "watchers")

    def __init__(self) -> None:
        self.watchers: tuple[Watcher, ...] = ()
        self.driven = False
        """whether a driver in this process publishes to it"""

    def publish(self, items: Sequence[Event | Ephemeral | Stopped]) -> None:
        """Hand items to every watcher."""
        for watcher in self.watchers:
            watcher.put(items)


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

    def subscribe(self, task_id: str) -> Watcher:
        """Return a new watcher; events published from now on reach it."""
        watcher = Watcher()
        with self._lock:
            channel = self._channels.setdefault(task_id, Channel())
            channel.watchers = (*channel.watchers, watcher)
        return watcher

    def unsubscribe(self, task_id: str, watcher: Watcher) -> None:
        """Forget a watcher."""
        with self._lock:
            channel = self._channels.get(task_id)
            if channel is not None:
                channel.watchers = tuple(w for w in channel.watchers if w is not watcher)
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
            watcher.lagging = True
            watcher.wake()
