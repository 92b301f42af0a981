"""Telling observers: each listens in a thread of its own, behind a bounded buffer.

A task that is driven only ever appends to a list. Whether an observer is quick, slow, raises or hangs makes no
difference to it: what does not fit is dropped, counted, and told as `Missed`.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from contextvars import copy_context
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any, Final
from weakref import WeakSet, finalize

from treadle.core.data import frozen
from treadle.core.events import Ephemeral, Event, RawChunk
from treadle.core.state import TaskState
from treadle.engine.broadcast import Item, Stopped
from treadle.engine.results import resting_word
from treadle.ports import DriveBegan, DriveEnded, Missed, Notice, ObservedTask, Observer

BUFFER: Final = 4_096
"""How many notices wait for an observer at most, beside as many that it is being told."""

REST: Final = 0.01
"""Seconds in which a thread that was woken lets more come together, so that a run does not pay for each waking."""

PATIENCE: Final = 2.0
"""Seconds that all observers together have to hear the rest, when a runner is closed or the process ends."""

_LOG: Final = logging.getLogger("treadle.observing")


@frozen
class ObserverReport:
    """How an observer does: what it was told, what was dropped since it was too slow, how often it raised."""

    observer: Observer
    told: int
    dropped_events: int
    dropped_deltas: int
    errors: int


class Listener:
    """One observer with its buffer and its thread, which begins with the first notice."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.deltas = bool(getattr(observer, "deltas", False))
        self.name = str(getattr(observer, "name", "") or type(observer).__name__)
        """what people call it"""

        self._lock = Lock()
        self._wake = Signal()
        self._buffer: list[Notice] = []
        self._missed = [0, 0]
        self._dropped = [0, 0]
        self._told = self._errors = 0
        self._thread: Thread | None = None
        self._closing = False

    def hear(self, notice: Notice) -> None:
        """Take a notice in; from any thread, at once."""
        with self._lock:
            if self._closing:
                return
            self._buffer.append(notice)
            if len(self._buffer) > BUFFER:
                self._make_room()
            if self._thread is None:
                self._begin()
        if not self._wake.is_set():
            self._wake.set()

    def _begin(self) -> None:
        thread = Thread(target=self._listen, name=f"treadle-observer-{self.name}", daemon=True)
        with suppress(
            RuntimeError
        ):  # there are too many, or the process ends: the buffer is bounded, and waits
            thread.start()
            self._thread = thread

    def report(self) -> ObserverReport:
        """Return how the observer does."""
        return ObserverReport(self.observer, self._told, self._dropped[0], self._dropped[1], self._errors)

    def _make_room(self) -> None:
        """Drop all deltas, and the older half if that is not enough: so this is seldom done, however slow it is."""
        kept = [notice for notice in self._buffer if not isinstance(notice.event, Ephemeral)]
        deltas = len(self._buffer) - len(kept)
        events = len(kept) // 2 if len(kept) > BUFFER // 2 else 0
        if not any(self._dropped):
            _LOG.warning("the observer %s is too slow: what it does not hear in time is dropped", self.name)
        for counted in (self._missed, self._dropped):
            counted[0] += events
            counted[1] += deltas
        self._buffer = kept[events:]

    def _take(self) -> tuple[list[Notice], bool]:
        with self._lock:
            self._wake.clear()
            batch, self._buffer = self._buffer, []
            if any(self._missed):
                batch.insert(0, Notice(None, Missed(*self._missed)))
                self._missed = [0, 0]
            return batch, self._closing

    def _listen(self) -> None:
        while True:
            self._wake.wait()
            if not self._closing:
                time.sleep(REST)
            batch, closing = self._take()
            for notice in batch:
                self._tell(notice)
            if closing:
                close = getattr(self.observer, "close", None)
                if close is not None:
                    self._guarded(close)
                return

    def _tell(self, notice: Notice) -> None:
        self._guarded(self.observer.observe, notice)
        self._told += 1

    def _guarded(self, do: Any, *given: Any) -> None:
        try:
            do(*given)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  an observer's error is its own
            self._errors += 1
            if self._errors == 1:
                _LOG.warning(
                    "the observer %s raised %r; it is told what follows", self.name, error, exc_info=error
                )

    def begin_to_close(self) -> None:
        """Have the thread tell what is left, and end."""
        with self._lock:
            self._closing = True
        self._wake.set()

    def end(self, deadline: float) -> None:
        """Wait until everything was told, at most until a time on the monotonic clock."""
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread is not None and self._thread.is_alive():
            _LOG.warning("the observer %s did not end in time: %d notices wait", self.name, len(self._buffer))
        elif self._errors or any(self._dropped):
            _LOG.warning(
                "the observer %s was told %d notices; %d events and %d deltas were dropped, and it raised %d times",
                *(self.name, self._told, *self._dropped, self._errors),
            )


class ObserverSet:
    """All observers of a runner."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.listeners = [Listener(observer) for observer in observers]
        self.deltas = any(listener.deltas for listener in self.listeners)
        # A runner that nobody closes is heard out too: now, if it is forgotten, or before the process ends.
        finalize(self, _begin_to_close, self.listeners).atexit = False
        if not _OPEN:
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _OPEN.add(self)

    def hear(self, notice: Notice) -> None:
        """Tell all observers of an event."""
        for listener in self.listeners:
            listener.hear(notice)

    def hear_delta(self, notice: Notice) -> None:
        """Tell the observers that want them of a delta."""
        for listener in self.listeners:
            if listener.deltas:
                listener.hear(notice)

    def reports(self) -> tuple[ObserverReport, ...]:
        """Return how the observers do."""
        return tuple([listener.report() for listener in self.listeners])

    def close(self) -> None:
        """Let all observers hear the rest, for at most `PATIENCE` seconds; they are told nothing more."""
        if self in _OPEN:
            _OPEN.discard(self)
            _close(self.listeners)

    async def aclose(self) -> None:
        """Close without keeping the event loop from its work."""
        await asyncio.get_running_loop().run_in_executor(None, self.close)


_OPEN: Final[WeakSet[ObserverSet]] = WeakSet()


def _close_all() -> None:
    _close([listener for observing in list(_OPEN) for listener in observing.listeners])


def _begin_to_close(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener.begin_to_close()


def _close(listeners: Sequence[Listener]) -> None:
    deadline = time.monotonic() + PATIENCE
    _begin_to_close(listeners)
    for listener in listeners:
        listener.end(deadline)


class TaskObservation:
    """One task while this process has it, as observers are told of it."""

    __slots__ = ("_began", "_context", "_state", "_task", "_to", "deltas")

    def __init__(self, to: ObserverSet, state: TaskState, epoch: int) -> None:
        self._to = to
        self._state = state
        self._task: ObservedTask | None = None
        self.deltas = to.deltas
        calls = {call.id: call.name for step in state.under_way() for call in step.open.values()}
        calls.update({call.id: call.name for call in (state.undo.queue if state.undo is not None else ())})
        self._began = DriveBegan(state.seq, epoch, state.epoch, calls, copy_context())

    def publish(self, items: Sequence[Item]) -> None:
        """Tell of events that are durable, and of the task's being given back."""
        for item in items:
            if isinstance(item, Event):
                self._to.hear(Notice(self._whose(), item))
            elif isinstance(item, Stopped) and self._task is not None:
                word = "lost" if item.seq is None else resting_word(self._state)
                self._to.hear(Notice(self._task, DriveEnded(word, self._state.seq)))

    def tell(self, item: Ephemeral) -> None:
        """Tell of a delta; what a provider sends is for those who ask for it."""
        if isinstance(item, RawChunk):
            return
        self._to.hear_delta(Notice(self._whose(), item))

    def _whose(self) -> ObservedTask:
        if self._task is None:
            state = self._state  # of a new task it says who it is since its first event was applied
            self._task = ObservedTask(state.task_id, state.agent, state.thread, state.parent, state.depth)
            self._to.hear(Notice(self._task, self._began))
        return self._task
