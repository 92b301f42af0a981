"""Notify observers. Each runs in its own thread and reads from a bounded buffer.

A drive only appends to a list, so a slow, failing or hanging observer does not affect it. Notices that exceed the
buffer are dropped and counted, and the observer gets a `Missed` instead.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from threading import Event as Signal
from threading import Lock, Thread
from typing import Any, Final, TypeAlias
from weakref import WeakSet, finalize

from treadle.core.data import frozen
from treadle.core.events import AgentChanged, Ephemeral, Event, RawChunk, Rewound, explain_names
from treadle.core.state import TaskState
from treadle.engine.broadcast import Item, Stopped
from treadle.engine.user_errors import shown
from treadle.engine.vault import NO_VAULT, Vault
from treadle.ports import DriveBegan, DriveEnded, Missed, Notice, ObservedTask, Observer
from treadle.results.states import state_at_rest

BUFFER: Final = 4_096
"""Maximum number of waiting notices of an observer, besides the batch in delivery."""

REST: Final = 0.01
"""Seconds that a woken thread waits for more notices, to save wake-ups."""

PATIENCE: Final = 2.0
"""Seconds that all observers together have for their waiting notices at the end of a runner or process."""

EnterCall: TypeAlias = Callable[[ObservedTask, int, str, int], object]
"""Sets context variables for a call. The arguments are the task, its epoch, the call's id and its attempt."""

_LOG: Final = logging.getLogger("treadle.observing")


@frozen
class ObserverReport:
    """Counters of one observer: delivered notices, notices dropped because it was slow, and its errors."""

    observer: Observer
    told: int
    dropped_events: int
    dropped_deltas: int
    errors: int


class Listener:
    """One observer with its buffer and its thread, which starts with the first notice.

    Args:
        observer: receives the notices.
        vault: hides secrets in its errors.
        closes: whether to call its `close` after its last notice.
        on_end: called with the listener at the end of its thread, in that thread.
    """

    def __init__(
        self,
        observer: Observer,
        vault: Vault,
        *,
        closes: bool = True,
        on_end: Callable[[Listener], object] | None = None,
    ) -> None:
        self.observer = observer
        self._vault = vault
        self._closes, self._on_end = closes, on_end
        self.deltas = bool(getattr(observer, "deltas", False))
        self.name = str(getattr(observer, "name", "") or type(observer).__name__)
        """its name in log messages"""

        self.enter_call: EnterCall | None = getattr(observer, "enter_call", None)

        self._lock = Lock()
        self._wake = Signal()
        self._buffer: list[Notice] = []
        self._missed = [0, 0]
        self._dropped = [0, 0]
        self._delivered = self._errors = 0
        self._thread: Thread | None = None
        self._closing = False

    def hear(self, notice: Notice) -> None:
        """Queue a notice for the observer, without waiting, from any thread."""
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
        ):  # with too many threads, or at the end of the process, notices wait in the bounded buffer
            thread.start()
            self._thread = thread

    def report(self) -> ObserverReport:
        """Return the counters of the observer."""
        return ObserverReport(
            self.observer, self._delivered, self._dropped[0], self._dropped[1], self._errors
        )

    def _make_room(self) -> None:
        """Drop all deltas, and if needed the older half of the events, so that this happens rarely."""
        kept = [notice for notice in self._buffer if not isinstance(notice.event, Ephemeral)]
        deltas = len(self._buffer) - len(kept)
        events = len(kept) // 2 if len(kept) > BUFFER // 2 else 0
        if not any(self._dropped):
            _LOG.warning("the observer %s is too slow: notices beyond its buffer are dropped", self.name)
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
                close = getattr(self.observer, "close", None) if self._closes else None
                if close is not None:
                    self._guarded(close)
                if self._on_end is not None:
                    self._on_end(self)
                return

    def _tell(self, notice: Notice) -> None:
        self._guarded(self.observer.observe, notice)
        self._delivered += 1

    def _guarded(self, callback: Any, *arguments: Any) -> None:
        try:
            callback(*arguments)
        except BaseException as error:  # noqa: BLE001  an observer's error is its own
            self._errors += 1
            if self._errors == 1:
                _LOG.warning(
                    "the observer %s raised %s; it is told later events",
                    *(self.name, self._vault.error_text(error)),
                    exc_info=shown(error, self._vault),
                )

    def enter(self, task: ObservedTask, epoch: int, call: str, attempt: int) -> None:
        """Let the observer set context variables for a call. Its errors are logged and counted."""
        if self.enter_call is not None:
            self._guarded(self.enter_call, task, epoch, call, attempt)

    def begin_to_close(self) -> None:
        """Let the thread deliver the waiting notices, and end."""
        with self._lock:
            self._closing = True
            was_told = self._thread is not None
        self._wake.set()
        if not was_told and self._on_end is not None:
            self._on_end(self)

    def end(self, deadline: float) -> None:
        """Wait until all notices are delivered, at most until a time on the monotonic clock."""
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread is not None and self._thread.is_alive():
            _LOG.warning("the observer %s did not end in time: %d notices wait", self.name, len(self._buffer))
        elif self._errors or any(self._dropped):
            _LOG.warning(
                "the observer %s was told %d notices; %d events and %d deltas were dropped, and it raised %d times",
                *(self.name, self._delivered, *self._dropped, self._errors),
            )


class Listeners:
    """The observers of the same tasks."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = tuple(listeners)
        self.deltas = any(listener.deltas for listener in self.listeners)
        self.entering = [listener for listener in self.listeners if listener.enter_call is not None]

    def hear(self, notice: Notice) -> None:
        """Notify all observers of an event."""
        for listener in self.listeners:
            listener.hear(notice)

    def hear_delta(self, notice: Notice) -> None:
        """Notify the observers that receive deltas."""
        for listener in self.listeners:
            if listener.deltas:
                listener.hear(notice)


class ObserverSet:
    """All observers of a runner: its own, and those of single calls until their last notice.

    Attributes:
        own: the runner's own; None if it has none.
    """

    def __init__(self, observers: Sequence[Observer], vault: Vault = NO_VAULT) -> None:
        self._vault = vault
        self._lock = Lock()
        self._all = [Listener(observer, vault) for observer in observers]
        self._is_finalized = False
        self.own = Listeners(self._all) if observers else None
        if observers:
            self._close_in_time()

    def _close_in_time(self) -> None:
        """Deliver the notices of a runner that is never closed, when it is collected or the process ends."""
        explain_names()
        if not self._is_finalized:
            self._is_finalized = True
            finalize(self, _begin_to_close, self._all).atexit = False
        if not _OPEN:
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _OPEN.add(self)

    @contextmanager
    def of_call(self, observers: Sequence[tuple[Observer, bool]]) -> Generator[Listeners]:
        """Notify the observers of one call within the block. Afterwards they get waiting notices in the background.

        Args:
            observers: each observer, and whether to call its `close` at the end.
        """
        listeners = Listeners(
            [
                Listener(observer, self._vault, closes=closes, on_end=self._drop)
                for observer, closes in observers
            ]
        )
        with self._lock:
            self._all.extend(listeners.listeners)
        self._close_in_time()
        try:
            yield listeners
        finally:
            _begin_to_close(listeners.listeners)

    def _drop(self, listener: Listener) -> None:
        with self._lock:
            if listener in self._all:
                self._all.remove(listener)

    def listeners(self) -> list[Listener]:
        """Return all observers that may still receive notices."""
        with self._lock:
            return list(self._all)

    def reports(self) -> tuple[ObserverReport, ...]:
        """Return the counters of the runner's own observers."""
        return tuple([listener.report() for listener in self.own.listeners]) if self.own is not None else ()

    def close(self) -> None:
        """Deliver waiting notices to all observers, for at most `PATIENCE` seconds. Later notices are dropped."""
        if self in _OPEN:
            _OPEN.discard(self)
            _close(self.listeners())

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        if self in _OPEN:
            await asyncio.get_running_loop().run_in_executor(None, self.close)


_OPEN: Final[WeakSet[ObserverSet]] = WeakSet()


def _close_all() -> None:
    _close([listener for observing in list(_OPEN) for listener in observing.listeners()])


def _begin_to_close(listeners: Sequence[Listener]) -> None:
    for listener in tuple(listeners):
        listener.begin_to_close()


def _close(listeners: Sequence[Listener]) -> None:
    deadline = time.monotonic() + PATIENCE
    _begin_to_close(listeners)
    for listener in listeners:
        listener.end(deadline)


class TaskObservation:
    """Notifies observers of one task while this process owns it."""

    __slots__ = ("_agent", "_began", "_context", "_state", "_task", "_tenant", "_to", "deltas")

    def __init__(self, to: Listeners, state: TaskState, epoch: int, tenant: str = "") -> None:
        self._tenant = tenant
        self._to = to
        self._state = state
        self._agent = state.agent
        """the agent of the task when this process came to own it; empty if the task was created here"""

        self._task: ObservedTask | None = None
        self.deltas = to.deltas
        calls = {call.id: call.name for step in state.under_way() for call in step.open.values()}
        calls.update({call.id: call.name for call in (state.undo.queue if state.undo is not None else ())})
        self._began = DriveBegan(state.seq, epoch, state.epoch, calls, copy_context())
        if state.questions:
            self._began.asked = {each.request_id: each.event.time for each in state.questions.values()}
        if state.open_approvals:
            permits = {call.id: call.permit for call in state.open_approvals.values()}
            self._began.asked |= {
                call: permit.request.time for call, permit in permits.items() if permit and permit.request
            }

    def publish(self, items: Sequence[Item]) -> None:
        """Notify of durable events, and of the release of the task."""
        for item in items:
            if isinstance(item, Event):
                task = self._observed_task()
                if type(item) is AgentChanged:
                    self._task = task = replace(task, agent=item.agent)
                self._to.hear(Notice(task, item))
                if type(item) is Rewound and task.agent != self._state.agent:
                    self._task = replace(task, agent=self._state.agent)
            elif isinstance(item, Stopped) and self._task is not None:
                outcome = "lost" if item.seq is None else state_at_rest(self._state)
                self._to.hear(Notice(self._task, DriveEnded(outcome, self._state.seq)))

    def tell(self, item: Ephemeral) -> None:
        """Notify of a delta. Raw chunks are only for watchers that request them."""
        if isinstance(item, RawChunk):
            return
        self._to.hear_delta(Notice(self._observed_task(), item))

    @property
    def enter_call(self) -> Callable[[str, int], None] | None:
        """The callback just before the tool of a call runs, or None if no observer wants it."""
        return self._enter_call if self._to.entering else None

    def _enter_call(self, call: str, attempt: int) -> None:
        for listener in self._to.entering:
            listener.enter(observed_task(self._state, self._tenant), self._began.epoch, call, attempt)

    def _observed_task(self) -> ObservedTask:
        if self._task is None:
            # Events are published after they are applied, so the task may have changed its agent meanwhile.
            agent = self._agent or self._state.created_for
            self._task = replace(observed_task(self._state, self._tenant), agent=agent)
            self._to.hear(Notice(self._task, self._began))
        return self._task


def observed_task(state: TaskState, tenant: str) -> ObservedTask:
    """Return the facts about a task for observers. A new task has them once its first event is applied."""
    return ObservedTask(state.task_id, state.agent, state.thread, state.parent, state.depth, tenant)
