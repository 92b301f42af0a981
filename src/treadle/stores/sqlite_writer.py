"""The one thread of a process that writes to a journal file: takes all that waits, writes it in one transaction.

`synchronous=FULL` costs a disk flush per transaction; commits of concurrent tasks share it. While somebody watches, the
same thread notices what other connections wrote: `data_version` of the writing connection ignores its own writes.
"""

from __future__ import annotations

import atexit
import os
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, ClassVar, NamedTuple
from weakref import WeakSet

import apsw

from treadle.errors import StoreUnavailable, TreadleError
from treadle.ports import Refused
from treadle.stores.drivers import HEARTBEAT_SECONDS, this_process
from treadle.stores.sqlite_journal import Journal
from treadle.stores.sqlite_schema import BUSY_MS, connect_writer, pragma, unavailable

GROUP = 512
POLL_SECONDS = 0.075
EXIT_SECONDS = 2.0
CHECKPOINT_MS = 200

Done = Callable[[Any], None]


class Item(NamedTuple):
    """One thing to write: the name of a `Journal` method, its argument, and whom to tell in which loop."""

    operation: str
    argument: Any = None
    done: Done | None = None
    loop: AbstractEventLoop | None = None


NOTHING = ""
"""The operation of an item that only waits for those before it."""


class Writer:
    """Owns the writing connection of a file. It opens in its thread, so making one does not block.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.pid = os.getpid()
        self.path = path
        self.ready: Future[None] = Future()
        self.stopped: Future[None] = Future()
        self.closing: StoreUnavailable | None = None
        self.queued = 0
        self.finished = 0
        self._lock = Lock()
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._watchers: dict[object, Callable[[Sequence[str]], None]] = {}
        self._beat = 0.0
        self._version: Any = None
        self._paths = (str(path), f"{path}-wal")
        self._files: list[tuple[int, int] | None] = []
        for future in (self.ready, self.stopped):
            future.set_running_or_notify_cancel()  # so that a waiter who is cancelled cannot cancel it for all
        _Exit.add(self)
        Thread(target=self._run, name=f"treadle-writer {path.name}", daemon=True).start()

    def submit(self, item: Item) -> None:
        """Queue an item; its `done` is called exactly once. Raises `StoreUnavailable` once the writer closes."""
        with self._lock:
            if self.closing is not None:
                raise self.closing
            self.queued += 1
            self._queue.put(item)

    def stop(self, reason: StoreUnavailable) -> None:
        """Take nothing more, write what is queued, end."""
        with self._lock:
            if self.closing is None:
                self.closing = reason
                self._queue.put(None)

    def watch(self, wake: Callable[[Sequence[str]], None]) -> Callable[[], None]:
        """Call `wake` soon after other connections wrote; return how to stop."""
        token = object()
        self._watchers[token] = wake
        self._queue.put(Item(NOTHING))  # the thread may be waiting without a timeout
        return lambda: self._watchers.pop(token, None) and None

    # -------------------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        try:
            connection = connect_writer(self.path)
        except Exception as error:  # noqa: BLE001 (whatever it was, those who wait must hear it)
            reason = error if isinstance(error, TreadleError) else unavailable(self.path, error)
            self._fail_queued(reason)
            self.ready.set_exception(reason)
            self.stopped.set_result(None)
            return
        self._connection = connection
        self._journal = Journal(connection, this_process())
        self.ready.set_result(None)
        while self._serve():
            pass
        self._end()
        self.stopped.set_result(None)

    def _serve(self) -> bool:
        """Wait for a group and write it; False when it was the last."""
        timeout = POLL_SECONDS if self._watchers else HEARTBEAT_SECONDS if self._journal.held else None
        try:
            first = self._queue.get(timeout=timeout)
        except Empty:
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

    def _write(self, group: list[Item]) -> list[Any]:
        """Write a group in one transaction; if that fails, each item in its own, so that only the culprit fails."""
        if all(item.operation == NOTHING for item in group):
            return [None] * len(group)
        try:
            self._begin()
        except (apsw.Error, OSError) as error:
            self._roll_back()
            return [unavailable(self.path, error)] * len(group)
        try:
            results = [self._apply(item) for item in group]
            self._commit()
        except Exception as error:  # noqa: BLE001 (values SQLite cannot take are one item's fault, too)
            self._roll_back()
            if len(group) == 1:
                return [self._typed(error)]
            return [self._write([item])[0] for item in group]
        if any(item.operation == "delete" for item in group):
            self._truncate_log()
        return results

    def _apply(self, item: Item) -> Any:
        if item.operation == NOTHING:
            return None
        try:
            return getattr(self._journal, item.operation)(item.argument)
        except (Refused, TreadleError) as refusal:
            return refusal

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._notice_others()
        files = [_identity(path) for path in self._paths]
        if self._files and files != self._files:
            raise OSError("the file or its write-ahead log was removed or replaced while it was open")
        self._files = files
        now = time.monotonic()
        if self._journal.held and now - self._beat > HEARTBEAT_SECONDS:
            self._journal.heartbeat()
            self._beat = now

    def _commit(self) -> None:
        self._connection.execute("COMMIT")
        self._journal.committed()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._journal.rolled_back()

    def _notice_others(self) -> None:
        """Forget what is remembered, and wake watchers, if another connection wrote since the last look."""
        version = pragma(self._connection, "data_version")
        if version != self._version:
            self._version = version
            self._journal.forget()
            if not self._watchers:
                return
            waiting = self._journal.tasks_with_mail()
            for token, wake in list(self._watchers.items()):
                try:
                    wake(waiting)
                except RuntimeError:  # its event loop is closed: nobody is there to wake
                    self._watchers.pop(token, None)

    def _look_around(self) -> None:
        """What is due when nothing is queued."""
        try:
            if self._journal.held and time.monotonic() - self._beat > HEARTBEAT_SECONDS:
                self._begin()
                self._commit()
            elif self._watchers:
                self._notice_others()
        except (apsw.Error, OSError):  # whoever writes next is told; a look that failed is made again
            self._roll_back()

    def _truncate_log(self) -> None:
        """Remove deleted data from the write-ahead log too, unless a reader still needs it."""
        self._connection.set_busy_timeout(CHECKPOINT_MS)
        try:
            pragma(self._connection, "wal_checkpoint(TRUNCATE)")
        except apsw.BusyError:  # the next checkpoint overwrites it
            return
        finally:
            self._connection.set_busy_timeout(BUSY_MS)

    def _complete(self, group: list[Item], results: list[Any]) -> None:
        """Hand out results with one call per event loop."""
        calls: dict[AbstractEventLoop, list[tuple[Done, Any]]] = {}
        for item, result in zip(group, results, strict=True):
            if item.done is not None and item.loop is not None:
                self.finished += 1
                calls.setdefault(item.loop, []).append((item.done, result))
        for loop, pairs in calls.items():
            try:
                loop.call_soon_threadsafe(_call, loop, pairs)
            except RuntimeError:  # that loop is closed: nobody waits for these any more
                continue

    def _typed(self, error: Exception) -> Exception:
        typed = unavailable(self.path, error)
        typed.__cause__ = error
        return typed

    def _end(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._journal.farewell()
            self._connection.execute("COMMIT")
            pragma(self._connection, "optimize")
        except apsw.Error:  # a driver that could not say goodbye is found dead when its process ends
            self._roll_back()
        self._connection.close(True)

    def _fail_queued(self, reason: TreadleError) -> None:
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


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (on the path of every group; a Path costs more than the call)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class _Exit:
    """Which writers run, for the end of the process and for its forks."""

    writers: ClassVar[WeakSet[Writer]] = WeakSet()
    inherited: ClassVar[set[Path]] = set()
    hooked = False

    @classmethod
    def add(cls, writer: Writer) -> None:
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
            writer.stop(StoreUnavailable(f"{writer.path}: the process is ending"))
        for writer in mine:
            wait([writer.stopped], max(0.0, deadline - time.monotonic()))

    @classmethod
    def forked(cls) -> None:
        """A child inherits SQLite's idea of the locks it holds, but not the locks: it must leave these files alone."""
        cls.inherited |= {writer.path for writer in cls.writers if not writer.stopped.done()}


def refuse_inherited(path: Path) -> None:
    """Raise `StoreUnavailable` for a file that was open when this process was forked."""
    if path in _Exit.inherited:
        raise StoreUnavailable(
            f"{path}: it was open when this process was made by os.fork(), and SQLite cannot share it that way: "
            "close the store before forking, or start the process by spawn"
        )
