"""Claim tasks, release them when they have stopped, and retry failed releases.

Theory of operation
-------------------

A task has at most one owner, in any process: the holder of its *lease*. The store grants a lease by a claim and counts
the claims of a task in its *epoch*. It refuses a commit of an older epoch (`Fenced`). So the store alone decides
ownership. The copy in memory may be late but cannot do harm.

    free ----claim----> owned ----release----> free
      ^                   |
      |                   +---- taken over (Fenced) ----> owned elsewhere: report that this driver is alive
      |                   |
      |                   +---- the store cannot be written ----> unreleased
      |                                                               |
      +------- claimed again under the same epoch, and released ------+

- *free*: the row has no driver, or a driver whose lease has passed. Any process may claim it.
- *owned*: it is in `OwnedTasks`. Only its `JournalWriter` writes its journal, in the epoch of the claim. A caller owns
  it for the length of a block (`acquire`). The block may drive it or only record events in it.
- *releasing*: the inbox is read, then the next commit gives up the lease. The store refuses that commit while the inbox
  has items (`InboxWaiting`). So a durable command is read by the present owner or a later one. An item may arrive
  between that commit and the removal of the task from `OwnedTasks`, announced to a drive that has ended. Then the task
  is claimed once more to read it.
- *unreleased*: the release could not be written, and the row still names this process as the driver. The process lives,
  so its lease does not expire. `OwnedTasks.unreleased` has the epoch; a timer claims and releases the task again until
  it succeeds. Another claim by this process in the meantime continues that epoch.
- *taken over*: this process stalled and its lease expired. The new owner counts each driver that lost the task without
  progress as one that it may have crashed (see `adoption`). A driver that learns of its loss reports to the inbox that
  it is alive, and is not counted.

Invariant: while a task is in `OwnedTasks.tasks` no other code of this process claims it. When it leaves, it was
released, is in `unreleased`, or belongs to another owner by the store's own answer.

Example: a driver records the last step of task `t` in epoch 3, and the disk is full. Its writer fails, `release`
removes `t` from `OwnedTasks`, and its entry in `unreleased` becomes 3. A timer calls `release_again` after 0, 0.1, 0.3
seconds and so on. Once the disk has room, `t` is claimed in epoch 3 without a new claim of the store. It is loaded
from its journal, marked as due at once, and released. An adopter continues it in epoch 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from treadle.core import events as e
from treadle.core import ids
from treadle.core.ids import undo_id
from treadle.core.journal import check_format, check_known
from treadle.core.state import TaskState
from treadle.drivers.continuing import commit
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.task_cache import TaskCache
from treadle.engine import loading
from treadle.engine.inbox import SURVIVED
from treadle.engine.journal_writer import Lease
from treadle.engine.observers import Listeners
from treadle.engine.task_log import tell_taken_over
from treadle.errors import (
    Fenced,
    JournalCorrupt,
    StoreUnavailable,
    TaskBusy,
    TaskMoved,
    TaskNotFound,
    TaskTooNew,
    TreadleError,
    UndoUnfinished,
)
from treadle.ports import AT_ONCE, Claim, Commit, InboxItem, JournalStore, TaskExists

RELEASE_SECONDS: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between tries to release a task whose store cannot be written; the last value is repeated."""


class TaskOwnership:
    """Claims tasks for callers and releases them, one block at a time.

    Args:
        store: grants the leases.
        cache: loads the tasks.
        owned: registers them.
        read_inbox: reads the inbox of an owned task and releases the task once it is empty.
        clock: microseconds since 1970, UTC.
    """

    def __init__(
        self,
        store: JournalStore,
        cache: TaskCache,
        owned: OwnedTasks,
        read_inbox: Callable[[OwnedTask], Awaitable[Any]],
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._cache = cache
        self._owned = owned
        self._read_inbox = read_inbox
        self._clock = clock
        self._retries: dict[
            str, tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle | asyncio.Task[bool]]
        ] = {}
        """the running or next try to release each unreleased task"""

    # ---------------------------------------------------------------------------------------- claim

    @asynccontextmanager
    async def acquire(
        self,
        task_id: str,
        *,
        enter: bool = False,
        expect: int | None = None,
        observers: Listeners | None = None,
        outside_undo: bool = False,
    ) -> AsyncGenerator[OwnedTask]:
        """Own a task for the length of a block; it is released afterwards, even if the block raises.

        With `enter`, it enters the queue of its thread at once, for a drive of a step or to the end. With `expect`,
        raises `TaskMoved` unless that is the last event of its journal. The `observers` receive its events meanwhile.
        With `outside_undo`, raises `UndoUnfinished` while an undo has begun and not ended. The inbox is read first,
        since it may have the settlement of that undo.
        """
        owned = await self._claim_or_retry(task_id, observers, enter=enter)
        if outside_undo and owned.state.undo is not None:
            await self.release(owned)
            _check_no_undo(owned.state)
            owned = await self._claim_or_retry(task_id, observers, enter=enter)
        async with self.releasing(owned):
            check_unmoved(task_id, owned.head, expect)
            yield owned

    async def _claim_or_retry(self, task_id: str, observers: Listeners | None, *, enter: bool) -> OwnedTask:
        try:
            return await self.claim(task_id, observers, enter=enter)
        except BaseException:
            self._release_later(task_id)
            raise

    async def claim(
        self, task_id: str, observers: Listeners | None = None, *, enter: bool = False
    ) -> OwnedTask:
        """Become a task's owner and load it; calls that its last driver left open are marked as stopped.

        With `enter`, it enters the queue of its thread in the same transaction. The `observers` receive its events
        while it is owned.

        Raises `TaskNotFound`, `TaskBusy`, `TaskTooNew` or `JournalCorrupt`.
        """
        if self._owned.is_owned(task_id):
            raise TaskBusy(f"task {task_id} is being driven in this process", task_id=task_id)
        claim = await self._unreleased_claim(task_id) or await self._store.claim(task_id, enter=enter)
        try:
            loaded = await self._cache.take(task_id)
            if loaded.state.seq != claim.head or loaded.digest != (claim.digest or loaded.digest):
                loaded = await self._cache.take(task_id)
            await self._check_format(loaded.state)
            await self._check_fork(loaded.state)
            lease = Lease(claim.epoch, loaded.digest, wanted=claim.due_at)
            owned = self._owned.add(loaded.state, lease, observers)
        except BaseException as error:
            await self._undo_claim(task_id, claim, error)
            if isinstance(error, TaskExists):
                raise TaskBusy(f"task {task_id} is being made in this process", task_id=task_id) from error
            raise
        owned.position, owned.wanted, owned.window = claim.place, claim.due_at, loaded.window
        owned.head = owned.state.seq
        if claim.is_taken_over:
            tell_taken_over(owned.state, claim.epoch)
        recover(owned)
        return owned

    async def _undo_claim(self, task_id: str, claim: Claim, error: BaseException) -> None:
        """Release a task that could not be loaded, so that the next claim gets it free or in the same epoch."""
        self._owned.unreleased[task_id] = claim.epoch
        back = Commit(task_id, claim.epoch, release=True, leave=True, due_at=claim.due_at)
        if isinstance(error, TaskTooNew):
            back.format = error.needs  # from now on the row has the format
        if (await commit(self._store, back)).released:
            self._owned.unreleased.pop(task_id, None)

    async def _check_format(self, state: TaskState) -> None:
        """Raise `TaskTooNew` if this version may not drive a task or one of its unfinished children."""
        check_known(state)
        for call in state.open_children():
            with suppress(TaskNotFound):  # it was never made
                row = await self._store.row(str(call.child))
                check_format(state.task_id, row.format, f"its child, task {row.task_id}, is at work")
                await self._check_format((await self._cache.load(row.task_id, row)).state)

    async def _check_fork(self, state: TaskState) -> None:
        """Raise `JournalCorrupt` if a task is a fork by its journal, but its row names another base or none."""
        if state.forked_from is None:
            return
        if (differs := loading.contradicts(await self._store.row(state.task_id), state)) is not None:
            raise JournalCorrupt(
                f"task {state.task_id}: {differs}", task_id=state.task_id, seq=state.fork_seq + 1
            )

    async def _unreleased_claim(self, task_id: str) -> Claim | None:
        """Return the claim by which this process still owns a task that it could not release."""
        epoch = self._owned.unreleased.pop(task_id, None)
        if epoch is None:
            return None
        try:
            row = await self._store.row(task_id)
        except TaskNotFound:
            raise
        except BaseException:
            self._owned.unreleased[task_id] = epoch
            raise
        if row.driver is None or row.epoch != epoch:
            return None
        return Claim(epoch, row.head, b"", due_at=AT_ONCE)

    # -------------------------------------------------------------------------------------- release

    @asynccontextmanager
    async def releasing(self, owned: OwnedTask) -> AsyncGenerator[None]:
        """Release an owned task at the end of a block, once its inbox is read."""
        try:
            yield
        finally:
            await self.release(owned)

    async def release(self, owned: OwnedTask) -> None:
        """Release an owned task, once its inbox is read."""
        task_id, writer = owned.state.task_id, owned.writer
        if writer.loop.is_closed():
            self._owned.remove(owned)  # its loop cannot await any more
            return
        try:
            if not writer.released and writer.failure is None:
                await self._read_inbox(owned)
        finally:
            self._owned.remove(owned)
            self._release_later(task_id)
            if isinstance(writer.failure, Fenced):
                await self._report_alive(owned)
            elif writer.released and owned.drive is not None and owned.drive.inbox_unread:
                with suppress(TreadleError):  # the next owner reads items that arrived during the release
                    if await self._store.inbox(task_id):
                        await self._claim_and_release(task_id)

    async def _claim_and_release(self, task_id: str) -> None:
        async with self.acquire(task_id):
            pass

    async def _report_alive(self, owned: OwnedTask) -> None:
        """Report to the new driver of a task that this driver is alive."""
        task_id, epoch = owned.state.task_id, owned.writer.epoch
        with suppress(TreadleError):  # without the report it counts as crashed
            row = await self._store.row(task_id)
            if row.driver is not None and row.epoch > epoch:
                item = InboxItem(ids.survival_id(epoch), SURVIVED, {"epoch": epoch}, self._clock())
                await self._store.post(task_id, item)

    def _release_later(self, task_id: str, tries: int = 0) -> None:
        """Release an unreleased task once its store can be written again."""
        if task_id not in self._owned.unreleased or (tries == 0 and task_id in self._retries):
            return
        seconds = RELEASE_SECONDS[min(tries, len(RELEASE_SECONDS) - 1)]
        loop = asyncio.get_running_loop()

        def retry() -> None:
            work = loop.create_task(self.release_again(task_id))
            self._retries[task_id] = loop, work
            work.add_done_callback(tried)

        def tried(work: asyncio.Task[bool]) -> None:
            if not work.cancelled() and work.exception() is None and not work.result():
                self._release_later(task_id, tries + 1)
            else:
                self._retries.pop(task_id, None)

        self._retries[task_id] = loop, loop.call_later(seconds, retry)

    async def release_again(self, task_id: str) -> bool:
        """Try to release an unreleased task; False if the store still cannot be written."""
        if self._owned.is_owned(task_id) or task_id not in self._owned.unreleased:
            return True
        try:
            await self._claim_and_release(task_id)
        except StoreUnavailable:
            return False
        except TreadleError:
            return True  # no further try would succeed; a later caller gets the error
        return True

    async def close(self) -> None:
        """Try a last time to release every unreleased task, then stop trying."""
        for loop, retry in list(self._retries.values()):
            with suppress(RuntimeError):  # its loop is closed, and the retry with it
                loop.call_soon_threadsafe(retry.cancel)
        for task_id in list(self._owned.unreleased):
            await self.release_again(task_id)


def check_unmoved(task_id: str, head: int, expect: int | None) -> None:
    """Raise `TaskMoved` unless a task's journal still ends with the event that a caller expects.

    Args:
        task_id: the task.
        head: the last event of its journal.
        expect: the last event that the caller saw; None accepts any.
    """
    if expect is not None and head != expect:
        raise TaskMoved(
            f"task {task_id} has moved: event {head} is the last of its journal, but event {expect} was expected; "
            "read the task again",
            task_id=task_id,
            head=head,
        )


def _check_no_undo(state: TaskState) -> None:
    """Raise `UndoUnfinished` while an undo has begun and not ended."""
    if state.undo is not None:
        raise UndoUnfinished(
            f"task {state.task_id}: an undo to step {state.undo.to} has begun and not ended; call undo_step again, "
            "or settle the compensation it waits for",
            task_id=state.task_id,
        )


def recover(owned: OwnedTask) -> None:
    """Mark the calls that the last driver left open: reads may run again, and the outcome of writes is unknown."""
    state, writer = owned.state, owned.writer
    for step, request in state.begun_model_calls():
        writer.record(e.ModelStopped(step.id, "crash", request.id))
    for call in state.begun_calls():
        call_id = call.id if call.undo_status != "begun" else undo_id(call.id)
        writer.record(e.ToolStopped(call.step, call_id, "crash"))
