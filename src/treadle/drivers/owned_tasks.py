"""Register the tasks that this process owns, and wake watchers, threads and the adopter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Final

from treadle.core.data import mutable
from treadle.core.events import TaskStood
from treadle.core.ids import is_name
from treadle.core.state import TaskState
from treadle.drivers.task_cache import CachedTask, TaskCache
from treadle.engine.broadcast import Channel, Channels, Stopped, Watcher
from treadle.engine.drive import DriveLoop
from treadle.engine.journal_writer import JournalWriter, Lease, OutdatedFigures
from treadle.engine.observers import Listeners, TaskObservation
from treadle.engine.thread_queue import ThreadQueue
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import ConfigurationError, Fenced, StoreFormatError, StoreUnavailable, ThreadBusy
from treadle.ports import (
    AT_ONCE,
    ConversationWindow,
    JournalStore,
    QueuePosition,
    StoreChanges,
    TaskExists,
    TaskRow,
)

DRIVER_LOOK: Final = 0.5
"""Seconds after which a waiter for a task checks that the driving process is alive."""

BEING_IMPORTED: Final[list[str]] = []
"""The modules that this process is importing for their agents; none of them may drive a task."""


@mutable
class OwnedTask:
    """A task that this process owns: the process may record in it and drive it, and finally releases it."""

    state: TaskState
    writer: JournalWriter
    channel: Channel
    head: int = 0
    """the last event of its journal at the claim"""

    drive: DriveLoop | None = None
    position: QueuePosition | None = None
    """its position in the queue of its thread at the claim"""

    entered: bool = False
    """whether it has entered its thread"""

    wanted: int = 0
    """the due time of the task at the claim; 0 if it had none"""

    labels: dict[str, str] | None = None
    """labels of a task that was created here and may not be in the store yet; None for a claimed one"""

    window: ConversationWindow | None = None
    """the window of its conversation for models, if that is bounded"""

    enter_call: Callable[[str, int], None] | None = None
    """the hook of observers, called when the tool of a call is about to run"""

    observers: Listeners | None = None
    """the observers of the call that owns it, which also get the events of its children"""


OnChanges = Callable[[Collection[str] | None, Collection[str]], None]
"""Takes the ids of changed tasks (None if any may have changed), and those of deleted tasks."""


class TaskWatch:
    """Waits until a task may have changed; see `OwnedTasks.watching`."""

    def __init__(self, tasks: OwnedTasks, task_id: str, watcher: Watcher) -> None:
        self._tasks = tasks
        self._task_id = task_id
        self._watcher = watcher

    def skip(self) -> None:
        """Disregard changes until now, since the caller is about to read the task."""
        self._watcher.skip()

    async def changed(self) -> None:
        """Return when the task has changed, or after a while in which its driver may have crashed."""
        await self._watcher.wait(self._tasks.patience(self._task_id))


class OwnedTasks:
    """Registers the tasks that this process owns in one store, and wakes waiters for tasks.

    Safe to use from several event loops and threads.

    Args:
        store: the store of the tasks.
        cache: caches the states of released tasks.
        clock: microseconds since 1970, UTC.
        observers: receive the events of the tasks.
        vault: masks secrets in the records of the tasks.
        tenant: the tenant of the tasks.
    """

    def __init__(
        self,
        store: JournalStore,
        cache: TaskCache,
        clock: Callable[[], int],
        observers: Listeners | None,
        vault: Vault = NO_VAULT,
        tenant: str = "",
    ) -> None:
        self.store = store
        self._tenant = tenant
        self.tasks: dict[str, OwnedTask] = {}
        self.unreleased: dict[str, int] = {}
        """the epochs of tasks whose release could not be written"""

        self.channels = Channels()
        self.thread_queue = ThreadQueue()
        self.on_news: Callable[[tuple[str, str] | None], None] | None = None
        """called from any thread when another process wrote or a task was released here; see `TenantDrivers`"""

        self.on_outdated: Callable[[StoreFormatError], None] | None = None
        """called from any thread when a newer version migrated the store beyond this one; see `TenantDrivers`"""

        self.cache = cache
        self._clock = clock
        self._observers = observers
        self._vault = vault
        self._lock = RLock()
        self._on_changes: dict[object, OnChanges] = {}
        self._unwatch: Callable[[], None] | None = None
        self._outdated = OutdatedFigures(lambda task_id: self._report_changes((task_id,)))

    def add(self, state: TaskState, lease: Lease, observers: Listeners | None = None) -> OwnedTask:
        """Register a task that this process owns from now on; raise `TaskExists` if it is registered already.

        Args:
            state: the state of the task.
            lease: its lease.
            observers: receive its events until it is removed, in addition to the observers of all tasks.
        """
        if BEING_IMPORTED:
            raise ConfigurationError(
                f"{BEING_IMPORTED[-1]} runs a task while it is imported for its agent: move the lines that run it "
                'below `if __name__ == "__main__":`'
            )
        self.watch_store()  # first, since the task must not stay owned if the store cannot be watched
        with self._lock:
            if self.is_owned(state.task_id):
                raise TaskExists(state.task_id)
            if lease.create is not None:
                self.cache.forget(state.task_id)  # a task of this id may have been deleted by another process
            channel = self.channels.of(state.task_id)
            channel.belongs_to(state)
            writer = JournalWriter(
                self.store, channel, state, lease, self._clock, self._outdated, self._vault
            )
            owned = OwnedTask(state, writer, channel)
            listeners = self._observers
            if observers is not None:
                owned.observers = observers
                listeners = (
                    observers
                    if listeners is None
                    else Listeners((*listeners.listeners, *observers.listeners))
                )
            if listeners is not None:
                observation = TaskObservation(listeners, state, lease.epoch, self._tenant)
                owned.enter_call = observation.enter_call
                channel.observe(observation)
            self.tasks[state.task_id] = owned
        if channel.watchers:
            channel.look_again()
        if self._on_changes:
            self._report_changes((state.task_id,))
        return owned

    def remove(self, owned: OwnedTask) -> None:
        """Remove a task that this process no longer drives, and wake its waiters.

        Its state is cached if the journal has all of it.
        """
        task_id, writer = owned.state.task_id, owned.writer
        if self.tasks.get(task_id) is not owned:
            return  # it was removed when its event loop was closed
        del self.tasks[task_id]
        if not writer.released and not isinstance(writer.failure, (Fenced, TaskExists, ThreadBusy)):
            # After a stall the task may have been driven elsewhere, and be owned here again in a newer epoch.
            self.unreleased[task_id] = max(self.unreleased.get(task_id, 0), writer.epoch)
        if writer.released and owned.state.ended is None:
            self.cache.keep(CachedTask(owned.state, writer.digest, window=owned.window))
        owned.channel.publish((Stopped(owned.state.seq if writer.released else None),))
        if owned.channel.observed is not None:
            owned.channel.observe(None)
        if owned.channel.watchers:
            owned.channel.look_again()
        self.channels.drop(task_id)
        self.thread_queue.wake_next(owned.state.thread)
        if self._on_changes:
            self._report_changes((task_id,))
        # Tasks released by a shutdown are for other processes.
        is_wanted = writer.released and writer.wanted == AT_ONCE and not owned.state.shutdown
        self._notify((self._tenant, task_id) if is_wanted else None)

    def is_owned(self, task_id: str) -> bool:
        """Return whether this process drives a task; removes a task whose event loop was closed."""
        owned = self.tasks.get(task_id)
        if owned is not None and owned.writer.loop.is_closed():
            self.remove(owned)
            return False
        return owned is not None

    def is_driven(self, row: TaskRow) -> bool:
        """Return whether a task has a live driver, in this process or another."""
        if self.is_owned(row.task_id):
            return True
        return row.driver is not None and row.driver.alive and row.task_id not in self.unreleased

    def live_standing(self, task_id: str) -> TaskStood | None:
        """Return the state of a task that this process drives; None if it does not."""
        owned = self.tasks.get(task_id) if self.is_owned(task_id) else None
        if owned is None:
            return None
        return TaskStood("running", driven=True, live=True, head=owned.writer.head)

    def standing(self, row: TaskRow) -> TaskStood:
        """Return the state of a task that this process does not drive, from its row."""
        driven = self.is_driven(row)
        return TaskStood("running" if driven else row.display_state, driven, live=False, head=row.head)

    def check(self) -> None:
        """Confirm every lease of this process with the store; a drive that lost its lease stops."""
        for owned in list(self.tasks.values()):
            if not owned.writer.is_new:
                with suppress(RuntimeError):  # its loop is closed
                    owned.writer.loop.call_soon_threadsafe(owned.writer.check)

    def read_inbox_soon(self, task_id: str) -> bool:
        """Make the task's driver read its inbox; False if this process does not drive it. Callable from any thread."""
        owned = self.tasks.get(task_id) if self.is_owned(task_id) else None
        if owned is None:
            return False
        if owned.drive is not None:  # a drive that has not begun reads the inbox at its beginning
            owned.drive.read_inbox_soon()
        return True

    # ------------------------------------------------------------------------------------- wake-ups

    @contextmanager
    def watching(self, task_id: str) -> Generator[TaskWatch]:
        """Watch a task for the length of a block: `skip`, read the task, then wait with `changed`."""
        watcher = self.channels.subscribe(task_id, deltas=False)
        try:
            yield TaskWatch(self, task_id, watcher)
        finally:
            self.channels.unsubscribe(task_id, watcher)

    def patience(self, task_id: str) -> float | None:
        """Return the seconds to wait for news of a task before a check; None if news always arrives.

        The store reports changes by another process, but not that the process was killed. An event loop in another
        thread does not report that it was closed.
        """
        if self.is_owned(task_id) and self.tasks[task_id].writer.loop is asyncio.get_running_loop():
            return None
        with suppress(StoreUnavailable):  # a watcher of a closed store learns the end from its own task
            self.watch_store()
        return DRIVER_LOOK

    def watch_store(self) -> None:
        """Watch the store for writes of other processes from now on."""
        if self._unwatch is None:
            self._unwatch = self.store.watch(self._store_changed)

    def _store_changed(self, changes: StoreChanges) -> None:
        if changes.outdated is not None and self.on_outdated is not None:
            self.on_outdated(changes.outdated)
        for task_id in changes.mail:
            self.read_inbox_soon(task_id)
        # A whole store reports the tasks of all tenants: only the adopter needs the others.
        own = None if changes.tasks is None else frozenset(filter(is_name, changes.tasks))
        if own is None or own:
            self.channels.look_again(own, besides=self.tasks)
            self._report_changes(own, frozenset(filter(is_name, changes.deleted)))
        if changes.owners:
            self.thread_queue.wake_next_of_all()
            self._notify()

    def on_changes(self, tell: OnChanges) -> Callable[[], None]:
        """Call `tell` from any thread with the ids of changed tasks; return a function that ends this."""
        token = object()
        self._on_changes[token] = tell
        return lambda: self._on_changes.pop(token, None) and None

    def report_created(self, task_id: str) -> None:
        """Report a new task that this process created and does not own, to those who follow changes."""
        if self._on_changes:
            self._report_changes((task_id,))

    def _report_changes(self, task_ids: Collection[str] | None, deleted: Collection[str] = ()) -> None:
        for tell in list(self._on_changes.values()):
            tell(task_ids, deleted)

    def _notify(self, released: tuple[str, str] | None = None) -> None:
        if self.on_news is not None:
            self.on_news(released)

    def close(self) -> None:
        """Stop watching the store."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
