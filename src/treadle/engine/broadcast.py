"""Broadcast tasks to any number of watchers: events once they are durable, and deltas at once.

All watchers of a task read one log, each from its own position. Those that wait in one event loop are woken together.
So the cost of publishing does not depend on the number of watchers, and a stalled watcher costs nothing. The log is
bounded. A watcher that falls behind it reads the missed events from the journal, so watching never slows or stops a
task.

Deltas are not stored, so a channel refers to the visible part of each unfinished answer. A watcher that joins during an
answer, or falls behind, first takes each answer so far. A driver adds a piece to the answer before it looks for
watchers, and a watcher joins before it takes the answers so far. So every piece reaches the watcher at least once, also
from another thread. The place in each delta reveals duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Protocol, TypeAlias

from treadle.core.deltas import for_watchers
from treadle.core.events import (
    AgentChanged,
    Delta,
    Ephemeral,
    Event,
    EventOrigin,
    Rewound,
    explain_names,
)
from treadle.core.state import TaskState

BUFFER: Final = 4_096
"""Maximum number of items in the log of a task. Beyond it, the older half is dropped."""

COALESCE_SECONDS: Final = 0.0004
"""Seconds between two wake-ups for deltas, for each woken watcher: about fifty times the cost of waking it."""


class Stopped:
    """Marks in a log that this process released the task. `seq` is its last event, or None if later ones may exist."""

    __slots__ = ("seq",)

    def __init__(self, seq: int | None) -> None:
        self.seq = seq


Item: TypeAlias = Event | Ephemeral | Stopped


class Wakeup:
    """Wakes the watchers of one event loop together, once for all new items.

    Events wake them at once. Deltas wake them only after a pause that grows with the number of watchers. So watching
    takes at most two or three hundredths of the loop's time.
    """

    __slots__ = ("_later", "_notified", "_quiet_until", "_scheduled", "deltas", "loop", "waiting", "watchers")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, deltas: bool) -> None:
        self.loop = loop
        self.deltas = deltas
        self.watchers = 0
        self.waiting: dict[Watcher, asyncio.Future[None]] = {}
        self._notified = self._scheduled = False
        self._quiet_until = 0.0
        self._later: asyncio.TimerHandle | None = None

    def notify_all(self) -> None:
        """Wake the watchers that wait, from any thread."""
        if self.waiting and not self._notified:
            self._notified = True
            call_in_loop(self.loop, self._wake)

    def notify_later(self) -> None:
        """Wake the watchers that wait once the pause is over, from any thread."""
        if self.waiting and not self._notified and not self._scheduled:
            self._scheduled = True
            call_in_loop(self.loop, self._wake_after_quiet)

    def _wake_after_quiet(self) -> None:
        if self.loop.time() < self._quiet_until:
            self._later = self.loop.call_at(self._quiet_until, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        self._notified = self._scheduled = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        waiting, self.waiting = self.waiting, {}
        self._quiet_until = self.loop.time() + len(waiting) * COALESCE_SECONDS
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_result(None)


class Watcher:
    """One consumer of a task's events, in the event loop that created it.

    It sees the answers so far, and then each published item.
    """

    __slots__ = ("_first", "_position", "channel", "look", "missed", "raw", "shares_look", "wakeup")

    def __init__(self, channel: Channel, wakeup: Wakeup, *, raw: bool = False) -> None:
        self.wakeup = wakeup
        self.raw = raw
        self.channel = channel
        self._position = channel.end
        self._first: Sequence[Item] = ()
        """the answers so far, which it takes before published items"""

        self.look = True
        """whether the consumer is to read the state of the task anew"""

        self.missed = False
        """whether the journal holds events that this watcher missed"""

        self.shares_look = False
        """whether one of `Channel.looks` reads the store for it"""

    def take(self) -> Sequence[Item]:
        """Return the items published since the last time. If the log dropped some, set `missed` and return answers so
        far.
        """
        items, self._position = self.channel.since(self._position)
        if items is None:
            self.missed = self.look = True
            self.take_answers()
            items = ()
        first, self._first = self._first, ()
        return (*first, *items) if first else items

    def take_answers(self) -> None:
        """Take the answers so far next."""
        if self.wakeup.deltas:
            self._first = self.channel.so_far()

    def next_seq(self) -> int | None:
        """Return the number of the first event that `take` will return, or None if there is none yet."""
        items, _ = self.channel.since(self._position)
        return next((item.seq for item in items or () if isinstance(item, Event)), None)

    def skip(self) -> None:
        """Pass over all items published until now."""
        self.look = self.missed = False
        self._first = ()
        self._position = self.channel.end

    def look_again(self) -> None:
        """Have the consumer read the state of the task anew, from any thread."""
        self.look = True
        call_in_loop(self.wakeup.loop, self._wake)

    def _wake(self) -> None:
        waiting = self.wakeup.waiting.pop(self, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self, at_most: float | None = None) -> None:
        """Return when there are items or a look is due, and after `at_most` seconds in any case."""
        loop, waiting = self.wakeup.loop, self.wakeup.waiting
        # A publisher appends before it looks for waiters, so a watcher registers before it looks for items.
        waiting[self] = woken = loop.create_future()
        timer = loop.call_later(at_most, self.look_again) if at_most is not None else None
        try:
            if self._position == self.channel.end and not self.look and not self._first:
                await woken
        finally:
            self.wakeup.waiting.pop(self, None)
            if timer is not None:
                timer.cancel()


class Sink(Protocol):
    """Receives the events and deltas of a task, for observers or for the watchers of its parent."""

    deltas: bool
    """Whether it receives deltas too."""

    def publish(self, items: Sequence[Item]) -> None:
        """Receive events that are durable, from any thread."""

    def tell(self, item: Ephemeral) -> None:
        """Receive a delta, from any thread."""


class Answer(Protocol):
    """The visible part of an answer that a model is writing."""

    def so_far(self) -> Iterable[Delta]:
        """Return all of it so far, one delta for each of its parts, from any thread."""
        ...


class Look(Protocol):
    """Reads a task from its store, for all its watchers in one event loop."""

    def look_soon(self) -> None:
        """Read the task soon, since it may have changed, from any thread."""


class Channel:
    """The log of one task in this process, and its watchers."""

    __slots__ = (
        "_first",
        "_items",
        "_lock",
        "_origin",
        "_published",
        "_wakeups",
        "above",
        "answers",
        "driven",
        "end",
        "listeners",
        "looks",
        "observed",
        "raw",
        "shown",
        "state",
        "watchers",
    )

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._first = 0
        self._wakeups: tuple[Wakeup, ...] = ()
        self._lock = Lock()
        self.end = 0
        """how many items were published"""

        self.watchers: dict[Watcher, None] = {}
        """the watchers, in the order in which they joined and are woken"""

        self.looks: dict[asyncio.AbstractEventLoop, Look] = {}
        """the readers of the store, by their event loops"""

        self.shown: int | None = None
        """number of the last event in the log; at first, the last one that a watcher had read"""

        self.listeners = False
        """whether a watcher or an observer wants deltas"""

        self.raw = False
        """whether a watcher wants the raw chunks of the provider too"""

        self.observed: Sink | None = None
        """the sink of the observers, if the task has any"""

        self.driven = False
        """whether a driver in this process publishes to it"""

        self.state: TaskState | None = None
        """the state of the task, while it is driven here"""

        self.answers: dict[str, Answer] = {}
        """the answers that models are writing now, by step or by the function's request"""

        self.above: Channel | None = None
        """the channel of its parent, while both are driven here"""

        self._origin: EventOrigin | None = None
        self._published: EventOrigin | None = None
        """the origin of the newest published event, once the conversation has moved to another agent"""

    @property
    def origin(self) -> EventOrigin | None:
        """The origin of the items that are published now, or None while it is unknown."""
        origin, state = self._origin, self.state
        if (
            state is not None
            and (agent := state.agent)
            and (origin is None or origin.agent_path[-1] != agent)
        ):
            self._origin = origin = self._origin_of(state, agent)
        return origin

    def _origin_of(self, state: TaskState, agent: str) -> EventOrigin:
        above = self.above.origin if self.above is not None else None
        path = above.agent_path if above is not None else ()
        return EventOrigin(state.task_id, (*path, agent))

    def belongs_to(self, state: TaskState) -> None:
        """Note the task that this process drives."""
        self.state, self.above, self._origin = state, None, None
        self.answers.clear()
        self._published = self._origin_of(state, state.agent) if state.agent else None

    def publish(self, items: Sequence[Event | Stopped]) -> None:
        """Hand items to every watcher and observer, from any thread."""
        if self.observed is None and not self.watchers:
            return
        items = for_watchers(items)
        state, origin = self.state, self.origin
        if state is not None and state.versions:
            self._set_origins(items, state)
        elif origin is not None:
            for item in items:
                if isinstance(item, Event):
                    item.origin = origin
        if self.observed is not None:
            self.observed.publish(items)
        if self.watchers:
            self._append(items)
            if isinstance(last := items[-1], Event):
                self.shown = last.seq
            for wakeup in self._wakeups:
                wakeup.notify_all()

    def show(self, events: Sequence[Event]) -> None:
        """Hand events of another process to the watchers, except those already in the log, from any thread."""
        with self._lock:
            shown = self.shown or 0
            new = [event for event in events if event.seq > shown]
            if not new or not self.watchers:
                return
            self.shown = new[-1].seq
            self._extend(new)
        for wakeup in self._wakeups:
            wakeup.notify_all()

    def _set_origins(self, items: Sequence[Event | Stopped], state: TaskState) -> None:
        """Set the origins of events in a task with several agents, which may have changed its agent meanwhile."""
        origin = self._published or self._origin_of(state, state.created_for)
        for item in items:
            if isinstance(item, Event):
                if type(item) is AgentChanged:
                    origin = self._origin_of(state, item.agent)
                item.origin = origin
                if type(item) is Rewound:
                    origin = self._origin_of(state, state.agent)
        self._published = origin

    def so_far(self) -> list[Delta]:
        """Return all answers so far, one delta for each of their parts, from any thread."""
        if not self.answers:
            return []
        deltas = [delta for answer in list(self.answers.values()) for delta in answer.so_far()]
        after = self.state.seq if self.state is not None else 0
        origin = self.origin
        for delta in deltas:
            delta.after = after
            if origin is not None:
                delta.origin = origin
        return deltas

    def tell(self, item: Ephemeral) -> None:
        """Hand a delta to the watchers and observers that want deltas, from any thread."""
        origin, state = self._origin, self.state
        if origin is None or state is None or origin.agent_path[-1] != state.agent:
            origin = self.origin
        if origin is not None:
            item.origin = origin
        if self.observed is not None and self.observed.deltas:
            self.observed.tell(item)
        self.tell_watchers(item)

    def tell_watchers(self, item: Ephemeral) -> None:
        """Hand a delta to the watchers alone, from any thread."""
        if not self.watchers:
            return
        with self._lock:
            self._items.append(item)
            self.end += 1
            if self.end - self._first > BUFFER:
                self._drop_older()
        for wakeup in self._wakeups:
            if wakeup.waiting and wakeup.deltas:
                wakeup.notify_later()

    def _append(self, items: Sequence[Item]) -> None:
        with self._lock:
            self._extend(items)

    def _extend(self, items: Sequence[Item]) -> None:
        self._items.extend(items)
        self.end += len(items)
        if self.end - self._first > BUFFER:
            self._drop_older()

    def _drop_older(self) -> None:
        gone = max(BUFFER // 2, len(self._items) - BUFFER)
        del self._items[:gone]
        self._first += gone

    def since(self, position: int) -> tuple[Sequence[Item] | None, int]:
        """Return the items from a position on, or None if some were dropped, and the position after them."""
        with self._lock:
            return (self._items[position - self._first :] if position >= self._first else None), self.end

    def join(self, *, deltas: bool, raw: bool = False) -> Watcher:
        """Return a new watcher."""
        explain_names()
        loop = asyncio.get_running_loop()
        wakeup = next(
            (wakeup for wakeup in self._wakeups if wakeup.loop is loop and wakeup.deltas == deltas), None
        )
        if wakeup is None:
            wakeup = Wakeup(loop, deltas=deltas)
            self._wakeups = (*self._wakeups, wakeup)
        wakeup.watchers += 1
        watcher = Watcher(self, wakeup, raw=raw)
        self.watchers[watcher] = None
        self._update_listeners()
        watcher.take_answers()
        return watcher

    def look_again(self, *, missed: bool = False) -> None:
        """Have every watcher read the state of the task anew, from any thread.

        Args:
            missed: whether the journal may have events that are not published here.
        """
        for look in list(self.looks.values()):
            look.look_soon()
        for watcher in list(self.watchers):
            if not watcher.shares_look:
                watcher.missed = watcher.missed or missed
                watcher.look_again()

    def observe(self, observed: Sink | None) -> None:
        """Set the sink of the observers. None removes it."""
        with self._lock:
            self.observed = observed
            self._update_listeners()

    def _update_listeners(self) -> None:
        self.listeners = any(wakeup.deltas for wakeup in self._wakeups) or (
            self.observed is not None and self.observed.deltas
        )
        self.raw = any(watcher.raw for watcher in self.watchers)

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher, if it is there. Without watchers the log is emptied."""
        if watcher not in self.watchers:
            return
        del self.watchers[watcher]
        watcher.wakeup.watchers -= 1
        if not watcher.wakeup.watchers:
            self._wakeups = tuple(wakeup for wakeup in self._wakeups if wakeup is not watcher.wakeup)
        if not watcher.wakeup.watchers or watcher.raw:
            self._update_listeners()
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
        """Return the channel that a driver of the task publishes to, until it calls `drop`."""
        with self._lock:
            channel = self._channels.setdefault(task_id, Channel())
            channel.driven = True
            return channel

    def subscribe(self, task_id: str, *, deltas: bool = True, raw: bool = False) -> Watcher:
        """Return a new watcher of later items, with or without deltas."""
        with self._lock:
            channel = self._channels.setdefault(task_id, Channel())
            return channel.join(deltas=deltas, raw=raw)

    def unsubscribe(self, task_id: str, watcher: Watcher) -> None:
        with self._lock:
            channel = self._channels.get(task_id)
            if channel is not None:
                channel.leave(watcher)
                self._forget_unused(task_id, channel)

    def drop(self, task_id: str) -> None:
        """Note that no driver of this process has the task any more."""
        with self._lock:
            channel = self._channels.get(task_id)
            if channel is not None:
                channel.driven = False
                channel.answers.clear()
                self._forget_unused(task_id, channel)

    def _forget_unused(self, task_id: str, channel: Channel) -> None:
        if not channel.watchers and not channel.driven:
            del self._channels[task_id]

    def look_again(self, tasks: Collection[str] | None, besides: Container[str]) -> None:
        """Have the watchers of tasks look again, since another process may have written.

        Args:
            tasks: the tasks; None for all.
            besides: the tasks that are driven here, whose watchers receive all events from the driver.
        """
        with self._lock:
            changed = self._channels.keys() if tasks is None else self._channels.keys() & tasks
            channels = [self._channels[task_id] for task_id in changed if task_id not in besides]
        for channel in channels:
            channel.look_again(missed=True)


def call_in_loop(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    """Call a function soon in an event loop, from any thread. Do nothing if the loop is closed."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        loop.call_soon(wake)
    else:
        with suppress(RuntimeError):  # the loop and its watchers are closed
            loop.call_soon_threadsafe(wake)
