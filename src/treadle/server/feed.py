"""One feed for each followed task of a server process; it encodes each event once, for any number of streams.

Theory of operation
-------------------

A feed follows its task with one `handle.events(follow=True)`, from the end of the journal on. It appends new items to
a *ring* of entries, bounded in number and bytes. A stream has a *reader*: a position in the ring, and the sequence
number of the last event that was read. Readers hold no events, so a slow or stalled reader costs nothing.

    journal   1 2 3 4 5 6 7 8 9 . . . . . . . . . . . .
    ring                  base = 5 | 6 d d 7 8 d 9 d d     d: deltas and other ephemeral items, `after` the event before
                                         ^
    reader                        last = 7, at the first item after it

    reader.last < base     the ring lacks its next event: it reads a *page* of the journal, shared with other readers
    reader.last >= base    it enters the ring after the event `last`, and reads the events in it
    end of the ring        it reads the current answers, each so far, and from then on all new items
    fell out of the ring   it reads pages again, from `last` on, and enters the ring again

The feed joins the deltas of running answers (`DeltasSoFar`). A reader that enters the ring skips the deltas in it until
it has read all events. Then it reads each answer so far as one delta for each channel.

Invariant: the ring holds every event with a number above `base`, in order. Each ephemeral item follows the event after
which it came. So a reader receives every event after its first position once and in order, however often it switches
between ring and journal.

The state of a task is not an entry of the ring but an attribute. So a late or slow reader receives the current state,
never an earlier one. A reader receives a stop after the events up to it.

Readers are woken together. Events wake them at once. Deltas wake them again only after a pause that grows with the
number of readers. So watching cannot take all of the loop's time.

Example: 1,000 streams of one task. The feed encodes an event and wakes 1,000 readers. The first of them joins the
frames since its position. The others have the same position and send the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Literal

from treadle.core.data import frozen
from treadle.core.deltas import DeltasSoFar, ended_by
from treadle.core.events import (
    Delta,
    Ephemeral,
    Event,
    ModelRestarted,
    Rewound,
    StepCompleted,
    StepFailed,
    TaskStood,
)
from treadle.errors import TaskNotFound
from treadle.ports import TaskRow
from treadle.runner.runner import TaskRunner
from treadle.runner.stored_events import events_of_records
from treadle.runner.views import driver_of
from treadle.server.audience import Audience, Waker
from treadle.server.frames import Hide, event_frame

RING_ENTRIES: Final = 2_048
RING_BYTES: Final = 4 << 20
"""Limits of a feed's ring; above either of them its older half is dropped."""

CHUNK_BYTES: Final = 64 << 10
"""Bytes after which a reader gets no more frames at once."""

PAGE: Final = 64
"""Events per page of the journal."""

READS: Final = 4
"""Reads of the journal that a feed caches: a read decodes whole records, which may hold several pages."""

LINGER_SECONDS: Final = 2.0
"""Seconds that a feed without readers continues, so that a reloaded page finds the deltas of the current answer."""

_LOG = logging.getLogger("treadle.server")


@frozen
class FeedSettings:
    """Settings that all feeds of a server share.

    Args:
        observe_lag: called for each live event with the seconds between its time and its arrival here.
        hide: returns a function that masks secrets in JSON data; None if there are none.
    """

    observe_lag: Callable[[float], None] = lambda _: None
    hide: Callable[[], Hide | None] = lambda: None


def tenant_of(runner: TaskRunner) -> str:
    """Return the tenant of a runner, which reads only that tenant's tasks."""
    return runner.scope.tenant if runner.scope is not None else ""


def rests(row: TaskRow, now: int) -> bool:
    """Return whether a task has stopped, has neither a live nor a crashed driver, and is not due for adoption."""
    return row.driver is None and not 0 < row.due_at <= now


Part = Literal["all", "events", "other than deltas", "answers"]
"""A reader's part of the ring; `answers` are the answers so far, which are outside the ring."""


class Entry:
    """One event or ephemeral item, with its frames."""

    __slots__ = ("_frames", "_hide", "after", "event", "seq", "size")

    def __init__(self, event: Event | Ephemeral, hide: Hide | None) -> None:
        self.event = event
        self._hide = hide
        self.seq = event.seq if isinstance(event, Event) else None
        """the sequence number; None for an ephemeral item"""

        self.after = event.seq if isinstance(event, Event) else event.after
        """the number of the last event before this item, or its own"""

        self.size = 0
        self._frames: dict[int | None, bytes] = {}

    def frame(self, cut: int | None = None) -> bytes:
        """Return the frame, with an id for a stored event; a delta with a long text has several frames."""
        data = self._frames.get(cut)
        if data is None:
            data = event_frame(self.event, cut, self._hide)
            if self.seq is not None:
                data = b"id: %d\n%b" % (self.seq, data)
            self._frames[cut] = data
            self.size += len(data)
        return data

    def body(self, cut: int | None = None) -> bytes:
        """Return the frame without its id."""
        data = self.frame(cut)
        return data if self.seq is None else data.partition(b"\n")[2]


class Feed:
    """Follows one task for all streams of this process; see the theory of operation above.

    Args:
        runner: reads the task, in one tenant.
        task_id: the task.
        head: the current end of its journal.
        settings: the settings of all feeds.
    """

    def __init__(self, runner: TaskRunner, task_id: str, head: int, settings: FeedSettings) -> None:
        self.task_id = task_id
        self.stood: TaskStood | None = None
        """the current state of the task, once it is known"""

        self.ended: Literal["deleted", "error"] | None = None
        """why the feed ended: `deleted`, or `error`"""

        self.error: BaseException | None = None
        self.base = self.newest = head
        self._runner = runner
        self._entries: list[Entry] = []
        self._first = 0
        self._bytes = 0
        self._reads: OrderedDict[int, Page] = OrderedDict()
        self._reading: dict[int, asyncio.Task[Page]] = {}
        self._joined: tuple[tuple[int, int, int | None, Part], bytes] | None = None
        self._answers = DeltasSoFar()
        self._so_far: Sequence[Entry] | None = None
        """the entries of the answers so far; None if they are outdated"""

        self.audience = Audience()
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._began = self._loop.create_future()
        events = runner.handle(task_id).events(after=head, deltas=True, raw=False, follow=True)
        self._following = self._loop.create_task(self._follow(events), name=f"feed of {task_id}")

    # ---------------------------------------------------------------------------------------- following

    async def began(self) -> TaskStood:
        """Return the state of the task once it is known; raise the error if the feed ended before."""
        if not self._began.done():
            await asyncio.shield(self._began)
        if self.stood is None:
            assert self.error is not None
            raise self.error
        return self.stood

    async def _follow(self, events: AsyncGenerator[Event | Ephemeral, None]) -> None:
        try:
            async with aclosing(events):
                async for item in events:
                    self._add(item)
            self._end("deleted", TaskNotFound(f"task {self.task_id} was deleted"))
        except asyncio.CancelledError:
            raise
        except TaskNotFound as error:
            self._end("deleted", error)
        except Exception as error:  # noqa: BLE001  its streams get the error and end
            _LOG.warning("following task %s failed: %s", self.task_id, error)
            self._end("error", error)

    def _end(self, reason: Literal["deleted", "error"], error: BaseException) -> None:
        self.ended, self.error = reason, error
        self._set_began()
        self.audience.wake_soon(urgent=True)

    def _set_began(self) -> None:
        if not self._began.done():
            self._began.set_result(None)

    def _add(self, item: Event | Ephemeral) -> None:
        if isinstance(item, TaskStood):
            if self.stood is None or (item.driven, item.live) != (self.stood.driven, self.stood.live):
                self._so_far = None
                self._answers.clear()  # they are the previous driver's
            self.stood = item
            self._set_began()
            self.audience.wake_soon(urgent=True)
            return
        self._join(item)
        entry = Entry(item, self._settings.hide())
        if entry.seq is not None:
            self.newest = entry.seq
            assert isinstance(item, Event)
            self._settings.observe_lag(max(0.0, time.time() - item.time / 1e6))
        for cut in self.audience.cuts:
            self._bytes += len(entry.frame(cut))
        self._entries.append(entry)
        self.audience.wake_soon(urgent=entry.seq is not None)
        if len(self._entries) > RING_ENTRIES or self._bytes > RING_BYTES:
            self._drop_older_half()

    def _join(self, item: Event | Ephemeral) -> None:
        """Join a delta to its answer, or drop an answer that has ended."""
        if isinstance(item, Delta):
            self._answers.add(item)
        elif isinstance(item, Rewound):
            self._answers.clear()
        elif isinstance(item, (StepCompleted, StepFailed)):
            self._answers.forget_step(item.step)
        elif isinstance(item, (Event, ModelRestarted)) and (answer := ended_by(item)) is not None:
            self._answers.forget(answer)
        self._so_far = None

    def so_far(self) -> Sequence[Entry]:
        """Return the current answers, as one delta for each channel."""
        if self._so_far is None:
            deltas = list(self._answers.deltas())
            for delta in deltas:
                delta.after = self.newest
            self._so_far = [Entry(delta, self._settings.hide()) for delta in deltas]
        return self._so_far

    def _drop_older_half(self) -> None:
        gone = len(self._entries) // 2
        for entry in self._entries[:gone]:
            self._bytes -= entry.size
            self.base = entry.seq if entry.seq is not None else self.base
        del self._entries[:gone]
        self._first += gone

    def cancel(self) -> None:
        """Stop following when no stream reads the feed."""
        self._following.cancel()
        self.audience.cancel()
        for reading in self._reading.values():
            reading.cancel()

    async def rests(self, last: int) -> bool:
        """Return whether the task has stopped and no driver will continue it by itself, according to the store.

        Args:
            last: the sequence number of the last event that the reader has. A short task may have ended before the
                feed has its events.
        """
        driver = driver_of(self._runner)
        row = await driver.cache.row(self.task_id)
        return row.head <= last and rests(row, driver.clock()) and not driver.owned.is_owned(self.task_id)

    # ------------------------------------------------------------------------------------------ reading

    def place_after(self, last: int) -> int | None:
        """Return the position in the ring after an event; None if the ring does not contain the next event."""
        if not self.base <= last <= self.newest:
            return None
        entries = self._entries
        low, high = 0, len(entries)
        while low < high:  # the first entry after it: entries are in the order of `after`
            middle = (low + high) // 2
            entry = entries[middle]
            came_before = entry.seq <= last if entry.seq is not None else entry.after < last
            low, high = (middle + 1, high) if came_before else (low, middle)
        return self._first + low

    @property
    def end(self) -> int:
        """The position after the last entry."""
        return self._first + len(self._entries)

    def take(self, place: int, part: Part) -> tuple[Sequence[Entry], int] | None:
        """Return entries from a position on, and the position after them; None if that position has left the ring."""
        if place < self._first:
            return None
        entries: list[Entry] = []
        size, index, end = 0, place - self._first, len(self._entries)
        while index < end and size < CHUNK_BYTES:
            entry = self._entries[index]
            index += 1
            if (
                part == "all"
                or entry.seq is not None
                or (part == "other than deltas" and not isinstance(entry.event, Delta))
            ):
                entries.append(entry)
                size += entry.size or 1
        return entries, self._first + index

    def join_frames(self, entries: Sequence[Entry], place: int, cut: int | None, part: Part) -> bytes:
        """Return the joined frames of entries up to a position; readers at the same position share the last result."""
        key = (place, len(entries), cut, part)
        if self._joined is not None and self._joined[0] == key:
            return self._joined[1]
        before = sum(entry.size for entry in entries)
        joined = b"".join([entry.frame(cut) for entry in entries])
        if part != "answers":  # those are outside the ring
            self._bytes += sum(entry.size for entry in entries) - before
        self._joined = (key, joined)
        return joined

    async def page(self, after: int) -> Page:
        """Return a page of events of the journal after a sequence number; empty at its end.

        Streams that request the same page at the same time share one read.
        """
        for first, read in self._reads.items():
            if first <= after < read.entries[-1].after:
                return read.after(after)
        reading = self._reading.get(after)
        if reading is None:
            reading = self._reading[after] = self._loop.create_task(self._read(after))
            reading.add_done_callback(lambda _: self._reading.pop(after, None))
        return await asyncio.shield(reading)

    async def _read(self, after: int) -> Page:
        events = await events_of_records(driver_of(self._runner), self.task_id, after, PAGE)
        hide = self._settings.hide()
        read = Page([Entry(event, hide) for event in events])
        if not read.entries:
            return read
        self._reads[after] = read
        while len(self._reads) > READS:
            self._reads.popitem(last=False)
        return read.after(after)


class Reader:
    """The position of one stream in a feed.

    Args:
        feed: the feed.
        last: sequence number of the last event that was read before.
        deltas: whether it also reads ephemeral items.
        cut: the length in characters at which texts are cut.
    """

    __slots__ = ("_last_part", "_part", "_place", "_sent_stood", "cut", "deltas", "feed", "last")

    def __init__(self, feed: Feed, last: int, *, deltas: bool, cut: int | None) -> None:
        self.feed = feed
        self.last = last
        self.deltas = deltas
        self.cut = cut
        self._place: int | None = None
        self._part: Part = "events"
        """its current part of the ring"""

        self._last_part: Part = "events"
        """the part of its last entries"""

        self._sent_stood: TaskStood | None = None

    def new_stood(self) -> TaskStood | None:
        """Return the task's state if the reader has not received it; a stop follows the events up to it."""
        stood = self.feed.stood
        if stood is self._sent_stood or stood is None:
            return None
        if self._sent_stood is not None and not stood.driven and self.last < stood.head:
            return None
        self._sent_stood = stood
        return stood

    def is_at_rest(self) -> bool:
        """Return whether the task has stopped and the reader has received that and all events up to it."""
        stood = self._sent_stood
        return stood is not None and stood is self.feed.stood and not stood.driven and self.last >= stood.head

    def ready(self) -> Sequence[Entry]:
        """Return the ring's entries for this reader; empty if its position is not in the ring."""
        if self._place is None:
            self._place = self.feed.place_after(self.last)
            self._part = "other than deltas" if self.deltas else "events"
        if self._place is None:
            return ()
        result = self.feed.take(self._place, self._part)
        if result is None:  # its position has left the ring
            self._place = None
            return ()
        (entries, self._place), self._last_part = result, self._part
        if not entries and self._part == "other than deltas" and self._place == self.feed.end:
            self._part, self._last_part = "all", "answers"
            entries = self.feed.so_far()
        if entries:
            self.last = max(self.last, entries[-1].after)
        return entries

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the joined frames of the last result of `ready`."""
        assert self._place is not None, "its position is in the ring"
        return self.feed.join_frames(entries, self._place, self.cut, self._last_part)

    async def stored(self) -> Page | None:
        """Return a page of the journal; None if the ring has the next event."""
        return await self.feed.page(self.last) if self.last < self.feed.base else None


class Page:
    """Some events of the journal, in order."""

    __slots__ = ("entries",)

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries

    def after(self, last: int) -> Page:
        """Return the events after one of them, as many as a page has."""
        first = bisect_right(self.entries, last, key=_place)
        return Page(self.entries[first : first + PAGE])

    def chunks(self, cut: int | None) -> Sequence[tuple[int, bytes]]:
        """Return the frames, joined to chunks for separate writes, each with its last sequence number."""
        chunks: list[tuple[int, bytes]] = []
        frames: list[bytes] = []
        size = 0
        for entry in self.entries:
            data = entry.frame(cut)
            frames.append(data)
            size += len(data)
            if size >= CHUNK_BYTES or entry is self.entries[-1]:
                chunks.append((entry.after, b"".join(frames)))
                frames, size = [], 0
        return chunks


def _place(entry: Entry) -> int:
    return entry.after


class Feeds:
    """The feeds of a server process, by tenant and task.

    Args:
        settings: the settings of all feeds.
    """

    def __init__(self, settings: FeedSettings | None = None) -> None:
        self._feeds: dict[tuple[str, str], Feed] = {}
        self._lingering: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._settings = settings or FeedSettings()

    def __len__(self) -> int:
        return len(self._feeds)

    async def open(self, runner: TaskRunner, task_id: str, waker: Waker, cut: int | None) -> tuple[Feed, int]:
        """Return the feed of a task, which wakes the stream from now on, and the end of the task's journal.

        It always reads the store, since only the store knows whether the tenant has the task.

        Raises:
            TaskNotFound: the runner's tenant has no such task.
            ConfigurationError: the id is not valid.
        """
        # Refuse an invalid id: an id with a separator could name another tenant's task.
        runner.handle(task_id)
        head = (await runner.store.row(task_id)).head
        key = (tenant_of(runner), task_id)
        feed = self._feeds.get(key)
        if feed is None or feed.ended is not None or head < feed.base:
            feed = self._feeds[key] = Feed(runner, task_id, head, self._settings)
        lingering = self._lingering.pop(key, None)
        if lingering is not None:
            lingering.cancel()
        feed.audience.join(waker, cut)
        try:
            await feed.began()
        except BaseException:
            self.close(key[0], feed, waker)
            raise
        return feed, head

    def close(self, tenant: str, feed: Feed, waker: Waker) -> None:
        """Remove a stream from a feed; a feed without streams stops after `LINGER_SECONDS`."""
        feed.audience.leave(waker)
        key = (tenant, feed.task_id)
        if len(feed.audience):
            return
        if self._feeds.get(key) is not feed or feed.ended is not None:
            self._stop(key, feed)
        elif key not in self._lingering:
            loop = asyncio.get_running_loop()
            self._lingering[key] = loop.call_later(LINGER_SECONDS, self._stop, key, feed)

    def _stop(self, key: tuple[str, str], feed: Feed) -> None:
        if len(feed.audience):
            return
        feed.cancel()
        if self._feeds.get(key) is feed:
            del self._feeds[key]
            lingering = self._lingering.pop(key, None)
            if lingering is not None:
                lingering.cancel()

    def stop(self) -> None:
        """Stop all feeds when the process ends."""
        for key, feed in list(self._feeds.items()):
            feed.cancel()
            lingering = self._lingering.pop(key, None)
            if lingering is not None:
                lingering.cancel()
        self._feeds.clear()
