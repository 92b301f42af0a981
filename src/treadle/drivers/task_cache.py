"""Read rows of tasks, and read and cache states.

The state of a stopped task is cached for a while. So the next step of a long task reads only new events.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import field
from itertools import islice
from threading import RLock, get_ident
from typing import Final
from weakref import WeakValueDictionary

from treadle.core import codec
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.journal import check_format, missing_tail, unfold
from treadle.core.rules import fold
from treadle.core.state import TaskState, start
from treadle.core.tools import LOADING
from treadle.drivers.thread_history import ThreadHistory
from treadle.engine import loading
from treadle.engine.time_slice import TimeSlice
from treadle.errors import ConfigurationError, JournalCorrupt, StoreUnavailable, TaskNotFound
from treadle.ports import ConversationWindow, JournalStore, TaskFilter, TaskRow

CACHED_TASKS: Final = 128
"""Number of stopped tasks whose state stays in memory."""

CACHED_STATES: Final = 4
"""Number of operating system threads that may each cache the state of one task."""

_BASED: Final[frozenset[type[e.Event]]] = frozenset((e.TaskCreated, e.ThreadEntered))
"""The events that may name the messages of its thread that a task begins with."""

_LOG: Final = logging.getLogger("treadle.threads")


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector from scanning a growing state repeatedly, since it has no garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@mutable
class CachedTask:
    """A task's state by its journal, and the digest of its last record."""

    state: TaskState
    digest: bytes
    thread: int = field(default_factory=get_ident)
    """the operating system thread that loaded it"""

    window: ConversationWindow | None = None
    """the window of its conversation for models, if that is bounded"""


class TaskCache:
    """Reads tasks of one store and caches their states; several event loops and threads may use it at once.

    Args:
        store: the store of the tasks.
        most: maximum number of stopped tasks whose state stays in memory.
    """

    def __init__(self, store: JournalStore, most: int = CACHED_TASKS) -> None:
        self._most = most
        self.history = ThreadHistory(store)
        self._store = store
        self._cached: OrderedDict[str, dict[int, CachedTask]] = OrderedDict()
        """by task and by loading thread, whose code may be reading the state at any moment"""

        self._readers: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = (
            WeakValueDictionary()
        )
        self._lock = RLock()
        self._is_closed = False

    async def open(self, *, again: bool = False) -> None:
        """Open the store; every verb calls this before it reads or writes.

        Args:
            again: open it also if the runner was closed.

        Raises:
            StoreUnavailable: the store cannot be opened, or the runner was closed.
            ConfigurationError: a tool's process is loading the module of its function.
        """
        if LOADING in os.environ:
            raise ConfigurationError(
                "a runner was used while the process of a tool loaded the file that defines the tool: move the code "
                "that runs it under `if __name__ == '__main__':`"
            )
        if again:
            self._is_closed = False
        elif self._is_closed:
            raise StoreUnavailable(
                f"the runner of {self._store.url} is closed: make another one, or open it again by `async with runner` "
                "(`with runner.sync` without asyncio)"
            )
        await self._store.open()

    # ----------------------------------------------------------------------------------------- rows

    async def row_or_none(self, task_id: str) -> TaskRow | None:
        """Return a task's row, None if there is no such task."""
        try:
            return await self._store.row(task_id)
        except TaskNotFound:
            return None

    async def row(self, task_id: str) -> TaskRow:
        """Return a task's row; raise `TaskNotFound`, with a hint if the id is that of a thread."""
        await self.open()
        try:
            return await self._store.row(task_id)
        except TaskNotFound:
            version, members = await self._store.thread(task_id)
            lists = hasattr(self._store, "rows")
            if version or (lists and await self._store.rows(TaskFilter(thread_id=task_id, limit=1))):
                last = f"; its last task is {members[-1].task_id}" if members else ""
                raise TaskNotFound(f"{task_id} is a thread, not a task{last}") from None
            raise TaskNotFound(f"no task {task_id!r} in {self._store.url}") from None

    # --------------------------------------------------------------------------------------- states

    async def load(self, task_id: str, row: TaskRow | None = None) -> CachedTask:
        """Return a task's present state; only events newer than the cache entry are read.

        With the task's row, an entry of an earlier, deleted task of the same id is ignored.
        """
        loaded = await self.take(task_id, row)
        self.keep(loaded)
        return loaded

    async def take(self, task_id: str, row: TaskRow | None = None) -> CachedTask:
        """Return a task's present state for the caller alone, and remove it from the cache."""
        with self._lock:
            cached = self._cached.get(task_id, _NOTHING).pop(get_ident(), None)
        if cached is not None and not (row is not None and _is_of_another_task(cached, row)):
            with suppress(JournalCorrupt):  # the entry may be of an earlier task of this id
                await self._catch_up(cached)
                return cached
        loaded = CachedTask(start(task_id), b"")
        await self._catch_up(loaded)
        return loaded

    @asynccontextmanager
    async def reading(self, task_id: str, row: TaskRow | None = None) -> AsyncGenerator[TaskState]:
        """Lend a task's present state, which stays unchanged for the length of a block that may take long.

        Readers of one event loop wait for each other, so that a long journal is read once.
        """
        lock = self._readers.setdefault((asyncio.get_running_loop(), task_id), asyncio.Lock())
        async with lock:
            loaded = await self.take(task_id, row)
            try:
                yield loaded.state
            finally:
                self.keep(loaded)

    async def state_at(self, task_id: str, seq: int) -> TaskState:
        """Return the state of a task just after an event."""
        loaded = CachedTask(start(task_id), b"")
        await self._catch_up(loaded, upto=seq)
        return loaded.state

    async def _catch_up(self, loaded: CachedTask, upto: int | None = None) -> None:
        """Read a task's new events; raise `TaskTooNew` if a newer version wrote unreadable ones."""
        try:
            await self._read_new_events(loaded, upto)
        except JournalCorrupt as error:
            row = await self._store.row(loaded.state.task_id)
            check_format(row.task_id, row.format, f"it cannot be read here from event {error.seq} on")
            raise

    async def _read_new_events(self, loaded: CachedTask, upto: int | None) -> None:
        state = loaded.state
        records = await self._store.read(state.task_id, after=state.seq, upto=upto)
        follows = state.seq and records and records[0].seq - records[0].count >= state.seq
        digest = loaded.digest if follows else None
        unfolded = unfold(state.task_id, records, after=state.seq, previous=digest if state.seq else b"")
        done, time_slice = 0, TimeSlice()
        while done < len(records):
            if done:
                await time_slice.pause()
            with _uncollected():
                for record, (epoch, events) in zip(islice(records, done, None), unfolded, strict=False):
                    if upto is not None and record.seq > upto:
                        # The record goes on after it.
                        events = [event for event in events if event.seq <= upto]
                    if _BASED.isdisjoint(map(type, events)):
                        loading.apply_all_checked(state, events, epoch)
                    else:
                        for event in events:
                            await self._begin(state, event)
                            loading.apply_checked(state, event, epoch)
                    loaded.digest = record.digest
                    done += 1
                    if time_slice.is_over:
                        break
        if not state.seq:
            raise missing_tail(state.task_id, 0, 1)
        if records and records[-1].upto is not None:
            # A fork without records of its own: its first one will be chained to the cut record.
            loaded.digest = codec.branch_digest(records[-1].digest, records[-1].upto)

    async def _begin(self, state: TaskState, event: e.Event) -> None:
        """Begin a task with the messages of its thread that an event refers to, if any."""
        if isinstance(event, e.ThreadEntered) and event.base is not None:
            await self.begin_with_history(state, state.thread, event.base)
        elif isinstance(event, e.TaskCreated) and event.base:
            await self.begin_with_history(state, event.thread, event.base)

    async def begin_with_history(self, state: TaskState, thread_id: str, version: int | None = None) -> int:
        """Begin a task with the messages of its thread, at present or at a version; return that version."""
        history = await self.history.begin(thread_id, version)
        for damage in history.damaged:
            text = f"task {state.task_id} begins without the messages of task {damage.task_id}"
            _LOG.warning("%s in thread %r, which cannot be read: %s", text, thread_id, damage)
        fold.begin_with_history(
            state,
            history.messages,
            summarised=history.summarised,
            untrusted=history.untrusted,
            exposed=history.exposed,
        )
        return history.version

    def keep(self, loaded: CachedTask) -> None:
        """Cache a stopped task, unless a newer state is cached, since a view may end after a parallel drive."""
        task_id = loaded.state.task_id
        with self._lock:
            states = self._cached.setdefault(task_id, {})
            cached = states.pop(loaded.thread, None)
            newer = cached is not None and cached.state.seq > loaded.state.seq
            states[loaded.thread] = cached if cached is not None and newer else loaded
            if len(states) > CACHED_STATES:
                del states[next(iter(states))]
            self._cached.move_to_end(task_id)
            while len(self._cached) > self._most:
                self._cached.popitem(last=False)

    def forget(self, task_id: str) -> None:
        """Drop the cache entry of a task."""
        with self._lock:
            self._cached.pop(task_id, None)

    def close(self) -> None:
        """Drop every cache entry and stop opening the store from here."""
        self._is_closed = True
        with self._lock:
            self._cached.clear()


_NOTHING: Final[dict[int, CachedTask]] = {}
"""The states of a task that is not cached."""


def _is_of_another_task(cached: CachedTask, row: TaskRow) -> bool:
    """Return whether a row belongs to another task than the cache entry with its id."""
    state, mark = cached.state, row.mark
    if state.seq > row.head or state.epoch > row.epoch:
        return True
    return mark is not None and mark.seq == state.seq and mark.digest != cached.digest
