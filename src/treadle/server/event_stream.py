"""Responses of `text/event-stream`: the frames, the waits and the end of one stream.

A stream begins with `retry` and the state of the task. Then it sends every event after its reader's position, once and
in order. Deltas in between have no id. It continues across pauses, crashes and adoption. It ends when its reader
leaves, the task is deleted, the server shuts down, or an hour has passed. The last frame, `leaving`, names the reason.
Only a lost connection ends without it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from treadle.core.messages import Json
from treadle.errors import TaskNotFound
from treadle.server.audience import Waker
from treadle.server.changes import ChangesReader
from treadle.server.feed import Entry, Reader
from treadle.server.frames import HEARTBEAT, cursor_of, event_frame, frame, retry
from treadle.server.limits import ServerLimits

RETRY_MS: Final = 1_000
"""Milliseconds after which the client reopens a lost stream."""

LEAVING_MS: Final = (1_000, 3_000)
"""Bounds of the random delay, in milliseconds, before a reader reconnects after this server has left."""

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx then passes frames on without buffering
]

Why = Literal["deleted", "error", "time", "shutdown"]
Write = Callable[[bytes], Awaitable[None]]

_LOG = logging.getLogger("treadle.server")


class Stream(Response):
    """A long response: it sends the available frames, waits to be woken, and ends with a frame that names the reason.

    Args:
        waker: wakes the stream.
        limits: its timeouts.
        closed: called once, after its end, or if it never begins.
    """

    def __init__(self, waker: Waker, limits: ServerLimits, closed: Callable[[], None]) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = list(HEADERS)
        loop = asyncio.get_running_loop()
        self._waker = waker
        self._limits = limits
        self._on_closed: Callable[[], None] | None = closed
        self._end_time = loop.time() + limits.stream_seconds * random.uniform(0.95, 1.0)  # noqa: S311  no secret
        self._sent_at = loop.time()
        self._is_quiet = False
        self._reader_left = False
        self._end_reason: Why | None = None
        self._error: BaseException | None = None
        self._begin_timer = loop.call_later(limits.send_seconds, self._close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._begin_timer.cancel()
        listening = asyncio.ensure_future(self._listen(receive))
        try:
            await self._send(
                send, {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] != "HEAD":
                try:
                    await self._run(lambda data: self._write(send, data))
                except (TimeoutError, OSError):
                    raise
                except TaskNotFound:  # deleted while a page was read
                    self._end_reason = "deleted"
                except Exception as error:  # noqa: BLE001  after the head only a frame can tell of it
                    _LOG.warning("an event stream failed: %s", error, exc_info=error)
                    self._end_reason, self._error = "error", error
                if self._end_reason is not None:
                    await self._write(send, self._leaving_frame(self._end_reason))
            if not self._reader_left:
                await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError) as error:
            _LOG.info("an event stream was closed: its reader takes nothing (%s)", type(error).__name__)
        finally:
            listening.cancel()
            self._close()

    def _close(self) -> None:
        closed, self._on_closed = self._on_closed, None
        if closed is not None:
            closed()

    async def _listen(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader_left = True
        self._waker.wake()

    async def _write(self, send: Send, data: bytes) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        await self._send(send, {"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, send: Send, message: Any) -> None:
        async with asyncio.timeout(self._limits.send_seconds):
            await send(message)

    def tick(self, now: float) -> None:
        """Send a heartbeat, or end the stream, if that is due."""
        if now >= self._end_time:
            self.end("time")
        elif now - self._sent_at >= self._limits.heartbeat_seconds * 0.75:
            self._is_quiet = True
            self._waker.wake()

    def end(self, reason: Why) -> None:
        """End the stream after the current write; call it in the stream's event loop."""
        self._end_reason = self._end_reason or reason
        self._waker.wake()

    def _leaving_frame(self, reason: Why) -> bytes:
        data: dict[str, Json] = {"reason": reason}
        if reason == "error":
            data["error"] = type(self._error).__name__
        milliseconds = random.randint(*LEAVING_MS)  # noqa: S311  no secret
        return retry(milliseconds) + frame("leaving", data)

    async def _run(self, write: Write) -> None:
        """Send frames until the reader leaves, `_why` is set, or everything is sent."""
        raise NotImplementedError

    async def _wait(self, write: Write) -> None:
        """Wait to be woken; send a heartbeat first if it is due."""
        if self._is_quiet:
            self._is_quiet = False
            await write(HEARTBEAT)
        await self._waker.wait()


class TaskStream(Stream):
    """The events of one task.

    Args:
        reader: reads the events from the task's feed.
        waker: wakes the stream; the feed has it.
        limits: its timeouts.
        closed: called once, after its end, or if it never begins.
        until_rest: whether it ends when the task stops.
    """

    def __init__(
        self,
        reader: Reader,
        waker: Waker,
        limits: ServerLimits,
        closed: Callable[[], None],
        *,
        until_rest: bool,
    ) -> None:
        super().__init__(waker, limits, closed)
        self._reader = reader
        self._until_rest = until_rest
        self._has_ended = False

    async def _run(self, write: Write) -> None:
        reader = self._reader
        await write(retry(RETRY_MS))
        while not (self._reader_left or self._has_ended) and self._end_reason is None:
            if (stood := reader.new_stood()) is not None:
                await write(event_frame(stood))
            elif entries := reader.ready():
                await write(reader.joined(entries))
            elif not await self._send_stored(write):
                await self._wait_unless_done(write)

    async def _send_stored(self, write: Write) -> bool:
        """Send a page of the journal if the ring lacks the next event; return whether it did."""
        page = await self._reader.stored()
        for last, data in page.chunks(self._reader.cut) if page is not None else ():
            if self._reader_left or self._end_reason is not None:
                break
            await write(data)
            self._reader.last = last
        return page is not None and bool(page.entries)

    async def _wait_unless_done(self, write: Write) -> None:
        """Wait to be woken, unless there is nothing more to come."""
        feed = self._reader.feed
        if feed.ended is not None:
            self._end_reason, self._error = feed.ended, feed.error
        elif self._until_rest and self._reader.is_at_rest() and await feed.rests(self._reader.last):
            self._has_ended = True
        else:
            await self._wait(write)


class SeveralStream(Stream):
    """The events of several tasks, and the changes of all tasks that its reader may see, in one stream.

    Its ids contain the position in each task, so that one `Last-Event-ID` resumes them all.

    Args:
        readers: read the tasks from their feeds.
        gone: tasks that the reader followed before and that no longer exist.
        changes: reads the changes of all tasks; None without them.
        waker: wakes the stream; all feeds have it.
        limits: its timeouts.
        closed: called once, after its end, or if it never begins.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        gone: Sequence[str],
        changes: ChangesReader | None,
        waker: Waker,
        limits: ServerLimits,
        closed: Callable[[], None],
    ) -> None:
        super().__init__(waker, limits, closed)
        self._readers = {reader.feed.task_id: reader for reader in readers}
        self._places = {task_id: reader.last for task_id, reader in self._readers.items()}
        self._gone_tasks = gone
        self._changes = changes

    async def _run(self, write: Write) -> None:
        await write(retry(RETRY_MS))
        for task_id in self._gone_tasks:
            await write(_gone_frame(task_id))
        while not self._reader_left and self._end_reason is None:
            sent = False
            for reader in list(self._readers.values()):
                sent = await self._send_available(reader, write) or sent
            if self._changes is not None:
                if data := self._changes.take():
                    await write(data)
                    sent = True
                elif self._changes.feed.error is not None:
                    self._end_reason, self._error = "error", self._changes.feed.error
            elif not self._readers:
                self._end_reason = "deleted"
            if not sent and self._end_reason is None:
                await self._wait(write)

    async def _send_available(self, reader: Reader, write: Write) -> bool:
        """Send the available frames of one task; return whether there were any."""
        if (stood := reader.new_stood()) is not None:
            await write(event_frame(stood))
            return True
        feed = reader.feed
        entries = reader.ready()
        is_gone = feed.ended == "deleted"
        if not entries:
            try:
                page = await reader.stored()
            except TaskNotFound:  # the other tasks continue
                page, is_gone = None, True
            entries = page.entries if page is not None else ()
            reader.last = entries[-1].after if entries else reader.last
        if entries:
            await write(b"".join([self._frame(reader, entry) for entry in entries]))
            return True
        if is_gone:
            del self._readers[feed.task_id], self._places[feed.task_id]
            await write(_gone_frame(feed.task_id))
            return True
        if feed.ended is not None:
            self._end_reason, self._error = feed.ended, feed.error
        return False

    def _frame(self, reader: Reader, entry: Entry) -> bytes:
        if entry.seq is None:
            return entry.frame(reader.cut)
        self._places[reader.feed.task_id] = entry.seq
        return b"id: %b\n%b" % (cursor_of(self._places.items()).encode(), entry.body(reader.cut))


def _gone_frame(task_id: str) -> bytes:
    return frame("gone", {"task_id": task_id})
