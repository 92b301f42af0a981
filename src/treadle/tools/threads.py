"""Run sync tools in a process-wide pool of daemon threads, which survives tools that never return.

Python cannot kill a thread. If the caller stops waiting, the call is *abandoned*: its thread is listed until it ends.
A limit on abandoned threads makes new calls fail, instead of stalling the whole process (`core/abandoned.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from treadle.core.abandoned import AbandonedCall, AbandonedCalls
from treadle.core.data import frozen
from treadle.core.tracebacks import HungThread, stack_of_thread
from treadle.tools.faults import contained

T = TypeVar("T")

_LOG: Final = logging.getLogger("treadle.tools")

MAX_THREADS = 32
"""Most calls that run in threads at the same time. Further calls wait for a free thread.

A call that runs an agent waits for that agent's calls. It lends its place to one of them at a time.
"""

IDLE_SECONDS = 30.0
"""Seconds without work after which a thread ends."""


@frozen
class _Outcome(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


class Job(Generic[T]):
    """One call in a thread. Its work polls `stopping`, and returns early once that is true."""

    __slots__ = (
        *("context", "future", "loop", "names", "outcome", "started", "stopping", "work"),
        *("caller", "lends_to", "on_loan", "thread"),
    )

    def __init__(self, work: Callable[[Job[T]], T], names: tuple[str, str, str]) -> None:
        self.work = work
        self.names = names  # tool, task, call
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[_Outcome[T]] = self.loop.create_future()
        self.context = contextvars.copy_context()
        self.started = False
        self.stopping = False
        self.outcome: _Outcome[T] | None = None
        self.thread = 0
        caller = current_job.get()
        self.caller = caller if caller is not None and caller.outcome is None else None
        """the call that made this one from its own thread and waits for it"""

        self.lends_to: Job[Any] | None = None
        """the call that runs in this call's place"""

        self.on_loan = False
        """whether this call runs in its caller's place, not in one of the pool's"""

    def run(self) -> _Outcome[T]:
        """Run the work in the calling thread. An error that it raises is part of the outcome."""
        self.context.run(current_job.set, self)
        self.thread = threading.get_ident()
        try:
            return _Outcome(self.context.run(self.work, self))
        except BaseException as error:  # noqa: BLE001 - re-raised in the caller's event loop
            return _Outcome(error=error)
        finally:
            self.context.run(current_job.set, None)  # avoids a reference cycle through the context

    def report(self, outcome: _Outcome[T]) -> None:
        """Wake the waiting event loop, if it still runs."""
        try:
            self.loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            return  # the loop is closed, so no caller waits

    def _settle(self, outcome: _Outcome[T]) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


current_job: contextvars.ContextVar[Job[Any] | None] = contextvars.ContextVar("treadle_job", default=None)
"""The job that runs in this thread. Nested code polls its `stopping`."""


class _Pool:
    """Threads that are started on demand, end when idle, and are replaced when abandoned."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._waiting: deque[Job[Any]] = deque()
        self._threads = 0
        self._on_loan = 0
        self._idle = 0
        self._abandoned = AbandonedCalls(" in threads")

    def submit(self, job: Job[Any]) -> None:
        with self._wake:
            self._abandoned.refuse_if_too_many()
            self._waiting.append(job)
            if not self._serve() and job.caller is not None:
                self._lend(job.caller)

    def withdraw(self, job: Job[Any]) -> bool:
        """Remove a job that has not started, and return whether it was removed."""
        with self._wake:
            if job.started:
                return False
            self._waiting.remove(job)
            return True

    def abandon(self, job: Job[T]) -> _Outcome[T] | None:
        """Abandon a job's thread. If the job has ended meanwhile, return its outcome instead."""
        with self._wake:
            if job.outcome is None:
                call = AbandonedCall(*job.names, since=time.monotonic())
                self._abandoned.add(job, call, lambda: job.outcome is None)
                if job.on_loan:
                    self._give_back(job)
                else:
                    self._threads -= 1
                self._serve()
            return job.outcome

    def abandoned(self) -> tuple[AbandonedCall, ...]:
        with self._wake:
            return self._abandoned.running()

    def at_work(self) -> int:
        with self._wake:
            return len(self._waiting) + self._threads + self._on_loan - self._idle

    def _serve(self) -> bool:
        """Wake or start a thread for waiting jobs, and return whether there is one for each. The lock is held."""
        if self._idle >= len(self._waiting):
            self._wake.notify()
        elif self._waiting and self._threads < MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name="treadle-tools", daemon=True).start()
        else:
            return not self._waiting
        return True

    def _lend(self, caller: Job[Any]) -> None:
        """Start a nested call in its waiting caller's place. The lock is held.

        Without lending, calls that wait for nested calls could take all places and deadlock.
        """
        job = next((job for job in self._waiting if job.caller is caller), None)
        if job is not None and caller.outcome is None and caller.lends_to is None:
            self._waiting.remove(job)
            job.started, job.on_loan, caller.lends_to = True, True, job
            self._on_loan += 1
            threading.Thread(target=self._work_on_loan, args=(job,), daemon=True).start()

    def _give_back(self, job: Job[Any]) -> None:
        """Return a place to the call that lent it. The lock is held."""
        self._on_loan -= 1
        if job.caller is not None:
            job.caller.lends_to = None
            self._lend(job.caller)

    def _next(self) -> Job[Any] | None:
        with self._wake:
            self._idle += 1
            try:
                while not self._waiting:
                    if not self._wake.wait(IDLE_SECONDS) and not self._waiting:
                        self._threads -= 1
                        return None
            finally:
                self._idle -= 1
            job = self._waiting.popleft()
            job.started = True
            return job

    def _work(self) -> None:
        me = threading.current_thread()
        while (job := self._next()) is not None:
            me.name = f"treadle-tools: {job.names[0]} {job.names[2]}"
            outcome = job.run()
            if self._is_abandoned(job, outcome):
                return  # abandon() already freed its place in the pool
            job.report(outcome)
            me.name = "treadle-tools"
            del job, outcome  # an idle thread keeps no references

    def _work_on_loan(self, job: Job[Any]) -> None:
        threading.current_thread().name = f"treadle-tools: {job.names[0]} {job.names[2]}"
        outcome = job.run()
        if not self._is_abandoned(job, outcome):
            with self._wake:
                self._give_back(job)
            job.report(outcome)

    def _is_abandoned(self, job: Job[T], outcome: _Outcome[T]) -> bool:
        """Record a job's outcome, and return whether the job was abandoned before."""
        with self._wake:
            job.outcome = outcome
            call = self._abandoned.remove(job)
        if call is not None:
            _LOG.warning("%s", call.late_text(time.monotonic()))
        return call is not None


_pool: _Pool | None = None
_pool_lock = threading.Lock()


def _the_pool() -> _Pool:
    global _pool  # noqa: PLW0603 - one pool per process, made at first use
    with _pool_lock:
        if _pool is None:
            _pool = _Pool()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_forget)
        return _pool


def _forget() -> None:
    """Start a new pool in a forked child, which has none of its parent's threads."""
    global _pool, _pool_lock  # noqa: PLW0603
    _pool = None
    _pool_lock = threading.Lock()


def abandoned() -> tuple[AbandonedCall, ...]:
    """Return the abandoned calls whose threads still run."""
    return _pool.abandoned() if _pool is not None else ()


def at_work() -> int:
    """Return how many calls run in threads or wait for one. Abandoned calls do not count."""
    return _pool.at_work() if _pool is not None else 0


async def in_thread(
    work: Callable[[Job[T]], T],
    *,
    tool: str,
    task_id: str,
    call_id: str,
    on_left_behind: Callable[[Callable[[], bool]], None] | None = None,
) -> T:
    """Run `work(job)` in a thread with the caller's context variables, and return its result.

    The first cancellation sets `job.stopping` and waits, so that the work's outcome is known. Work that has not started
    is withdrawn at once. A second cancellation abandons the call: `on_left_behind` receives a function that returns
    whether the call still runs.

    Raises:
        ToolError: too many abandoned calls still run.
    """
    job = Job(work, (tool, task_id, call_id))
    pool = _the_pool()
    pool.submit(job)
    try:
        outcome = await asyncio.shield(job.future)
    except asyncio.CancelledError as cut:
        cause = HungThread(stack_of_thread(job.thread)) if cut.args == ("timeout",) else cut.__cause__
        job.stopping = True
        if pool.withdraw(job):
            raise
        try:
            outcome = await asyncio.shield(job.future)
        except asyncio.CancelledError as again:
            outcome = pool.abandon(job)
            if outcome is None:
                if on_left_behind is not None:
                    on_left_behind(lambda: job.outcome is None)
                raise again from cause
        if isinstance(outcome.error, asyncio.CancelledError):
            raise cut from cause  # the work stopped as requested
    if outcome.error is not None:
        try:
            raise contained(outcome.error)
        finally:
            del outcome  # avoids a reference cycle through the traceback
    return outcome.value  # pyright: ignore[reportReturnType]
