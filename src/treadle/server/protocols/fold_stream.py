"""A long response with the frames that a fold makes of a task's events; it ends when a client must act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from treadle.results.run_result import RunResult
from treadle.runner.runner import TaskRunner
from treadle.server.audience import Waker
from treadle.server.event_stream import Stream, Write
from treadle.server.feed import Reader
from treadle.server.frames import Hide
from treadle.server.limits import ServerLimits
from treadle.server.protocols.stops import Fold, Stop, waits_for_client

MOST_REQUESTS: Final = 1_000
"""The most open requests of a task that are read."""


async def read_stop(runner: TaskRunner, task_id: str) -> Stop:
    """Return the state in which a task stopped, with the open requests of the tasks below it."""
    return await stop_of(runner, await runner.result(task_id))


async def stop_of(runner: TaskRunner, result: RunResult[Any]) -> Stop:
    """Return the state of a task with this result, with the open requests of the tasks below it."""
    page = await runner.list_pending(result.task_id, limit=MOST_REQUESTS)
    requests = tuple([item for item in result.pending if item.kind == "request"])
    pending, extra_state = (*page.items, *requests), result.extra_state
    return Stop(result.state, pending, result.stop_reason, extra_state, result.artifacts)


class FoldStream(Stream):
    """The frames of a task in a protocol; a subclass encodes them and names the reason of its end.

    Args:
        fold: folds the events of the task.
        runner: reads the task when it has stopped.
        reader: reads the events from the task's feed.
        waker: wakes the stream; the feed has it.
        limits: its timeouts.
        closed: called once, after its end, or if it never begins.
        hide: returns a function that masks secrets in JSON data; None if there are none.
    """

    def __init__(
        self,
        fold: Fold,
        runner: TaskRunner,
        reader: Reader,
        waker: Waker,
        limits: ServerLimits,
        closed: Callable[[], None],
        *,
        hide: Callable[[], Hide | None],
    ) -> None:
        super().__init__(waker, limits, closed)
        self._run_fold = fold
        self._runner = runner
        self._reader = reader
        self._hide = hide
        self._has_ended = False

    async def _run(self, write: Write) -> None:
        reader, fold = self._reader, self._run_fold
        await self._send_frames(fold.begin(), write)
        while not (self._reader_left or self._has_ended) and self._end_reason is None:
            if (stood := reader.new_stood()) is not None:
                await self._send_frames(fold.feed(stood), write)
            elif entries := reader.ready():
                await self._send_frames([out for entry in entries for out in fold.feed(entry.event)], write)
            elif not await self._send_stored(write):
                await self._wait_unless_done(write)

    async def _send_stored(self, write: Write) -> bool:
        """Send a page of the journal if the ring lacks the next event; return whether it did."""
        page = await self._reader.stored()
        if page is None or not page.entries:
            return False
        frames = [out for entry in page.entries for out in self._run_fold.feed(entry.event)]
        self._reader.last = page.entries[-1].after
        await self._send_frames(frames, write)
        return True

    async def _wait_unless_done(self, write: Write) -> None:
        feed = self._reader.feed
        if feed.ended is not None:
            self._end_reason, self._error = feed.ended, feed.error
        elif self._reader.is_at_rest() and await feed.rests(self._reader.last):
            stop = await read_stop(self._runner, self._run_fold.task_id)
            if not await feed.rests(self._reader.last):
                return  # it goes on since
            if self._ends_at(stop):
                self._has_ended = True
                await self._send_frames(self._run_fold.end(stop), write)
            else:
                await self._send_frames(self._frames_at(stop), write)
                await self._wait(write)
        else:
            await self._wait(write)

    def _ends_at(self, stop: Stop) -> bool:
        """Return whether the stream ends in this state of its task; otherwise it goes on when the task does."""
        return waits_for_client(stop)

    def _frames_at(self, stop: Stop) -> list[dict[str, Any]]:
        """Return the frames for a state of the task in which the stream does not end."""
        return []

    async def _send_frames(self, frames: Sequence[dict[str, Any]], write: Write) -> None:
        if frames:
            await write(b"".join([self._encoded(each) for each in frames]))

    def _masked(self, frame: dict[str, Any]) -> Any:
        hide = self._hide()
        return frame if hide is None else hide(frame)

    def _encoded(self, frame: dict[str, Any]) -> bytes:
        raise NotImplementedError
