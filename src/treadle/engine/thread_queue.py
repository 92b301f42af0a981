"""Admission of tasks to their threads, at once or queued after the tasks that are driven there.

The store decides which task holds a thread. This module waits for it. Of the tasks of this process that wait for one
thread, only the first asks the store. It asks when the thread may have become free. That is after a task of this
process left the thread, and after a write of another process. It also asks periodically, since a killed driver does not
write.
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
from treadle.core.ids import in_tenant
from treadle.core.state import TaskState
from treadle.errors import ThreadBusy
from treadle.ports import OnBusyThread, QueuePosition

RECHECK_SECONDS: Final = 0.5
"""Seconds after which the first task of a queue asks again, if it is not woken earlier."""

ENCLOSING_TASKS: ContextVar[tuple[str, ...]] = ContextVar("treadle_inside", default=())
"""The tasks that the running code is part of, with their tenants' prefixes.

A tool of one of them that waited for its thread would wait for itself.
"""


def wait_for_thread(state: TaskState, rules: Rules) -> Decision:
    """Return a wait for the thread, as the worker of a task that has not entered its thread yet."""
    return Wait("thread")


class ThreadQueue:
    """The tasks of this process that wait for their threads."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, tuple[int, Callable[[], None]]]] = {}
        self._lock = Lock()

    def join(self, thread_id: str, task_id: str, number: int, wake: Callable[[], None]) -> None:
        """Queue a task for a thread. `wake` is called in any thread when the task should ask again."""
        with self._lock:
            self._waiting.setdefault(thread_id, {})[task_id] = (number, wake)

    def leave(self, thread_id: str, task_id: str) -> None:
        """Remove a task from the queue, and let the next one ask for the thread."""
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
        """Let the first task in the queue of a thread ask again."""
        with self._lock:
            waiting = self._waiting.get(thread_id)
            wake = min(waiting.values(), key=_number)[1] if waiting else None
        if wake is not None:
            wake()

    def wake_next_of_all(self) -> None:
        """Let the first task of every queue ask again."""
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
    """The callbacks with which a task enters its thread. Its driver provides them.

    Args:
        ask: asks the store for the thread.
        record: journals an event and submits it soon.
        read_history: loads the messages of the thread at a version as the task's history.
        interrupt: stops a task that holds the thread.
        look_after: releases a task that is not driven here and could not be released earlier.
    """

    ask: Callable[[OnBusyThread], Awaitable[QueuePosition | None]]
    record: Callable[[e.Event], None]
    read_history: Callable[[int], Awaitable[None]]
    interrupt: Callable[[str], Awaitable[None]]
    look_after: Callable[[str], Awaitable[None]]


class ThreadAdmission:
    """The admission of one task to its thread.

    Args:
        position: the store's answer at the creation or claim of the task. None: it was not asked.
        how: the policy for a busy thread.
        tenant: the tenant of the task.
    """

    def __init__(
        self,
        queue: ThreadQueue,
        state: TaskState,
        how: OnBusyThread,
        position: QueuePosition | None,
        hooks: AdmissionHooks,
        tenant: str = "",
    ) -> None:
        self._tenant = tenant
        self._queue = queue
        self._state = state
        self._how: OnBusyThread = how
        self._position = position
        self._hooks = hooks
        self._waits = False
        self.recheck_wanted = False
        """whether to ask again now"""

    async def enter(self, wake: Callable[[], None]) -> bool:
        """Ask for the thread, and return whether the task has it. If not, queue the task. `wake` is then called when it
        should ask again.

        Raises `ThreadBusy`.
        """
        self.recheck_wanted = False
        position = self._position or await self._hooks.ask("enqueue" if self._waits else self._how)
        self._position = None
        if position is not None and not position.held and not self._waits:
            position = await self._join_queue(position, wake)
        if position is not None and not position.held:
            for task_id in position.holders:
                await self._hooks.look_after(task_id)
            return False
        self.leave()
        if position is not None:
            await self._begin_with_history(position.version)
        return True

    async def _join_queue(self, position: QueuePosition, wake: Callable[[], None]) -> QueuePosition | None:
        """Handle a busy thread according to the options, and return the task's position afterwards."""
        state, how = self._state, self._how
        if how == "parallel":
            return await self._hooks.ask(how)
        enclosing = ENCLOSING_TASKS.get()
        inside = next((each for each in position.holders if in_tenant(self._tenant, each) in enclosing), None)
        if how == "reject" or inside is not None:
            raise _busy(state, position, inside)
        if how == "interrupt":
            position = await self._hooks.ask(how) or position
        self._queue.join(state.thread, state.task_id, position.number, lambda: self._request_recheck(wake))
        self._waits = True
        self.recheck_wanted = True  # the thread may have become free just before the task joined the queue
        if not position.held:
            self._hooks.record(e.ThreadAwaited(position.holders))
            for task_id in position.holders if how == "interrupt" else ():
                await self._hooks.interrupt(task_id)
        return position

    async def _begin_with_history(self, version: int) -> None:
        """Start from the current messages of the thread, unless the task has already begun with others."""
        state = self._state
        if not state.began and state.forked_from is None and version != state.base:
            await self._hooks.read_history(version)
            self._hooks.record(e.ThreadEntered(version, state.history_untrusted, state.history_exposed))
        elif state.in_line:
            self._hooks.record(e.ThreadEntered())

    def _request_recheck(self, wake: Callable[[], None]) -> None:
        self.recheck_wanted = True
        wake()

    @property
    def is_first(self) -> bool:
        """Whether no other task of this process waits before this one."""
        return self._queue.is_first(self._state.thread, self._state.task_id)

    def leave(self) -> None:
        """Leave the queue."""
        if self._waits:
            self._queue.leave(self._state.thread, self._state.task_id)


def _busy(state: TaskState, position: QueuePosition, inside: str | None) -> ThreadBusy:
    holder = inside or (position.holders[0] if position.holders else "")
    message = f"thread {state.thread!r} is held by task {holder}, so task {state.task_id} cannot begin"
    if inside is not None:
        message = (
            f"thread {state.thread!r} is held by task {holder}, of which this call is a part: it would wait for "
            "itself. Use another thread_id, RunOptions(on_busy_thread='parallel'), or start() without waiting"
        )
    return ThreadBusy(message, task_id=holder, thread_id=state.thread)
