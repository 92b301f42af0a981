"""Where sync tools run: a process-wide pool of daemon threads that survives tools which never end.

A thread cannot be killed. A call that is not waited for any more is therefore *abandoned*: its thread is listed until
it really ends, and a limit on abandoned threads turns a stall of everything into an error of one call
(`core/abandoned.py`).
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
"""How many calls run in threads at the same time; more wait for a free thread.

A call that runs an agent, and so waits for calls of that agent's, lends its place to one of them after the other.
"""

IDLE_SECONDS = 30.0
"""A thread without work for so long ends."""


@frozen
class _Outcome(Generic[T]):
    value: T | None = None
    error: BaseException | None = None


class Job(Generic[T]):
    """One call on its way through a thread. Its work asks `stopping` now and then, and ends early when true."""

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
        """the call whose work, in its own thread, came to this one: it waits for it"""

        self.lends_to: Job[Any] | None = None
        """the call that runs in its place"""

        self.on_loan = False
        """whether it runs in the place of its caller, and not in one of the pool's"""

    def run(self) -> _Outcome[T]:
        """Do the work in the calling thread; an error it raises is an outcome."""
        self.context.run(current_job.set, self)
        self.thread = threading.get_ident()
        try:
            return _Outcome(self.context.run(self.work, self))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller who waits, in its own loop
            return _Outcome(error=error)
        finally:
            self.context.run(current_job.set, None)  # no cycle through the context

    def report(self, outcome: _Outcome[T]) -> None:
        """Wake the loop that waits, if it still runs."""
        try:
            self.loop.call_soon_threadsafe(self._settle, outcome)
        except RuntimeError:
            return  # the loop is closed: no caller waits any more

    def _settle(self, outcome: _Outcome[T]) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


current_job: contextvars.ContextVar[Job[Any] | None] = contextvars.ContextVar("treadle_job", default=None)
"""The job whose work runs here: how code deep inside it learns that it is to end."""


class _Pool:
    """Threads made on demand, ended when idle, replaced when abandoned."""

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
        """Take back a job that no thread has begun."""
        with self._wake:
            if job.started:
                return False
            self._waiting.remove(job)
            return True

    def abandon(self, job: Job[T]) -> _Outcome[T] | None:
        """Abandon a job's thread; or return the outcome, if there is one by now."""
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
        """See to it that what waits gets a thread; whether there is one for all of it. The lock is held."""
        if self._idle >= len(self._waiting):
            self._wake.notify()
        elif self._waiting and self._threads < MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._work, name="treadle-tools", daemon=True).start()
        else:
            return not self._waiting
        return True

    def _lend(self, caller: Job[Any]) -> None:
        """Begin a call in the place of the one that waits for it; the lock is held.

        Without that, calls that wait for calls of their own could take all places, and none would ever end.
        """
        job = next((job for job in self._waiting if job.caller is caller), None)
        if job is not None and caller.outcome is None and caller.lends_to is None:
            self._waiting.remove(job)
            job.started, job.on_loan, caller.lends_to = True, True, job
            self._on_loan += 1
            threading.Thread(target=self._work_on_loan, args=(job,), daemon=True).start()

    def _give_back(self, job: Job[Any]) -> None:
        """Give a place back to the call that lent it; the lock is held."""
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
                return  # its place in the pool was given away
            job.report(outcome)
            me.name = "treadle-tools"
            del job, outcome  # an idle thread holds on to nothing

    def _work_on_loan(self, job: Job[Any]) -> None:
        threading.current_thread().name = f"treadle-tools: {job.names[0]} {job.names[2]}"
        outcome = job.run()
        if not self._is_abandoned(job, outcome):
            with self._wake:
                self._give_back(job)
            job.report(outcome)

    def _is_abandoned(self, job: Job[T], outcome: _Outcome[T]) -> bool:
        """Record the outcome of a job; return whether it was abandoned before."""
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
    """A forked child has none of its parent's threads, so it begins with a pool of its own."""
    global _pool, _pool_lock  # noqa: PLW0603
    _pool = None
    _pool_lock = threading.Lock()


def abandoned() -> tuple[AbandonedCall, ...]:
    """Return the abandoned calls that still run in their threads."""
    return _pool.abandoned() if _pool is not None else ()


def at_work() -> int:
    """Return how many calls are in threads just now, or wait for one; abandoned calls do not count."""
    return _pool.at_work() if _pool is not None else 0


async def in_thread(
    work: Callable[[Job[T]], T],
    *,
    tool: str,
    task_id: str,
    call_id: str,
    on_left_behind: Callable[[Callable[[], bool]], None] | None = None,
) -> T:
    """Return `work(job)`, done in a thread with the caller's context variables.

    When cancelled it tells the job to stop and goes on waiting, so that what the thread did is known; when
    cancelled again it lists the call as abandoned; `on_left_behind` then gets a function that says whether it
    still runs. Work no thread has begun is withdrawn at once.

    Raises:
        ToolError: too many abandoned calls still run.
    """
    job = Job(work, (tool, task_id, call_id))
    pool = _the_pool()
    pool.submit(job)
    try:
        outcome = await asyncio.shield(job.future)
    except asyncio.CancelledError as cut:
        where = HungThread(stack_of_thread(job.thread)) if cut.args == ("timeout",) else cut.__cause__
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
                raise again from where
        if isinstance(outcome.error, asyncio.CancelledError):
            raise cut from where  # the work stopped because it was asked to
    if outcome.error is not None:
        try:
            raise contained(outcome.error)
        finally:
            del outcome  # no cycle through the traceback
    return outcome.value  # pyright: ignore[reportReturnType]
