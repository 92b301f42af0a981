"""The event loop in which a server drives tasks, apart from the loop in which it answers requests.

    main thread              HTTP: requests, streams, reads, commands to inboxes
    thread "treadle-driving" drives: models, tools, step functions, adopting, undo functions

A runner binds to no event loop: a verb drives in the loop of its caller. So what runs code of agents and tools is
called in this loop, and a tool that blocks it delays other tasks, but no stream, no command and no health check. What
only reads, or writes to the inbox of a task, stays in the loop of the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from treadle.errors import TreadleError

R = TypeVar("R")

_LOG = logging.getLogger("treadle.server")


class DrivingLoop:
    """An event loop in a thread of its own; the thread begins at the first use and is a daemon.

    Safe to use from any event loop and thread. After `close` the next use begins another thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closing: asyncio.Event | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in this loop and return what it returns, or raise what it raises.

        Cancelling the caller leaves the work alone: a lost connection stops no task. What it raises from then on goes
        to the log `treadle.server`, unless it is an error of Treadle, which the journal of the task tells.

        Args:
            work: is called in this loop and returns the coroutine.
        """
        ended = asyncio.wrap_future(self.begin(work))
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            ended.add_done_callback(_log_error)
            raise
        return ended.result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Begin to run a coroutine in this loop, and return a future of what it returns."""

        async def made_here() -> R:
            return await work()

        with self._lock:
            return asyncio.run_coroutine_threadsafe(made_here(), self._started())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            began = Event()
            self._thread = Thread(target=self._serve, args=(began,), name="treadle-driving", daemon=True)
            self._thread.start()
            began.wait()
        assert self._loop is not None
        return self._loop

    def _serve(self, began: Event) -> None:
        with asyncio.Runner() as runner:
            self._loop, self._closing = runner.get_loop(), asyncio.Event()
            began.set()
            runner.run(_until(self._closing))

    async def close(self) -> None:
        """Cancel what still runs in this loop, and return once its thread has ended."""
        with self._lock:
            loop, thread, closing = self._loop, self._thread, self._closing
            self._loop = self._thread = self._closing = None
        if loop is None or thread is None or closing is None:
            return
        loop.call_soon_threadsafe(closing.set)
        await asyncio.to_thread(thread.join)


async def _until(closing: asyncio.Event) -> None:
    await closing.wait()


def _log_error(ended: asyncio.Future[Any]) -> None:
    """Log the error of work for which no caller waits any more."""
    error = None if ended.cancelled() else ended.exception()
    if error is not None and not isinstance(error, TreadleError):
        _LOG.error("work for a request that was given up failed: %s", error, exc_info=error)
