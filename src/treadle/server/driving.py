"""The event loop in which a server drives tasks, separate from the loop in which it answers requests.

    main thread              HTTP: requests, streams, reads, commands to inboxes
    thread "treadle-driving" drives: models, tools, step functions, adoption, undo functions

A runner is not bound to an event loop: a verb drives in its caller's. So verbs that run code of agents and tools are
called in this loop. A tool that blocks it delays other tasks, but no stream, command or health check. Verbs that read,
or write to a task's inbox, run in the request's loop.
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
    """An event loop in its own daemon thread, which starts at the first use.

    It may be used from any event loop and thread. After `close` the next use starts another thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closing: asyncio.Event | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in this loop; return its result or raise its error.

        A cancellation of the caller does not cancel the work, so a lost connection stops no task. Later errors go to
        the log `treadle.server`, except errors of Treadle, which are in the task's journal.

        Args:
            work: called in this loop; returns the coroutine.
        """
        ended = asyncio.wrap_future(self.begin(work))
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError:
            ended.add_done_callback(_log_error)
            raise
        return ended.result()

    def begin(self, work: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Start a coroutine in this loop, and return the future of its result."""

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
        """Cancel all work in this loop, and wait until its thread has ended."""
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
    """Log the error of work without a waiting caller."""
    error = None if ended.cancelled() else ended.exception()
    if error is not None and not isinstance(error, TreadleError):
        _LOG.error("work for a request that was given up failed: %s", error, exc_info=error)
