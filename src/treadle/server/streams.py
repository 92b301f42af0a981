"""Open, count and end the event streams of a server process.

Watching never affects a task. `event_stream` has the frames of a stream.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from starlette.responses import Response

from treadle.errors import TaskNotFound
from treadle.runner.runner import TaskRunner
from treadle.server.audience import Waker
from treadle.server.changes import ChangesFeeds
from treadle.server.event_stream import SeveralStream, Stream, TaskStream
from treadle.server.feed import Feed, Feeds, FeedSettings, Reader, tenant_of
from treadle.server.frames import MOST_STREAMED, cut_size, place_of, places_of, sequence_number
from treadle.server.holding import Hold
from treadle.server.limits import ServerLimits
from treadle.server.problems import Problem

Made: TypeAlias = Callable[[Reader, Waker, ServerLimits, Callable[[], None]], Stream]
"""Makes a stream of a reader of the task's feed, a waker, the limits, and a function to call at its end."""


def _not_valid(detail: str) -> Problem:
    return Problem(400, "StreamRefused", detail)


def first_place(last_event_id: str | None, after: int = 0) -> int:
    """Return the sequence number after which a stream begins: from `Last-Event-ID`, else `after`, else 0.

    Raises:
        Problem: `Last-Event-ID` is not a sequence number.
    """
    if last_event_id is None or last_event_id == "":
        return after
    try:
        return sequence_number(last_event_id)
    except ValueError as error:
        raise _not_valid(f"Last-Event-ID: {error}") from None


def first_places(last_event_id: str | None, tasks: Sequence[str]) -> list[tuple[str, int]]:
    """Return the tasks of a stream of several, with the sequence numbers after which it begins.

    Args:
        last_event_id: an id of such a stream; it overrides `tasks`.
        tasks: each as `ID:AFTER`.

    Raises:
        Problem: a position is not valid.
    """
    try:
        return places_of(last_event_id) if last_event_id else [place_of(task) for task in tasks]
    except ValueError as error:
        raise _not_valid(str(error)) from None


class Streams:
    """The open event streams of a server process.

    Args:
        limits: the maximum number of streams, and their timeouts.
        settings: the settings of the feeds.
    """

    def __init__(self, limits: ServerLimits | None = None, settings: FeedSettings | None = None) -> None:
        self.limits = limits or ServerLimits()
        self.feeds = Feeds(settings)
        self._open: set[Stream] = set()
        self.changes = ChangesFeeds(settings)
        self._by_principal: Counter[tuple[str, str]] = Counter()
        self._count = 0
        self._leaving = False
        self._all_closed: asyncio.Event | None = None
        self._ticking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def of_task(
        self,
        runner: TaskRunner,
        task_id: str,
        *,
        principal: str,
        after: int = 0,
        deltas: bool = True,
        until_rest: bool = False,
        cut: int | None = None,
        hold: Hold | None = None,
    ) -> Response:
        """Return a response that streams the events of a task.

        Args:
            runner: reads the task, in one tenant.
            task_id: the task.
            principal: the principal of the stream.
            after: sequence number of the last event that the reader has seen.
            deltas: also send the text that models currently write, and the progress of tools.
            until_rest: end the stream when the task stops, as `handle.events()` does.
            cut: the length in characters at which texts are cut; None for no cut.
            hold: holds the task for the life of the stream; None if the stream does not hold it.

        Raises:
            TaskNotFound: the task does not exist.
            Problem: `after` is ahead of the journal, or there are too many streams.
        """

        def made(reader: Reader, waker: Waker, limits: ServerLimits, closed: Callable[[], None]) -> Stream:
            return TaskStream(reader, waker, limits, closed, until_rest=until_rest)

        return await self.open(
            runner, task_id, made, principal=principal, after=after, deltas=deltas, cut=cut, hold=hold
        )

    async def open(
        self,
        runner: TaskRunner,
        task_id: str,
        made: Made,
        *,
        principal: str,
        after: int,
        deltas: bool,
        cut: int | None,
        hold: Hold | None,
    ) -> Stream:
        """Return a response that streams a task in a form of its own; see `of_task` for the other arguments."""
        reserved = self._reserve(principal, tenant_of(runner))
        size, waker = cut_size(cut), Waker()
        try:
            feed = await self._opened_feed(reserved, runner, task_id, after, waker, size)
        except BaseException:
            reserved.close()
            raise
        if hold is not None:
            reserved.on_close = hold()
        reader = Reader(feed, after, deltas=deltas, cut=size)
        return self._opened(made(reader, waker, self.limits, reserved.close), reserved)

    @asynccontextmanager
    async def reading(
        self, runner: TaskRunner, task_id: str, *, principal: str, after: int, deltas: bool, hold: Hold | None
    ) -> AsyncGenerator[tuple[Reader, Waker]]:
        """Read a task's feed for the duration of a block, which counts as a stream.

        See `of_task` for the arguments.
        """
        reserved, waker = self._reserve(principal, tenant_of(runner)), Waker()
        try:
            feed = await self._opened_feed(reserved, runner, task_id, after, waker, None)
            if hold is not None:
                reserved.on_close = hold()
            yield Reader(feed, after, deltas=deltas, cut=None), waker
        finally:
            reserved.close()

    async def of_several(
        self,
        runner: TaskRunner,
        tasks: Sequence[tuple[str, int]],
        *,
        principal: str,
        changes: bool = False,
        deltas: bool = True,
        cut: int | None = None,
        resumes: bool = False,
    ) -> Response:
        """Return a response that streams the events of some tasks, and the changes of all.

        Args:
            runner: reads the tasks, in one tenant.
            tasks: the tasks, each with the sequence number of the last event that the reader has seen.
            principal: the principal of the stream.
            changes: also send a summary of each task of the tenant when it changes.
            deltas: also send the text that models currently write, and the progress of tools.
            cut: the length in characters at which texts are cut; None for no cut.
            resumes: whether the reader continues an earlier stream. Then a task that was deleted or replaced under its
                id is reported as gone, and the others continue.

        Raises:
            TaskNotFound: a task does not exist.
            Problem: a sequence number is ahead of its journal, or there are too many tasks or streams.
        """
        if len(tasks) > MOST_STREAMED:
            raise _not_valid(f"a stream follows up to {MOST_STREAMED} tasks")
        if len({task_id for task_id, _ in tasks}) < len(tasks):
            raise _not_valid("each task of a stream is named once")
        if not tasks and not changes:
            raise _not_valid("name a task by task=ID:AFTER, or ask for changes by changes=1")
        reserved = self._reserve(principal, tenant_of(runner))
        size, waker = cut_size(cut), Waker()
        readers: list[Reader] = []
        gone: list[str] = []
        try:
            for task_id, after in tasks:
                try:
                    feed = await self._opened_feed(reserved, runner, task_id, after, waker, size)
                except (TaskNotFound, Problem):
                    if not resumes:
                        raise
                    gone.append(task_id)
                else:
                    readers.append(Reader(feed, after, deltas=deltas, cut=size))
            changing = self.changes.open(runner, waker) if changes else None
        except BaseException:
            reserved.close()
            raise
        if changing is not None:
            reserved.on_close = lambda: self.changes.close(reserved.tenant, changing, waker)
        stream = SeveralStream(readers, gone, changing, waker, self.limits, reserved.close)
        return self._opened(stream, reserved)

    async def _opened_feed(
        self, reserved: _Reserved, runner: TaskRunner, task_id: str, after: int, waker: Waker, cut: int | None
    ) -> Feed:
        feed, head = await self.feeds.open(runner, task_id, waker, cut)
        reserved.feeds.append((feed, waker))
        head = max(head, feed.newest)
        if after > head:
            text = f"task {task_id} has no event {after}: its journal ends at {head}"
            raise Problem(409, "StreamRefused", text, head=head)
        return feed

    # --------------------------------------------------------------------------------- counting and ending

    def _reserve(self, principal: str, tenant: str) -> _Reserved:
        """Count a stream before it opens, or raise a `Problem`."""
        if self._leaving:
            raise Problem(503, "Draining", "the server is about to end", {"Retry-After": "1"})
        if self._count >= self.limits.streams:
            text = f"{self.limits.streams} event streams are open, the limit of this server"
            raise Problem(503, "StreamRefused", text, {"Retry-After": "5"})
        holder = (tenant, principal)
        if self._by_principal[holder] >= self.limits.streams_per_principal:
            text = (
                f"{principal} has {self._by_principal[holder]} event streams open, the limit of a principal"
            )
            raise Problem(429, "StreamRefused", text, {"Retry-After": "5"})
        self._by_principal[holder] += 1
        self._count += 1
        return _Reserved(self, principal, tenant)

    def release(self, reserved: _Reserved) -> None:
        """Stop counting a stream; its feeds may stop."""
        for feed, waker in reserved.feeds:
            self.feeds.close(reserved.tenant, feed, waker)
        self._count -= 1
        holder = (reserved.tenant, reserved.principal)
        self._by_principal[holder] -= 1
        if not self._by_principal[holder]:
            del self._by_principal[holder]
        if reserved.stream is not None:
            self._open.discard(reserved.stream)
        if self._all_closed is not None and not self._open:
            self._all_closed.set()

    def _opened(self, stream: Stream, reserved: _Reserved) -> Stream:
        reserved.stream = stream
        self._open.add(stream)
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)
        return stream

    @property
    def _tick_seconds(self) -> float:
        return min(self.limits.heartbeat_seconds, self.limits.stream_seconds) / 4

    def _tick(self) -> None:
        """Wake streams whose heartbeat or end is due; one timer serves all."""
        self._ticking = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for stream in self._open:
            stream.tick(now)
        if self._open:
            self._ticking = loop.call_later(self._tick_seconds, self._tick)

    def leave(self) -> None:
        """End all streams, since the server shuts down, and refuse new ones."""
        self._leaving = True
        for stream in list(self._open):
            stream.end("shutdown")

    async def closed(self, at_most: float) -> None:
        """Wait until all streams have ended, at most `at_most` seconds."""
        if self._open:
            self._all_closed = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), at_most)

    def stop(self) -> None:
        """Stop the feeds when the process ends."""
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        self.feeds.stop()
        self.changes.stop()


class _Reserved:
    """A stream's share of the limits, from before it opens until it has closed."""

    def __init__(self, streams: Streams, principal: str, tenant: str) -> None:
        self._streams: Streams | None = streams
        self.principal = principal
        self.tenant = tenant
        self.feeds: list[tuple[Feed, Waker]] = []
        self.stream: Stream | None = None
        self.on_close: Callable[[], None] | None = None

    def close(self) -> None:
        """Release the share; further calls do nothing."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.release(self)
            if self.on_close is not None:
                self.on_close()
