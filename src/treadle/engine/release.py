"""End a task for good, or release it at rest for a later drive.

Interrupt a task because its driver, its caller or its event loop goes away, or its time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.engine.effect_context import DriveSpec, Subagents
from treadle.engine.journal_writer import JournalWriter
from treadle.ports import AT_ONCE, InboxWaiting, JournalStore, ThreadChange, ThreadMoved

DRIVER_CLOSED: Final = "its driver was closed"
"""The reason of an interruption by the end of the runner."""


class Interruption:
    """The request to interrupt the task, and the callers that wait for the end of the drive.

    The request is journalled once it is due: at once, or when all running effects have ended.

    Args:
        running: the effects that run.
    """

    def __init__(self, state: TaskState, running: Sized) -> None:
        self._state = state
        self._running = running
        self.request: tuple[str, str] | None = None
        """who asked, and why"""

        self.is_immediate = False
        """whether running effects are cancelled, instead of awaited"""

        self._waiters: list[Future[None]] = []

    def ask(self, by: str, reason: str, *, immediate: bool = True) -> None:
        """Request an interruption of the task. The first reason stays."""
        self.request = self.request or (by, reason)
        self.is_immediate = self.is_immediate or immediate

    def is_due(self) -> bool:
        """Return whether to journal the request now. A task that stops anyway does not need it."""
        if self.request is None or (self._running and not self.is_immediate):
            return False
        state = self._state
        stops_anyway = state.cancelling or state.interrupting or (state.pausing and not self._running)
        return state.ended is None and not stops_anyway

    def record(self, writer: JournalWriter) -> None:
        """Record the request."""
        if self.request is not None:
            writer.record(e.InterruptRequested(*self.request))

    def wait(self) -> Future[None]:
        """Return a future that is done once the drive is over."""
        waiter: Future[None] = Future()
        self._waiters.append(waiter)
        return waiter

    def release_waiters(self) -> None:
        """Release the callers that wait for the end of the drive."""
        for waiter in self._waiters:
            with suppress(InvalidStateError):  # its caller was cancelled
                waiter.set_result(None)


class Deadline:
    """The limit on the driven seconds of a task."""

    def __init__(self, state: TaskState, seconds: float, subagents: Subagents | None) -> None:
        self._state = state
        self._seconds = seconds
        self._subagents = subagents
        self._timer: asyncio.TimerHandle | None = None
        self.is_reached = False

    def start(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the time is up."""

        def reach() -> None:
            self.is_reached = True
            wake()

        unseen = self._subagents.unseen if self._subagents is not None else 0
        seconds_left = self._seconds - (self._state.driven + unseen) / 1e6
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds_left), reach)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def record(self, writer: JournalWriter) -> None:
        """Record that the limit is reached, once, unless the task has ended or answered."""
        self.is_reached = False
        state, seconds = self._state, self._seconds
        if state.ended is None and state.limit != "seconds" and not state.answered:
            writer.record(e.LimitReached("seconds", seconds, max(seconds, state.driven / 1e6)))


async def end_task(
    store: JournalStore, writer: JournalWriter, state: TaskState, event: e.TaskEnded, *, keep_in_thread: bool
) -> bool:
    """End the task and change its thread in one transaction, or do neither. Return False if the inbox must be read
    first.

    Args:
        store: the store of the task.
        writer: the writer of its journal.
        state: its state.
        event: its end. The version of the thread is set here.
        keep_in_thread: whether the thread also keeps the messages of a failed or cancelled task.
    """
    keeps = event.state in ("completed", "degraded") or keep_in_thread
    if state.covers:
        keeps = event.state == "completed"
    event.kept = keeps and event.state in ("failed", "cancelled")
    if keeps and event.thread_version == 0:
        event.thread_version = state.base + 1
    while True:
        version = event.thread_version - 1
        change = ThreadChange("add", state.thread, version, state.covers) if keeps else None
        try:
            await writer.commit_alone(event, event.state, thread=change, seal=True)
        except ThreadMoved as moved:
            # Another task ended in the thread first, so the messages of this one follow.
            event.thread_version = moved.version + 1
            if state.covers and await _is_stale(store, state, moved.version):
                text = "words that it summarises were taken out of the thread meanwhile"
                failed = e.TaskEnded("failed", None, e.Failure("agent", "stale", text))
                return await end_task(store, writer, state, failed, keep_in_thread=keep_in_thread)
            continue
        except InboxWaiting:
            return False
        return True


async def _is_stale(store: JournalStore, state: TaskState, version: int) -> bool:
    """Return whether its thread has lost messages that this task summarises since the task was created."""
    _, at_start = await store.thread(state.thread, version=state.base)
    _, now = await store.thread(state.thread, version=version)
    covered = [[m for m in members if m.version <= state.covers] for members in (at_start, now)]
    return covered[0] != covered[1]


def adoption_due_at(
    state: TaskState,
    writer: JournalWriter,
    spec: DriveSpec,
    *,
    was_wanted: bool,
    goes_on: bool,
    hands_on: bool = False,
) -> int:
    """Return when a driver is to adopt the task, by the system's clock, or 0 for never.

    Args:
        state: the state of the task.
        writer: the writer of its journal.
        spec: the specification of this drive.
        was_wanted: whether a driver was to adopt it before this drive.
        goes_on: whether an item arrived that requires another drive.
        hands_on: whether a caller wants another driver to continue.
    """
    if state.ended is not None or state.pausing:
        return 0
    if state.interrupting:
        return AT_ONCE if state.shutdown else 0
    if hands_on and spec.goal != "end":
        return AT_ONCE
    if spec.goal == "attend" and goes_on:
        return AT_ONCE
    if spec.goal in ("step", "attend") and not was_wanted:
        return 0  # the caller that steps the task continues it
    due = state.next_due()
    return writer.to_system_time(due) if due is not None else 0
