"""Commands to tasks: they go through the task's inbox, wherever its driver is, and waiting for what becomes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.random_ids import new_id
from treadle.drivers.task_cache import TaskCache
from treadle.engine.inbox import CHILD_ITEM
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import Fenced, TaskBusy, TaskTooNew
from treadle.ports import InboxItem, JournalStore, TaskRow


class TaskCommands:
    """Sends commands to tasks of one store and waits for tasks to stop.

    Args:
        store: where the inboxes are.
        cache: reads the tasks.
        owned: tells which tasks this process drives.
        ownership: acquires a task without a driver to read its inbox.
        read_inbox: reads the inbox of an owned task.
        clock: microseconds since 1970, UTC.
        vault: hides secrets in what is sent.
    """

    def __init__(
        self,
        store: JournalStore,
        cache: TaskCache,
        owned: OwnedTasks,
        ownership: TaskOwnership,
        read_inbox: Callable[[OwnedTask], Awaitable[Any]],
        clock: Callable[[], int],
        vault: Vault = NO_VAULT,
    ) -> None:
        self._store = store
        self._cache = cache
        self._owned = owned
        self._ownership = ownership
        self._read_inbox = read_inbox
        self._clock = clock
        self._vault = vault

    # ----------------------------------------------------------------------------------------- send

    async def send(
        self, task_id: str, kind: str, data: dict[str, Json], *, row: TaskRow | None = None
    ) -> str:
        """Post a command to a task's inbox and return its id; it is carried out here if the task has no driver.

        With `row`, a driver that the row names is left to read it; the caller is to look at the task again.
        """
        item_id = new_id()
        if self._vault.hide_in is not None:
            data = self._vault.known.hide_data(data)
        await self._store.post(task_id, InboxItem(item_id, kind, data, self._clock()))
        if row is not None and self._owned.is_driven(row):
            self._owned.read_inbox_soon(task_id)
            return item_id
        try:
            await self.attend(task_id)
        except TaskTooNew as refusal:
            posted = f"{refusal}. The {kind} is in the task's inbox, where its next driver finds it"
            raise TaskTooNew(posted, task_id=task_id, needs=refusal.needs, knows=refusal.knows) from None
        return item_id

    async def attend(self, task_id: str) -> None:
        """Have a task's inbox read: by its driver, or here and now if it has none."""
        if self._owned.read_inbox_soon(task_id):
            return
        try:
            async with self._ownership.acquire(task_id) as owned:
                await self._read_inbox(owned)
        except (TaskBusy, Fenced):
            # Its driver, in this process or another, finds the command in the inbox.
            self._owned.read_inbox_soon(task_id)

    async def tell_parents(self, row: TaskRow) -> None:
        """Tell every task above a child that the child may go on or has ended, so that it goes on with it."""
        while row.parent is not None:
            parent = await self._cache.row_or_none(row.parent)
            if parent is None or parent.state in END_STATES:
                return
            call = (await self._cache.load(row.task_id)).state.parent_call
            await self.send(row.parent, CHILD_ITEM, {"call": call})
            row = parent

    # -------------------------------------------------------------------------------------- outcome

    async def is_unread(self, task_id: str, item_id: str) -> bool:
        """Whether an item still lies in a task's inbox."""
        return any(item.item_id == item_id for item in await self._store.inbox(task_id))

    async def carried_out(self, task_id: str, item_id: str) -> None:
        """Return once a command was carried out and the task is at rest, or the task has ended and dismissed it."""
        await self.stopped(task_id)
        while await self.is_unread(task_id, item_id):
            # It arrived just when the driver had released the task, or had ended it, and was about to leave.
            await self.attend(task_id)
            await self.stopped(task_id)

    async def answer(self, task_id: str, item_id: str, *, after: int = 0) -> e.Event | None:
        """Return the event, with a number above `after`, that an inbox item became once it was read.

        None if the task has no driver to read it, or if it came too late to be an event: after the end.
        """
        with self._owned.watching(task_id) as task:
            while True:
                task.skip()
                unread = await self.is_unread(task_id, item_id)
                if not unread or not self._owned.is_driven(await self._cache.row(task_id)):
                    break
                await task.changed()
        records = await self._store.read(task_id, after=after)
        for _, event in events_with_epochs(task_id, records, after=after, previous=None if after else b""):
            if getattr(event, "inbox", None) == item_id:
                return event
        return None

    async def stopped(self, task_id: str, *, or_left: str | None = None) -> TaskRow:
        """Return a task's row once the task is at rest; with `or_left`, also once it has left that state."""
        with self._owned.watching(task_id) as task:
            while True:
                task.skip()
                if or_left is not None or not self._owned.is_owned(task_id):
                    row = await self._cache.row(task_id)
                    if not self._owned.is_driven(row) or (or_left is not None and row.state != or_left):
                        return row
                await task.changed()

    async def stopped_elsewhere(self, owned: OwnedTask, refusal: Fenced) -> TaskRow:
        """Return the row of a task that was taken over from this process, once it is at rest.

        Raises `refusal` if no other driver took it over.
        """
        task_id = owned.state.task_id
        if (await self._cache.row(task_id)).epoch == owned.writer.epoch:
            raise refusal
        return await self.stopped(task_id)

    async def paused_below(self, task_id: str) -> set[tuple[str, int]]:
        """Return the tasks below a task that are paused or interrupted, each with its epoch."""
        paused: set[tuple[str, int]] = set()
        for call in (await self._cache.load(task_id)).state.open_children():
            row = await self._cache.row_or_none(str(call.child))
            if row is not None and row.state not in END_STATES:
                if row.driver is None and row.state in ("paused", "interrupted"):
                    paused.add((row.task_id, row.epoch))
                paused |= await self.paused_below(row.task_id)
        return paused
