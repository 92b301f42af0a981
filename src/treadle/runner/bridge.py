"""The bridge from code without asyncio to the runner: a private event loop in a thread of its own.

It also works inside a running event loop, since the calling thread only waits. The first call creates the loop, whose
thread is a daemon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, Thread
from typing import Any, TypeVar

R = TypeVar("R")
T = TypeVar("T")


class Bridge:
    """Runs coroutines in a loop of its own and waits for them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Return the result of a coroutine. Ctrl-C cancels it, waits until it has ended, and is raised again."""
        loop, ended, context = self._running(), Future[R](), copy_context()
        if _is_running(loop):
            # Called from code that runs in this very loop, which would wait for itself.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(context.run, asyncio.run, work).result()
        tasks: list[asyncio.Task[R]] = []

        def begin() -> None:
            task = loop.create_task(work, context=context)
            tasks.append(task)
            task.add_done_callback(pass_on)

        def pass_on(task: asyncio.Task[R]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(task.result())

        loop.call_soon_threadsafe(begin)
        try:
            return ended.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
            ended.exception()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                Thread(target=_run, args=(self._loop,), name="treadle-sync", daemon=True).start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until the process ends, in spite of errors raised in it."""
    while True:
        # The caller of the coroutine gets SystemExit like any error; it must not end the other calls.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


BRIDGE = Bridge()
"""Shared by all runners of the process: it holds no state of theirs."""


def one_by_one(events: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an asynchronous iterator, each fetched on demand; none of them may be None."""

    async def following() -> T | None:
        return await anext(events, None)

    while (event := BRIDGE.run(following())) is not None:
        yield event
