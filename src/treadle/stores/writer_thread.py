"""The one thread of a process that writes to a store: takes all that waits and writes it as one group.

A durable transaction costs a disk flush; commits of concurrent tasks share it. What a group is written to, and how, is
said by the store's own subclass.
"""

from __future__ import annotations

import atexit
import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

from treadle.errors import Fenced, StoreUnavailable, TreadleError

GROUP = 512
EXIT_SECONDS = 2.0

Done = Callable[[Any], None]


class Item(NamedTuple):
    """One thing to write: the name of an operation, its argument, and whom to tell in which loop."""

    operation: str
    argument: Any = None
    done: Done | None = None
    loop: AbstractEventLoop | None = None


NOTHING = ""
"""The operation of an item that only waits for those before it."""


class WriterThread:
    """Writes what is queued, in its thread; opens there too, so making one does not block.

    Args:
        name: of what it writes to, for errors and for the thread.
    """

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.name = name
        self.ready: Future[None] = Future()
        self.stopped: Future[None] = Future()
        self.closing: StoreUnavailable | None = None
        self.queued = 0
        self.finished = 0
        self.fenced = 0
        self._lock = Lock()
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        for future in (self.ready, self.stopped):
            future.set_running_or_notify_cancel()  # so that a waiter who is cancelled cannot cancel it for all
        Exit.add(self)
        Thread(target=self._run, name=f"treadle-writer {name}", daemon=True).start()

    def submit(self, item: Item) -> None:
        """Queue an item; its `done` is called exactly once. Raises `StoreUnavailable` once the writer closes."""
        with self._lock:
            if self.closing is not None:
                raise self.closing
            self.queued += 1
            self._put(item)

    def stop(self, reason: StoreUnavailable) -> None:
        """Take nothing more, write what is queued, end."""
        with self._lock:
            if self.closing is None:
                self.closing = reason
                self._put(None)

    # --------------------------------------------------------------------------- what a store says, in the thread

    def _open(self) -> None:
        """Open what is written to; raise a `StoreError`, or what `_typed` makes one of."""
        raise NotImplementedError

    def _write(self, group: list[Item]) -> list[Any]:
        """Write a group and return each item's result, or the exception that stopped it."""
        raise NotImplementedError

    def _typed(self, error: Exception) -> Exception:
        """Return what an unexpected error is to those who wait."""
        raise NotImplementedError

    def _pause(self) -> float | None:
        """Return how many seconds to wait for something to write before `_look_around`; None: until there is."""
        raise NotImplementedError

    def _look_around(self) -> None:
        """Do what is due when nothing is queued."""
        raise NotImplementedError

    def _end(self) -> None:
        """Say goodbye and close."""
        raise NotImplementedError

    def _put(self, item: Item | None) -> None:
        self._queue.put(item)

    def _next(self, timeout: float | None) -> Item | None:
        """Wait for something to write; raise `Empty` after `timeout` seconds."""
        return self._queue.get(timeout=timeout)

    # -------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 (whatever it was, those who wait must hear it)
            reason = error if isinstance(error, TreadleError) else self._typed(error)
            self._fail_queued(reason)
            self.ready.set_exception(reason)
            self.stopped.set_result(None)
            return
        self.ready.set_result(None)
        while self._serve():
            pass
        with suppress(
            Exception
        ):  # what was queued is answered; a driver without a goodbye is found dead all the same
            self._end()
        self.stopped.set_result(None)

    def _serve(self) -> bool:
        """Wait for a group and write it; False when it was the last."""
        try:
            first = self._next(self._pause())
        except Empty:
            with suppress(Exception):  # the thread must go on: whoever writes next is told what is wrong
                self._look_around()
            return True
        group: list[Item] = []
        try:
            while first is not None and len(group) < GROUP - 1:
                group.append(first)
                first = self._queue.get_nowait()
        except Empty:
            pass
        else:
            if first is not None:
                group.append(first)
        try:
            results = self._write(group)
        except Exception as error:  # noqa: BLE001 (the thread must go on, and those who wait must hear)
            results = [self._typed(error)] * len(group)
        self._complete(group, results)
        return first is not None

    def _complete(self, group: list[Item], results: list[Any]) -> None:
        """Hand out results with one call per event loop."""
        calls: dict[AbstractEventLoop, list[tuple[Done, Any]]] = {}
        for item, result in zip(group, results, strict=True):
            self.fenced += isinstance(result, Fenced)
            if item.done is not None and item.loop is not None:
                self.finished += 1
                calls.setdefault(item.loop, []).append((item.done, result))
        for loop, pairs in calls.items():
            try:
                loop.call_soon_threadsafe(_call, loop, pairs)
            except RuntimeError:  # that loop is closed: nobody waits for these any more
                continue

    def _fail_queued(self, reason: Exception) -> None:
        with self._lock:
            self.closing = reason if isinstance(reason, StoreUnavailable) else StoreUnavailable(str(reason))
        group: list[Item] = []
        while not self._queue.empty():
            if (item := self._queue.get_nowait()) is not None:
                group.append(item)
        self._complete(group, [reason] * len(group))


def _call(loop: AbstractEventLoop, pairs: list[tuple[Done, Any]]) -> None:
    for done, result in pairs:
        try:
            done(result)
        except Exception as error:  # noqa: BLE001 (one bad callback must not keep the others from hearing)
            loop.call_exception_handler({"message": "a commit callback failed", "exception": error})


class Exit:
    """Which writers run, for the end of the process and for its forks."""

    writers: ClassVar[WeakSet[WriterThread]] = WeakSet()
    inherited: ClassVar[set[str]] = set()
    """names of what was open when this process was forked"""
    hooked = False

    @classmethod
    def add(cls, writer: WriterThread) -> None:
        """Take note of a writer that begins."""
        if not cls.hooked:
            cls.hooked = True
            atexit.register(cls.finish)
            os.register_at_fork(after_in_child=cls.forked)
        cls.writers.add(writer)

    @classmethod
    def finish(cls) -> None:
        """Write what is queued, for a bounded time."""
        deadline = time.monotonic() + EXIT_SECONDS
        mine = [writer for writer in cls.writers if writer.pid == os.getpid()]
        for writer in mine:
            writer.stop(StoreUnavailable(f"{writer.name}: the process is ending"))
        for writer in mine:
            wait([writer.stopped], max(0.0, deadline - time.monotonic()))

    @classmethod
    def forked(cls) -> None:
        """Take note, in the child, of what the parent had open."""
        cls.inherited |= {writer.name for writer in cls.writers if not writer.stopped.done()}
