"""The writer thread: the only thread of a process that writes to a store, a group of items at a time.

Theory of operation
-------------------

A durable transaction costs a flush of the disk. Commits of concurrent tasks share one. While the thread writes a
group, event loops queue more items, and the next group takes all of them.

    event loop                     writer thread
    submit(item) ---> queue ---+
    submit(item) ---> queue ---+--> _serve: take all that is queued, up to GROUP_SIZE
                                      _write(group): one transaction, a result for each item
    done(result) <--- one call <----  _deliver: one `call_soon_threadsafe` for each event loop
                      a loop          the queue stays empty for `_wait_seconds`: `_run_due_work`

States of a writer:

    opening   `ready` is pending; items may be queued already
    running   `ready` is done; the thread takes groups
    closing   `closing` is the reason; `submit` raises it, and the thread writes the items queued before
    stopped   `stopped` is done; the thread has ended

Invariant: each item that `submit` accepted gets exactly one call of `done`, in its own event loop, in the order of
submission. It gets a result, or the error that stopped it. An error in `_write` is the result of its group, and the
thread goes on.

A newer version may migrate an open store. A writer reads the format again with each heartbeat. Once the tables are too
new for this version to write, it is `outdated`. Then it refuses all items except commits of tasks that its process
owns, and tells the watchers to release these.

`BARRIER` is the operation of an item that writes nothing. Its `done` is called once all items before it are written. A
read waits for one, so that it sees the writes of its process.

A subclass implements a store: it opens, writes a group, does due work, and closes.

When the interpreter exits, `RunningWriters` stops all writers of this process and waits for them, for at most
`EXIT_SECONDS`. A child made by fork has the memory of its parent but not its threads. A writer belongs to the process
`pid`. The child gets its parent's open stores from `RunningWriters.inherited`.
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

from treadle.errors import Fenced, StoreFormatError, StoreUnavailable, TreadleError
from treadle.ports import StoreChanges, Wake
from treadle.stores.watchers import Watchers

GROUP_SIZE = 512
EXIT_SECONDS = 2.0

Done = Callable[[Any], None]


class Item(NamedTuple):
    """An item to write: the name of an operation, its argument, and the callback with its event loop."""

    operation: str
    argument: Any = None
    done: Done | None = None
    loop: AbstractEventLoop | None = None


BARRIER = ""
"""The operation of an item that writes nothing; it is done once all items before it are."""


class WriterThread:
    """Writes queued items in a thread of its own, which also opens the store, so that a constructor does not block.

    Args:
        name: name of the file or database, for errors and for the thread.
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
        self.outdated: StoreFormatError | None = None
        """the error of writes to other tasks than owned ones, once a newer version migrated the open store"""

        self._lock = Lock()
        self._watchers = Watchers()
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        for future in (self.ready, self.stopped):
            future.set_running_or_notify_cancel()  # a cancelled waiter must not cancel it for all
        RunningWriters.add(self)
        Thread(target=self._run, name=f"treadle-writer {name}", daemon=True).start()

    def submit(self, item: Item) -> None:
        """Queue an item; its `done` is called exactly once. Raises `StoreUnavailable` once the writer closes."""
        with self._lock:
            if self.closing is not None:
                raise self.closing
            self.queued += 1
            self._put(item)

    def stop(self, reason: StoreUnavailable) -> None:
        """Accept no more items, write the queued ones, and end."""
        with self._lock:
            if self.closing is None:
                self.closing = reason
                self._put(None)

    def watch(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` in the thread soon after other processes wrote; return a function that stops it."""
        end = self._watchers.add(wake)
        self._put(Item(BARRIER))  # the thread may be waiting without a timeout, or has to begin to listen
        return end

    def _leave(self, error: StoreFormatError) -> None:
        """Accept only commits of owned tasks from now on, and request their release; called in the thread."""
        if self.outdated is None:
            self.outdated = error
            self._watchers.wake(StoreChanges(None, outdated=error))

    def _refusal_of(self, item: Item) -> StoreFormatError | None:
        """Return the error of an item if a newer version migrated the store."""
        if self.outdated is None or item.operation in (BARRIER, "disown"):
            return None
        is_of_owned_task = item.operation == "commit" and item.argument.create is None
        return None if is_of_owned_task else self.outdated

    # -------------------------------------------------------------------- defined by a store, called in the thread

    def _open(self) -> None:
        """Open the store; raise a `StoreError`, or an error that `_typed` turns into one."""
        raise NotImplementedError

    def _write(self, group: list[Item]) -> list[Any]:
        """Write a group and return each item's result, or the exception that stopped it."""
        raise NotImplementedError

    def _typed(self, error: Exception) -> Exception:
        """Return the error of the port for an unexpected one."""
        raise NotImplementedError

    def _wait_seconds(self) -> float | None:
        """Return the seconds without an item after which to call `_run_due_work`; None for never."""
        raise NotImplementedError

    def _run_due_work(self) -> None:
        """Do the work that is due while no item is queued."""
        raise NotImplementedError

    def _close_writer(self) -> None:
        """End the lease of this process and close the store."""
        raise NotImplementedError

    def _put(self, item: Item | None) -> None:
        self._queue.put(item)

    def _next_item(self, timeout: float | None) -> Item | None:
        """Wait for an item; raise `Empty` after `timeout` seconds. A writer may wait for a server too."""
        return self._queue.get(timeout=timeout)

    # -------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 (each waiting call must get the error)
            reason = error if isinstance(error, TreadleError) else self._typed(error)
            self._fail_queued(reason)
            self.ready.set_exception(reason)
            self.stopped.set_result(None)
            return
        self.ready.set_result(None)
        while self._serve():
            pass
        with suppress(Exception):  # all items are answered, and a lease that was not ended passes by itself
            self._close_writer()
        self.stopped.set_result(None)

    def _serve(self) -> bool:
        """Wait for a group and write it; return False after the last one."""
        try:
            first = self._next_item(self._wait_seconds())
        except Empty:
            with suppress(Exception):  # the thread must go on, and the next write reports the error
                self._run_due_work()
            return True
        group: list[Item] = []
        try:
            while first is not None and len(group) < GROUP_SIZE - 1:
                group.append(first)
                first = self._queue.get_nowait()
        except Empty:
            pass
        else:
            if first is not None:
                group.append(first)
        try:
            results = self._write(group)
        except Exception as error:  # noqa: BLE001 (the thread must go on, and each waiting call must get the error)
            results = [self._typed(error)] * len(group)
        self._deliver(group, results)
        return first is not None

    def _deliver(self, group: list[Item], results: list[Any]) -> None:
        """Deliver the results of a group, with one call for each event loop."""
        calls: dict[AbstractEventLoop, list[tuple[Done, Any]]] = {}
        for item, result in zip(group, results, strict=True):
            self.fenced += isinstance(result, Fenced)
            if item.done is not None and item.loop is not None:
                self.finished += 1
                calls.setdefault(item.loop, []).append((item.done, result))
        for loop, pairs in calls.items():
            try:
                loop.call_soon_threadsafe(_call_back, loop, pairs)
            except RuntimeError:  # that event loop is closed, so no call waits there
                continue

    def _fail_queued(self, reason: Exception) -> None:
        with self._lock:
            self.closing = reason if isinstance(reason, StoreUnavailable) else StoreUnavailable(str(reason))
        group: list[Item] = []
        while not self._queue.empty():
            if (item := self._queue.get_nowait()) is not None:
                group.append(item)
        self._deliver(group, [reason] * len(group))


def _call_back(loop: AbstractEventLoop, pairs: list[tuple[Done, Any]]) -> None:
    for callback, result in pairs:
        try:
            callback(result)
        except Exception as error:  # noqa: BLE001 (a failing callback must not keep the results of others)
            loop.call_exception_handler({"message": "a commit callback failed", "exception": error})


class RunningWriters:
    """The running writers of this process, which stop at its end and are remembered in its forks."""

    writers: ClassVar[WeakSet[WriterThread]] = WeakSet()
    inherited: ClassVar[set[str]] = set()
    """names of the writers that ran when this process was forked"""
    is_registered = False

    @classmethod
    def add(cls, writer: WriterThread) -> None:
        """Add a new writer."""
        if not cls.is_registered:
            cls.is_registered = True
            atexit.register(cls.stop_all)
            os.register_at_fork(after_in_child=cls.remember_parent)
        cls.writers.add(writer)

    @classmethod
    def stop_all(cls) -> None:
        """Write all queued items and stop, within `EXIT_SECONDS`."""
        deadline = time.monotonic() + EXIT_SECONDS
        own_writers = [writer for writer in cls.writers if writer.pid == os.getpid()]
        for writer in own_writers:
            writer.stop(StoreUnavailable(f"{writer.name}: the process is ending"))
        for writer in own_writers:
            wait([writer.stopped], max(0.0, deadline - time.monotonic()))

    @classmethod
    def remember_parent(cls) -> None:
        """Record, in the child, the stores that the parent had open."""
        cls.inherited |= {writer.name for writer in cls.writers if not writer.stopped.done()}
