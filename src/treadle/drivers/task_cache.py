"""The desk of a runner: which tasks lie open here, how they are loaded, claimed and given back.

State of a task at rest is kept for a while, so that the next step of a long task reads only what is new.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from threading import RLock, get_ident
from typing import Final

from treadle.core import codec
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.journal import check_format, check_known, missing_tail, unfold
from treadle.core.state import TaskState, start
from treadle.drivers.thread_history import ThreadHistory
from treadle.engine import loading
from treadle.engine.broadcast import Channel, Channels, Stopped
from treadle.engine.drive import DriveLoop
from treadle.engine.journal_writer import JournalWriter, Lease
from treadle.engine.observers import ObserverSet, TaskObservation
from treadle.engine.thread_queue import ThreadQueue
from treadle.errors import (
    Fenced,
    JournalCorrupt,
    StoreUnavailable,
    TaskBusy,
    TaskNotFound,
    TaskTooNew,
    ThreadBusy,
)
from treadle.ports import (
    AT_ONCE,
    Claim,
    Commit,
    Committed,
    JournalStore,
    QueuePosition,
    TaskExists,
    TaskRow,
)

KEPT: Final = 128
"""How many tasks at rest keep their state in memory."""

CHUNK: Final = 256
"""How many records of a long task are read in one go, before others get their turn."""

_LOG: Final = logging.getLogger("treadle.threads")

DRIVER_LOOK: Final = 0.5
"""Seconds after which whoever waits for a task looks whether the process that drives it still lives."""


@contextmanager
def _uncollected() -> Generator[None]:
    """Keep the garbage collector from looking through a growing state again and again: none of it is garbage."""
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
    """A task as its journal says, and the digest of its last record."""

    state: TaskState
    digest: bytes
    thread: int = field(default_factory=get_ident)
    """which thread loaded it"""


@mutable
class OwnedTask:
    """A task that this process owns: to record in, to drive, and in the end to give back."""

    state: TaskState
    writer: JournalWriter
    channel: Channel
    drive: DriveLoop | None = None
    place: QueuePosition | None = None
    """in its thread, as the claim found it"""

    entered: bool = False
    """whether it has its thread"""
    wanted: int = 0
    """whether somebody was to drive it on when it was claimed"""


class TaskCache:
    """Loads, claims and releases tasks of one store for one runner."""

    def __init__(
        self, store: JournalStore, clock: Callable[[], int], observing: ObserverSet | None = None
    ) -> None:
        self.store = store
        self.clock = clock
        self.observing = observing
        self.threads = ThreadHistory(store)
        self.channels = Channels()
        self.owned: dict[str, OwnedTask] = {}
        self._kept: OrderedDict[str, CachedTask] = OrderedDict()
        self.unreleased: dict[str, int] = {}
        """the epochs of tasks that could not be given back, since the store could not be written"""

        self.line = ThreadQueue()
        self._lock = RLock()
        self._unwatch: Callable[[], None] | None = None
        self.on_news: Callable[[], None] = _nothing
        """called, from any thread, when others wrote or a task was given back here"""

    # ------------------------------------------------------------------------------------- loading

    async def load(self, task_id: str, row: TaskRow | None = None) -> CachedTask:
        """Return a task's present state; of what is kept from before, only what is new is read.

        With its row, what is kept of another task that had its id, and was deleted elsewhere, is told from it.
        """
        loaded = await self._take(task_id, row)
        self.keep(loaded)
        return loaded

    async def _take(self, task_id: str, row: TaskRow | None = None) -> CachedTask:
        """Return a task's present state for the caller alone."""
        with self._lock:
            known = self._kept.pop(task_id, None)
        # In the thread that kept it somebody may be looking at it just now.
        if (
            known is not None
            and known.thread == get_ident()
            and not (row is not None and _is_another(known, row))
        ):
            with suppress(JournalCorrupt):  # or it is of another task, which had this id before
                await self._catch_up(known)
                return known
        loaded = CachedTask(start(task_id), b"")
        await self._catch_up(loaded)
        return loaded

    async def state_at(self, task_id: str, seq: int) -> TaskState:
        """Return what a task was just after an event."""
        loaded = CachedTask(start(task_id), b"")
        await self._catch_up(loaded, upto=seq)
        return loaded.state

    async def _catch_up(self, loaded: CachedTask, upto: int | None = None) -> None:
        """Read what is new of a task; what a newer version wrote, and cannot be read here, is `TaskTooNew`."""
        try:
            await self._read_on(loaded, upto)
        except JournalCorrupt as error:
            row = await self.store.row(loaded.state.task_id)
            check_format(row.task_id, row.format, f"it cannot be read here from event {error.seq} on")
            raise

    async def _read_on(self, loaded: CachedTask, upto: int | None) -> None:
        state = loaded.state
        records = await self.store.read(state.task_id, after=state.seq, upto=upto)
        known = (
            loaded.digest
            if state.seq and records and records[0].seq - records[0].count >= state.seq
            else None
        )
        previous = known if state.seq else b""
        found = unfold(state.task_id, records, after=state.seq, previous=previous)
        for begin in range(0, len(records), CHUNK):
            if begin:
                await asyncio.sleep(0)
            with _uncollected():
                for record, (epoch, events) in zip(records[begin : begin + CHUNK], found, strict=False):
                    for event in events:
                        if upto is not None and event.seq > upto:
                            break  # its record goes on after it
                        if isinstance(event, (e.TaskCreated, e.ThreadEntered)):
                            await self._enter(state, event)
                        loading.apply_checked(state, event, epoch)
                    loaded.digest = record.digest
        if not state.seq:
            raise missing_tail(state.task_id, 0, 1)
        if records and records[-1].upto is not None:
            # A fork without records of its own: its first is chained to where it was cut off.
            loaded.digest = codec.branch_digest(records[-1].digest, records[-1].upto)

    async def _enter(self, state: TaskState, event: e.TaskCreated | e.ThreadEntered) -> None:
        if isinstance(event, e.ThreadEntered):
            if event.base is not None:
                await self.begin_with_history(state, state.thread, event.base)
        elif event.base:
            await self.begin_with_history(state, event.thread, event.base)

    async def begin_with_history(self, state: TaskState, thread_id: str, version: int | None = None) -> int:
        """Let a task that has said nothing yet start from what its thread holds, now or at a version; return which."""
        words = await self.threads.begin(thread_id, version)
        for damage in words.damaged:
            what = f"task {state.task_id} begins without the messages of task {damage.task_id}"
            _LOG.warning("%s in thread %r, which cannot be read: %s", what, thread_id, damage)
        state.summarised = words.summarised
        state.history = words.messages
        state.messages = list(words.messages)
        state.own_from = len(words.messages)
        state.origin.messages = len(words.messages)
        return words.version

    def keep(self, loaded: CachedTask) -> None:
        """Remember a task at rest, unless something newer is known: a view may end after the drive it read beside."""
        with self._lock:
            known = self._kept.get(loaded.state.task_id)
            if known is not None and known.state.seq > loaded.state.seq:
                return
            self._kept[loaded.state.task_id] = loaded
            self._kept.move_to_end(loaded.state.task_id)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def forget(self, task_id: str) -> None:
        """Drop what is remembered of a task."""
        with self._lock:
            self._kept.pop(task_id, None)

    # ------------------------------------------------------------------------------------ ownership

    def begin(self, state: TaskState, own: Lease) -> OwnedTask:
        """Return a task of which this process is the owner from now on; raises `TaskExists` if it is already."""
        self.watch_store()  # first: a task whose store cannot be watched must not stay owned
        with self._lock:
            if self.is_owned(state.task_id):
                raise TaskExists(state.task_id)
            if own.create is not None:
                self._kept.pop(state.task_id, None)  # of one that had this id and was deleted elsewhere
            channel = self.channels.of(state.task_id)
            if self.observing is not None:
                channel.observe(TaskObservation(self.observing, state, own.epoch))
            owned = OwnedTask(state, JournalWriter(self.store, channel, state, own, self.clock), channel)
            self.owned[state.task_id] = owned
        return owned

    def watch_store(self) -> None:
        """Hear of what other processes write, from now on."""
        if self._unwatch is None:
            self._unwatch = self.store.watch(self._others_wrote)

    async def claim(self, task_id: str, *, enter: bool = False) -> OwnedTask:
        """Become a task's owner and load it; calls its last driver left open are marked as stopped.

        With `enter`, its thread is asked for in the same transaction.

        Raises `TaskNotFound`, `TaskBusy`, `TaskTooNew` or `JournalCorrupt`.
        """
        if self.is_owned(task_id):
            raise TaskBusy(f"task {task_id} is being driven in this process", task_id=task_id)
        claim = await self._still_owned(task_id) or await self.store.claim(task_id, enter=enter)
        epoch = claim.epoch
        try:
            loaded = await self._take(task_id)
            if loaded.state.seq != claim.head or loaded.digest != (claim.digest or loaded.digest):
                loaded = await self._take(task_id)
            await self._check_known(loaded.state)
            await self._check_fork(loaded.state)
            owned = self.begin(loaded.state, Lease(epoch, loaded.digest, wanted=claim.wanted))
        except BaseException as error:
            # The next try is to find the task free, or to take it up again.
            self.unreleased[task_id] = epoch
            back = Commit(task_id, epoch, release=True, leave=True, wanted=claim.wanted)
            if isinstance(error, TaskTooNew):
                back.format = error.needs  # from now on the row says so
            if (await self.commit(back)).released:
                self.unreleased.pop(task_id, None)
            if isinstance(error, TaskExists):
                raise TaskBusy(f"task {task_id} is being made in this process", task_id=task_id) from error
            raise
        owned.place, owned.wanted = claim.place, claim.wanted
        recover(owned)
        return owned

    async def _check_known(self, state: TaskState) -> None:
        """Raise `TaskTooNew` if this version may not drive a task, or one of its children that are still at work."""
        check_known(state)
        for call in state.open_children():
            with suppress(TaskNotFound):  # it was never made
                row = await self.store.row(str(call.child))
                check_format(state.task_id, row.format, f"its child, task {row.task_id}, is at work")
                await self._check_known((await self.load(row.task_id, row)).state)

    async def _check_fork(self, state: TaskState) -> None:
        """Raise `JournalCorrupt` if the journal of a task says that it is a fork, and its row of another or of none."""
        if state.forked_from is None:
            return
        if (differs := loading.contradicts(await self.store.row(state.task_id), state)) is not None:
            raise JournalCorrupt(
                f"task {state.task_id}: {differs}", task_id=state.task_id, seq=state.fork_seq + 1
            )

    async def _still_owned(self, task_id: str) -> Claim | None:
        """Return the claim on a task that this process owns, drives no longer and could not give back."""
        epoch = self.unreleased.pop(task_id, None)
        if epoch is None:
            return None
        try:
            row = await self.store.row(task_id)
        except TaskNotFound:
            raise
        except BaseException:
            self.unreleased[task_id] = epoch
            raise
        if row.driver is None or row.epoch != epoch:
            return None
        return Claim(epoch, row.head, b"", wanted=AT_ONCE)

    def patience(self, task_id: str) -> float | None:
        """Return how long, in seconds, to wait for news of a task before looking again; None: news always comes.

        Of a task driven elsewhere the store tells, but nobody writes that its driver was killed; nor does a loop of
        another thread say that it was closed.
        """
        if self.is_owned(task_id) and self.owned[task_id].writer.loop is asyncio.get_running_loop():
            return None
        with suppress(
            StoreUnavailable
        ):  # closed under a watcher, which hears from its own task that it is over
            self.watch_store()
        return DRIVER_LOOK

    async def commit(self, commit: Commit) -> Committed:
        """Commit outside of a drive and return when it is durable; raises what stopped it."""
        answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()

        def done(verdict: Committed | Exception) -> None:
            if answer.done():
                return  # whoever waited was cancelled
            if isinstance(verdict, Exception):
                answer.set_exception(verdict)
            else:
                answer.set_result(verdict)

        self.store.commit(commit, done)
        return await answer

    def drop_owned(self, owned: OwnedTask) -> None:
        """Forget an owned task that was given back, but remember its state if the journal holds all of it."""
        if self.owned.get(owned.state.task_id) is not owned:
            return  # it was laid down when its event loop was found closed
        self.owned.pop(owned.state.task_id, None)
        if not owned.writer.released and not isinstance(
            owned.writer.failure, (Fenced, TaskExists, ThreadBusy)
        ):
            # A drive that stalled may have been succeeded, and the task come back here under a newer epoch since.
            known = self.unreleased.get(owned.state.task_id, 0)
            self.unreleased[owned.state.task_id] = max(known, owned.writer.epoch)
        if owned.writer.released and owned.state.ended is None:
            self.keep(CachedTask(owned.state, owned.writer.digest))
        owned.channel.publish((Stopped(owned.state.seq if owned.writer.released else None),))
        if owned.channel.observed is not None:
            owned.channel.observe(None)
        self.channels.drop(owned.state.task_id)
        self.line.wake_next(owned.state.thread)
        self.on_news()

    # ------------------------------------------------------------------------------ other processes

    def is_owned(self, task_id: str) -> bool:
        """Whether this process is at work on a task; one whose event loop was closed under it is laid down here."""
        owned = self.owned.get(task_id)
        if owned is not None and owned.writer.loop.is_closed():
            self.drop_owned(owned)
            return False
        return owned is not None

    def is_driven(self, row: TaskRow) -> bool:
        """Whether somebody is at work on a task, here or elsewhere."""
        if self.is_owned(row.task_id):
            return True
        return row.driver is not None and row.driver.alive and row.task_id not in self.unreleased

    def check_owned(self) -> None:
        """Have the store say of all that is owned here whether it still is; what is not stops being driven."""
        for owned in list(self.owned.values()):
            if not owned.writer.is_new:
                with suppress(RuntimeError):  # its loop is closed
                    owned.writer.loop.call_soon_threadsafe(owned.writer.check)

    def read_inbox_soon(self, task_id: str) -> bool:
        """Let the task's driver, if it is here, look into its inbox; from any thread."""
        owned = self.owned.get(task_id) if self.is_owned(task_id) else None
        if owned is None:
            return False
        if owned.drive is not None:  # one that is to come reads the inbox when it begins
            owned.drive.read_inbox_soon()
        return True

    def _others_wrote(self, with_mail: Sequence[str]) -> None:
        for task_id in with_mail:
            self.read_inbox_soon(task_id)
        self.channels.wake_all(besides=self.owned)
        self.line.wake_next_of_all()
        self.on_news()

    def close(self) -> None:
        """Stop watching the store, and forget what was kept."""
        self._kept.clear()
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None


def _nothing() -> None:
    pass


def _is_another(known: CachedTask, row: TaskRow) -> bool:
    """Whether a row is of another task than the one that is known by its id."""
    state, mark = known.state, row.mark
    if state.seq > row.head or state.epoch > row.epoch:
        return True
    return mark is not None and mark.seq == state.seq and mark.digest != known.digest


def recover(owned: OwnedTask) -> None:
    """Mark what the last driver left open: reads are free to run again, of writes the outcome is unknown."""
    state, writer = owned.state, owned.writer
    for step, asked in state.begun_model_calls():
        writer.record(e.ModelStopped(step.id, "crash", asked.id))
    for call in state.begun_calls():
        call_id = call.id if call.undo_status != "begun" else f"{call.id}-undo"
        writer.record(e.ToolStopped(call.step, call_id, "crash"))
