"""Watch a task: yield its events after a sequence number, until it stops or is deleted.

A subscription begins with a call and is then iterated over: events of a task, changes of tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar

from treadle.core.deltas import AnswerKey, DeltaPlaces, ended_by, part_of
from treadle.core.events import Delta, Ephemeral, Event, ModelRestarted, RawChunk, TaskStood
from treadle.core.refused_uses import refuses
from treadle.drivers.owned_tasks import OwnedTasks
from treadle.engine.broadcast import Stopped, Watcher
from treadle.errors import TaskNotFound
from treadle.runner.shared_look import SharedLook, differs
from treadle.runner.stored_events import StoredEvents

T = TypeVar("T")


class Subscription(AsyncGenerator[T, None], Generic[T]):
    """The items since the caller's call, even if it requests the first one later.

    Args:
        items: yields them, and ends the subscription in its `finally`.
        leave: ends the subscription; called here only if no item was requested, since then no `finally` runs. None if
            the subscription begins with the first item.
    """

    __slots__ = ("_is_read", "_items", "_leave", "_loop")

    def __init__(self, items: AsyncGenerator[T, None], leave: Callable[[], None] | None) -> None:
        self._items = items
        self._leave = leave
        self._loop = asyncio.get_running_loop() if leave is not None else None
        self._is_read = False

    def __anext__(self) -> Coroutine[Any, Any, T]:
        self._is_read = True
        return self._items.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, T]:
        self._is_read = True
        return self._items.asend(value)

    def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Coroutine[Any, Any, T]:
        self._leave_unread()
        return self._items.athrow(typ if val is None else val)

    def aclose(self) -> Coroutine[Any, Any, None]:
        self._leave_unread()
        return self._items.aclose()

    def _leave_unread(self) -> None:
        if not self._is_read and self._leave is not None:
            self._leave()

    def __del__(self) -> None:
        if not self._is_read and self._leave is not None and self._loop is not None:
            # The garbage collector may call this while a lock is held that leaving takes.
            with suppress(RuntimeError):  # the loop is closed, and with it the subscription
                self._loop.call_soon_threadsafe(self._leave)


def in_event_loop() -> bool:
    """Whether the caller runs in an event loop, so that it can subscribe."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Place:
    """A watcher's position in the events of a task.

    Items that are not stored are held back until the events before them were yielded. A delta is dropped if the end of
    its answer was yielded; any other item is dropped if later events were. Only the new part of a repeated delta is
    yielded. Missed events are read from the journal. An answer that was missed in part is sent again from its start.

    Args:
        tasks: the tasks of this process, with the channel of the task.
        task_id: the task.
        watcher: reads the channel.
        after: sequence number of the last event that was read before.
        deltas: whether deltas are yielded too.
    """

    def __init__(
        self, tasks: OwnedTasks, task_id: str, watcher: Watcher, after: int, *, deltas: bool
    ) -> None:
        self._watcher = watcher
        self._deltas = deltas
        self._held: deque[Ephemeral] = deque()
        self._stored = StoredEvents(tasks.store, task_id)
        self._places = DeltaPlaces()
        self._ended: dict[AnswerKey, int] = {}
        """answers that have ended in the journal but not in the channel, each with the number of its last event"""

        self._has_gap = False
        """whether a delta was dropped because earlier text is missing"""

        self.last = after
        self.is_behind = False
        """whether the journal holds events that the channel does not show"""

        self.stopped = False
        """whether this process released the task since the last reset"""

        self.final: int | None = None
        """the task's last event when this process released it; None once there are later ones"""

    def take(self) -> Iterator[Event | Ephemeral]:
        """Yield the items of the channel, as far as all before them were yielded."""
        yield from self._shown()
        if self._has_gap:
            self._has_gap = False
            self._watcher.take_answers()
            yield from self._shown()

    def _shown(self) -> Iterator[Event | Ephemeral]:
        held = self._held
        for item in self._watcher.take():
            if type(item) is Delta or isinstance(item, Ephemeral):
                if not self._deltas or (type(item) is RawChunk and not self._watcher.raw):
                    continue
                if item.after > self.last:
                    held.append(item)
                elif (new := self._new_part(item)) is not None:
                    yield new
                continue
            if isinstance(item, Stopped):
                self.stopped, self.final = True, item.seq
                continue
            if item.seq >= self.last:
                self._ended.clear()  # the channel shows none of them any more
            if item.seq == self.last + 1:
                self.last = item.seq
                self._forget_ended(item)
                yield item
            elif item.seq > self.last:
                self.is_behind = True
            if held:
                yield from self._released()

    def _released(self) -> Iterator[Ephemeral]:
        """Yield the items held back, as far as all before them were yielded."""
        held, last, places = self._held, self.last, self._places
        while held and held[0].after <= last:
            item = held.popleft()
            if type(item) is Delta and item.after == last and not self._ended and places.read_on(item):
                yield item
            elif (new := self._new_part(item)) is not None:
                yield new

    def _new_part(self, item: Ephemeral) -> Ephemeral | None:
        """Return the part of an item that is to be yielded now; None if there is none."""
        if type(item) is not Delta:
            if isinstance(item, ModelRestarted):
                self._places.forget((item.step, item.call))
            return item if item.after == self.last else None  # its event was yielded already
        if self._ended and item.after < self._ended.get((item.step, item.call), 0):
            return None
        new: Delta | None = item
        if not self._places.read_on(item):
            if self._places.is_gap(item):
                self._has_gap = True
                return None
            new = self._places.new_part(item)
        if new is not None and new.after < self.last:
            new = part_of(new, text=new.text, at=new.at, tool=new.tool)
            new.after = self.last
        return new

    def _forget_ended(self, event: Event) -> AnswerKey | None:
        answer = ended_by(event)
        if answer is not None:
            self._places.forget(answer)
        return answer

    async def located(self, stood: TaskStood) -> TaskStood:
        """Return the state of the task, with its origin for this watcher alone."""
        own = replace(stood)
        own.origin = await self._stored.origin_at(self.last)
        return own

    async def read(self, *, to_end: bool) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the journal's events after the last yielded one, up to the channel's next event unless `to_end`."""
        self._watcher.missed = self.is_behind = False
        shown = None if to_end else self._watcher.next_seq()
        upto = None if shown is None else shown - 1
        for event in await self._stored.after(self.last, upto) if upto is None or upto > self.last else ():
            self.last = event.seq
            if (answer := self._forget_ended(event)) is not None:
                self._ended[answer] = event.seq
            yield event
        for item in self._released():
            yield item


async def watch(
    tasks: OwnedTasks,
    task_id: str,
    watcher: Watcher,
    *,
    after: int,
    deltas: bool,
    over: Callable[[], Awaitable[bool]],
) -> AsyncGenerator[Event | Ephemeral, None]:
    """Yield the events of a task after a sequence number, each once and in order, until it is over.

    Events from before the creation of the watcher are yielded only if others follow them. `over` is called when the
    task may have stopped.
    """
    place, look = (
        _Place(tasks, task_id, watcher, after, deltas=deltas),
        SharedLook.of(tasks, task_id, watcher),
    )
    try:
        while True:
            ended = False
            if watcher.look or place.stopped:
                watcher.look = False
                ended = await over()
            place.stopped = False
            for item in place.take():
                yield item
            if place.is_behind or watcher.missed or (ended and place.last != place.final):
                async for item in place.read(to_end=True):
                    yield item
            if ended:
                return
            if not place.stopped:
                look.caught_up(place.last)
                await watcher.wait()
    finally:
        look.leave()
        tasks.channels.unsubscribe(task_id, watcher)


async def follow(
    tasks: OwnedTasks,
    task_id: str,
    watcher: Watcher | None = None,
    *,
    after: int,
    deltas: bool,
    raw: bool = False,
    to_rest: bool = False,
) -> AsyncGenerator[Event | Ephemeral, None]:
    """Yield a task's events after a sequence number, each once and in order, and `TaskStood` when its state changes.

    For a task that has stopped, `TaskStood` follows its last event. Otherwise it is yielded at once, before the deltas
    of the driver that it reports. The iteration ends when the task is deleted. With `to_rest` it ends when the task
    stops, and yields no `TaskStood`. Without a `watcher` argument, one is created when iteration begins.
    """
    watcher = watcher if watcher is not None else tasks.channels.subscribe(task_id, deltas=deltas, raw=raw)
    place, look = (
        _Place(tasks, task_id, watcher, after, deltas=deltas),
        SharedLook.of(tasks, task_id, watcher),
    )
    place.is_behind = True
    last_stood: TaskStood | None = None
    generation: int | None = None
    try:
        while True:
            rest: TaskStood | None = None
            if watcher.look or place.stopped:
                released = place.final if place.stopped and not tasks.is_owned(task_id) else None
                watcher.look = place.stopped = False
                try:
                    if to_rest and released is not None:
                        stood = TaskStood("", driven=False, live=False, head=released)
                    else:
                        stood = await look.current()
                except TaskNotFound:
                    if last_stood is None or to_rest:
                        raise
                    return
                if generation is None:
                    generation = look.generation
                elif generation != look.generation and not to_rest:
                    return  # it was deleted, and another task was made with its id
                if differs(stood, last_stood):
                    if not stood.driven:
                        rest = stood
                    else:
                        last_stood = stood
                        if not to_rest:
                            yield await place.located(stood)
            if place.is_behind:
                async for item in place.read(to_end=False):
                    yield item
            for item in place.take():
                yield item
            behind_rest = rest is not None and place.last < rest.head
            if place.is_behind or watcher.missed or behind_rest:
                async for item in place.read(to_end=True):
                    yield item
            if rest is not None and to_rest:
                return
            if rest is not None:
                last_stood = rest
                yield await place.located(rest)
            if not place.stopped:
                look.caught_up(place.last)
                await watcher.wait()
    finally:
        look.leave()
        tasks.channels.unsubscribe(task_id, watcher)


@refuses(
    iter="write `async for event in handle.events()`; without asyncio, "
    "`for event in runner.sync.handle(task).events()`",
    await_="write `async for event in handle.events()`",
)
class WatchedEvents(Subscription[Event | Ephemeral]):
    """The events of a task, as an iterator for a caller."""
