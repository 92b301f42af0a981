"""Event streams that continue after lost connections, killed servers and servers that leave.

    connect, with the number of the last event --> frames --> event: numbered? the next one, or seen before: left out
        ^                                            |         delta: its place tells the seen part
        |  pause 0.25 to 10 seconds                  v
        +--------------------------------- lost, `leaving`, or silent for 45 seconds

Each event is yielded once and in order. Deltas are not stored. A new connection begins with the text so far of each
answer that is being written. Only its unseen part is yielded.

While there is no connection, a task may be deleted and another one created with its id. So a new connection begins one
event early. If that event has the same time as before, the task is the same. Else the stream ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from treadle.client.connection import Attempts, Connection, Refusal, path_of
from treadle.core.deltas import DeltaPlaces, ended_by
from treadle.core.events import (
    Delta,
    Ephemeral,
    Event,
    ModelRestarted,
    Occurrence,
    TaskStood,
    UnknownEvent,
)
from treadle.core.messages import Json
from treadle.errors import TaskNotFound
from treadle.results.tasks import TaskSummary
from treadle.results.wire import from_wire
from treadle.verbs.table import OPERATIONS

SLACK: Final = 60_000_000
"""Microseconds by which the clocks of the client and the server may differ."""

_SEEN_MOST: Final = 4_096
"""Maximum number of deltas without a position that are remembered since the last event."""


class Seen:
    """Remembers the yielded items of a stream, so that a new connection repeats none.

    Args:
        last: the sequence number of the last event that was seen.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.is_same = True
        """whether this connection certainly has the same task as the previous ones"""

        self._time: int | None = None
        """the time of the last event; None if this stream did not yield it"""

        self._places = DeltaPlaces()
        self._others: dict[str, None] = {}
        self._before: dict[str, None] = {}

    @property
    def start(self) -> int:
        """The sequence number after which a connection begins."""
        return self.last if self.is_empty else self.last - 1

    @property
    def is_empty(self) -> bool:
        """Whether this stream has yielded no event."""
        return self._time is None

    def begin_again(self) -> None:
        """Mark the items seen so far as those that a new connection may repeat."""
        self.is_same = self.is_empty
        self._before = dict(self._others)

    def new_part(self, event: Event | Ephemeral, data: str) -> Event | Ephemeral | None:
        """Return the unseen part of an event; None if all of it was seen.

        Raises:
            Gap: events are missing before it.
            Replaced: it belongs to another task.
        """
        if isinstance(event, Event):
            return self._event(event)
        if isinstance(event, TaskStood):
            return event
        if event.after < self.last:
            return None  # the announced event was yielded
        if isinstance(event, Delta):
            return self._places.new_part(event)
        if isinstance(event, ModelRestarted):
            self._places.forget((event.step, event.call))
        if data in self._before:
            del self._before[data]
            return None
        self._others[data] = None
        if len(self._others) > _SEEN_MOST:
            self._others.pop(next(iter(self._others)))
        return event

    def _event(self, event: Event) -> Event | None:
        if event.seq == self.last and not self.is_same:
            if event.time != self._time:
                raise Replaced
            self.is_same = True
        if event.seq <= self.last:
            return None
        if event.seq != self.last + 1:
            raise Gap(f"event {event.seq} follows event {self.last}")
        self.last, self._time = event.seq, event.time
        self._others.clear()
        self._before.clear()
        if (answer := ended_by(event)) is not None:
            self._places.forget(answer)
        return event


class Gap(Exception):
    """A stream lacks events."""


class Replaced(Exception):
    """The task was deleted, and another one was created with its id."""


async def follow(
    connection: Connection, task_id: str, *, after: int = 0, deltas: bool = True
) -> AsyncGenerator[Event | Ephemeral]:
    """Yield the events of a task, and a `TaskStood` whenever its state changes, until it is deleted.

    For a task that has stopped, `TaskStood` follows its last event, as in a runner. The stream also ends if another
    task was created with the id. A `TaskStood` of that task may precede the end if its journal is shorter.

    Args:
        connection: the connection to the server.
        task_id: the task.
        after: the sequence number of the last event that the caller has seen.
        deltas: also yield items that are not stored.

    Raises:
        TaskNotFound: there is no such task.
        ServerUnavailable: no server answered within the patience of the connection.
    """
    seen, attempts, is_open = Seen(after), Attempts(connection), False
    behind: int | None = None
    while True:
        start = seen.start if behind is None else behind
        try:
            streamed = _connected(connection, task_id, seen, attempts, deltas=deltas, start=start)
            async with aclosing(streamed) as events:
                async for event in events:
                    is_open = True
                    yield event
                return
        except Refusal as refusal:
            if is_open and isinstance(refusal.error, TaskNotFound):
                return  # it was deleted while there was no connection
            if (head := refusal.head) is not None and head < start and behind is None:
                if not seen.is_empty:
                    return  # a journal never shrinks, so this is another task
                behind = head  # the caller asks for future events
                continue
            await attempts.refused(refusal.error, refusal.response)
        except Replaced:
            return
        except (_Lost, Gap) as lost:
            await attempts.failed(lost)
        behind = None
        seen.begin_again()


class _Lost(Exception):
    """A stream ended before its task was deleted."""


async def _connected(
    connection: Connection, task_id: str, seen: Seen, attempts: Attempts, *, deltas: bool, start: int
) -> AsyncGenerator[Event | Ephemeral]:
    """Yield the events of one connection; return when the task is deleted, raise `_Lost` when the connection is lost.

    The stream begins after the event `start`.
    """
    path = path_of(OPERATIONS["get_events"], {"task": task_id})
    query = [] if deltas else [("deltas", "false")]
    frames = _frames(connection, path, query, start, attempts)
    held: TaskStood | None = None
    async with aclosing(frames):
        async for frame in frames:
            if frame.event == "leaving":
                return  # the task is gone: see `_frames`
            event = event_in(frame.json())
            part = seen.new_part(event, frame.data) if event is not None else None
            if isinstance(part, TaskStood):  # the first one precedes the events up to it
                is_ahead = not part.driven and part.head > seen.last
                is_unsure = not seen.is_same and part.head >= seen.last  # the next event decides
                held = part if is_ahead or is_unsure else None
            if part is not None and part is not held:
                yield part
            if held is not None and seen.is_same and (held.driven or seen.last >= held.head):
                yield held
                held = None


async def _frames(
    connection: Connection,
    path: str,
    query: list[tuple[str, str]],
    last_event_id: int | None,
    attempts: Attempts,
    *,
    tells_opening: bool = False,
) -> AsyncGenerator[Any]:
    """Yield the frames of one connection that have data, after None if `tells_opening`.

    Raises `_Lost` when the connection is lost or the server ends it.
    """
    from httpx2 import TransportError

    try:
        async with connection.stream(path, query, last_event_id) as frames:
            if tells_opening:
                yield None
            async for frame in frames:
                attempts.progressed()
                if frame.event == "leaving" and _reason_in(frame) != "deleted":
                    raise _Lost("the server ended the stream")
                if frame.data:  # else it is `retry` alone
                    yield frame
    except TransportError as error:
        raise _Lost(f"{type(error).__name__}: {error}") from error
    raise _Lost("the connection ended")


async def changes(
    connection: Connection, newer: Callable[[int], Awaitable[AsyncIterable[TaskSummary]]]
) -> AsyncGenerator[TaskSummary]:
    """Yield each task that changes, as lists show it; after a gap, each task that has changed meanwhile.

    A gap is a lost connection, or a reader so slow that the server dropped changes. A deletion in a gap is not
    reported.

    Args:
        connection: the connection of the client.
        newer: lists the tasks that were updated since a time, in microseconds since 1970, UTC.

    Raises:
        ServerUnavailable: no server answered within the patience of the connection.
    """
    attempts = Attempts(connection)
    told: OrderedDict[str, TaskSummary] = OrderedDict()
    began = since = _now()
    has_gap = False
    while True:
        try:
            path = OPERATIONS["get_stream"].path
            frames = _frames(connection, path, [("changes", "1")], None, attempts, tells_opening=True)
            async with aclosing(frames):
                async for frame in frames:
                    has_gap = has_gap or (frame is not None and frame.event == "changes_missed")
                    if frame is not None and frame.event == "task_changed":
                        summary = from_wire(TaskSummary, frame.json())
                        if _is_new(summary, told):
                            yield summary
                    if has_gap:
                        reread = _now()
                        async for summary in await newer(since):
                            if _is_new(summary, told):
                                yield summary
                        has_gap, since = False, max(began, reread - SLACK)
        except Refusal as refusal:
            await attempts.refused(refusal.error, refusal.response)
        except _Lost as lost:
            has_gap = True
            await attempts.failed(lost)


def _now() -> int:
    return time.time_ns() // 1_000


def _is_new(summary: TaskSummary, told: OrderedDict[str, TaskSummary]) -> bool:
    """Whether a summary differs from the last one yielded of its task, apart from the lease of its driver."""
    before = told.get(summary.task_id)
    if before is not None and replace(before, driver=None) == replace(summary, driver=None):
        return False
    told[summary.task_id] = summary
    told.move_to_end(summary.task_id)
    if len(told) > _SEEN_MOST:
        told.popitem(last=False)
    return True


def _reason_in(frame: Any) -> Json:
    return from_wire(dict[str, Any], frame.json()).get("reason")


def event_in(document: Json) -> Event | Ephemeral | None:
    """Return the event of a document; None for an ephemeral item that this version does not know."""
    event: Any = from_wire(Occurrence, document)
    return None if isinstance(event, UnknownEvent) and not event.seq else event


async def until_rest(
    events: AsyncGenerator[Event | Ephemeral], rest: Callable[[], Awaitable[int | None]], after: int
) -> AsyncGenerator[Event | Ephemeral]:
    """Yield the events of a stream until its task has stopped and all events before that were yielded.

    Args:
        events: the items of `follow`.
        rest: returns the last event of the task if it has stopped; None if not, also if a driver will adopt it.
        after: the sequence number of the last event that the caller has seen.
    """
    last, stood, end = after, None, None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Event):
                last = event.seq
            if isinstance(event, TaskStood):
                stood = event
            else:
                yield event
            if stood is not None and not stood.driven and last >= stood.head:
                end = await rest()  # None: another driver will adopt it, and the stream then yields its state
                stood = None
            if end is not None and last >= end:
                return


async def until_done(
    events: AsyncGenerator[Event | Ephemeral],
    work: asyncio.Future[Any],
    head: Callable[[], Awaitable[int]],
    after: int,
) -> AsyncGenerator[Event | Ephemeral]:
    """Yield the events of a stream until some work is done and all its events were yielded.

    Args:
        events: the items of `follow`.
        work: drives the task, as far as is known here.
        head: an async function that returns the sequence number of the task's last event.
        after: the sequence number of the last event that the caller has seen.
    """
    last, end = after, None
    following: asyncio.Future[Any] | None = None
    try:
        while end is None or last < end:
            following = following or asyncio.ensure_future(anext(events, None))
            if end is None:
                await asyncio.wait([following, work], return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    if work.cancelled() or work.exception() is not None:
                        return
                    end = await head()
                    continue
            event, following = await following, None
            if event is None:
                return
            if isinstance(event, Event):
                last = event.seq
            if not isinstance(event, TaskStood):
                yield event
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        await events.aclose()
