"""How a task comes into its thread: at once, or in line behind the tasks that are driven there.

The store decides who has a thread; here lies how to wait for it. Of the tasks of this process that wait for one thread
only the first asks the store, when the thread may have become free: when a task of this process left it, when another
process wrote, and now and then, since nobody writes that a driver was killed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from threading import Lock
from typing import Final

from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.effects import Decision, Wait
from treadle.core.state import TaskState
from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition

RECHECK_SECONDS: Final = 0.5
"""Seconds after which the first in line asks again, unless it was woken before."""

ENCLOSING_TASKS: ContextVar[tuple[str, ...]] = ContextVar("treadle_inside", default=())
"""The tasks that the running code is part of: a tool of theirs that waited for their thread would wait for itself."""


def wait_for_thread(state: TaskState, rules: Rules) -> Decision:
    """Want the thread and nothing else: the worker of a task that has not come into its thread yet."""
    return Wait("thread")


class ThreadQueue:
    """The tasks of this process that wait for their threads."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, tuple[int, Callable[[], None]]]] = {}
        self._lock = Lock()

    def join(self, thread_id: str, task_id: str, number: int, wake: Callable[[], None]) -> None:
        """Wait for a thread: `wake` is called, from any thread, when it is time to ask for it again."""
        with self._lock:
            self._waiting.setdefault(thread_id, {})[task_id] = (number, wake)

    def leave(self, thread_id: str, task_id: str) -> None:
        """Wait no longer; whoever waits next is to ask."""
        with self._lock:
            waiting = self._waiting.get(thread_id)
            if waiting is None or waiting.pop(task_id, None) is None:
                return
            if not waiting:
                del self._waiting[thread_id]
        self.wake_next(thread_id)

    def is_first(self, thread_id: str, task_id: str) -> bool:
        """Whether no other task of this process waits for the thread before this one."""
        return self._first(thread_id) == task_id

    def wake_next(self, thread_id: str) -> None:
        """Let the first who waits for a thread ask again."""
        with self._lock:
            waiting = self._waiting.get(thread_id)
            wake = min(waiting.values(), key=_number)[1] if waiting else None
        if wake is not None:
            wake()

    def wake_next_of_all(self) -> None:
        """Let the first of every thread ask again."""
        for thread_id in list(self._waiting):
            self.wake_next(thread_id)

    def _first(self, thread_id: str) -> str | None:
        with self._lock:
            waiting = self._waiting.get(thread_id, {})
            return min(waiting, key=lambda task_id: waiting[task_id][0], default=None)


def _number(waiting: tuple[int, Callable[[], None]]) -> int:
    return waiting[0]


@mutable
class AdmissionHooks:
    """What a task needs on its way into its thread, from whoever drives it.

    Args:
        ask: asks the store for the thread.
        record: journals an event and has it written soon.
        read_history: begins the task with the words its thread holds at a version.
        interrupt: stops a task that has the thread.
        look_after: sees to a task that nobody drives here and that could not be given back.
    """

    ask: Callable[[OnBusyThread], Awaitable[QueuePosition | None]]
    record: Callable[[e.Event], None]
    read_history: Callable[[int], Awaitable[None]]
    interrupt: Callable[[str], Awaitable[None]]
    look_after: Callable[[str], Awaitable[None]]


class ThreadAdmission:
    """One task on its way into its thread.

    Args:
        place: what the store said when the task was made or claimed; None if it was not asked.
        how: what to do when other tasks are driven there.
    """

    def __init__(
        self,
        line: ThreadQueue,
        state: TaskState,
        how: OnBusyThread,
        place: QueuePosition | None,
        ways: AdmissionHooks,
    ) -> None:
        self._line = line
        self._state = state
        self._how: OnBusyThread = how
        self._place = place
        self._ways = ways
        self._waits = False
        self.stirred = False
        """it is time to ask again"""

    async def enter(self, wake: Callable[[], None]) -> bool:
        """Ask for the thread; True when the task has it. Else it stands in line, and `wake` tells when to ask again.

        Raises `ThreadBusy`.
        """
        self.stirred = False
        place = self._place or await self._ways.ask("enqueue" if self._waits else self._how)
        self._place = None
        if place is not None and not place.held and not self._waits:
            place = await self._line_up(place, wake)
        if place is not None and not place.held:
            for task_id in place.holders:
                await self._ways.look_after(task_id)
            return False
        self.leave()
        if place is not None:
            await self._begin(place.version)
        return True

    async def _line_up(self, place: QueuePosition, wake: Callable[[], None]) -> QueuePosition | None:
        """Do for the first time what is to be done about a busy thread; return the task's place after that."""
        state, how = self._state, self._how
        if how == "parallel":
            return await self._ways.ask(how)
        inside = next((task_id for task_id in place.holders if task_id in ENCLOSING_TASKS.get()), None)
        if how == "reject" or inside is not None:
            raise _busy(state, place, inside)
        if how == "interrupt":
            place = await self._ways.ask(how) or place
        self._line.join(state.thread, state.task_id, place.number, lambda: self._stir(wake))
        self._waits = True
        self.stirred = (
            True  # the thread may have become free just before this task stood where it can be woken
        )
        if not place.held:
            self._ways.record(e.ThreadAwaited(place.holders))
            for task_id in place.holders if how == "interrupt" else ():
                await self._ways.interrupt(task_id)
        return place

    async def _begin(self, version: int) -> None:
        """Start from the thread's present words, unless the task has begun: then its words stay what they were."""
        state = self._state
        if not state.began and state.forked_from is None and version != state.base:
            await self._ways.read_history(version)
            self._ways.record(e.ThreadEntered(version))
        elif state.in_line:
            self._ways.record(e.ThreadEntered())

    def _stir(self, wake: Callable[[], None]) -> None:
        self.stirred = True
        wake()

    @property
    def is_first(self) -> bool:
        """Whether no other task of this process waits before this one."""
        return self._line.is_first(self._state.thread, self._state.task_id)

    def leave(self) -> None:
        """Stand in line no longer."""
        if self._waits:
            self._line.leave(self._state.thread, self._state.task_id)


def _busy(state: TaskState, place: QueuePosition, inside: str | None) -> ThreadBusy:
    holder = inside or (place.holders[0] if place.holders else "")
    message = f"thread {state.thread!r} is held by task {holder}, so task {state.task_id} cannot begin"
    if inside is not None:
        message = (
            f"thread {state.thread!r} is held by task {holder}, of which this call is a part: it would wait for "
            "itself. Use another thread_id, RunOptions(on_busy_thread='parallel'), or start() without waiting"
        )
    return ThreadBusy(message, task_id=holder, thread_id=state.thread)
