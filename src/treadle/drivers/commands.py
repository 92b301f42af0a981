"""Send commands to tasks through their inboxes, wherever their drivers are, and wait for the outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from treadle.core import codec, ids
from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Content, Json
from treadle.core.strict_json import is_same_json
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.random_ids import new_id
from treadle.drivers.task_cache import TaskCache
from treadle.engine.inbox import CHILD_ITEM, NOTED
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import (
    ConfigurationError,
    Fenced,
    NotFound,
    TaskBusy,
    TaskStateError,
    TaskTooNew,
)
from treadle.ports import InboxItem, JournalStore, TaskRow

T = TypeVar("T")

WINDOW: Final = 200
"""Number of events that are read at a time, newest first, to find the event of a command."""


NOT_CONTENT: Final = frozenset({"by", "expect", "reason", "wanted"})
"""Data of a command that may differ in a repeat: its caller, the caller's last event, the reason and the driver."""


class CarriedOut(Exception):
    """A command of this id was carried out before, as `event`. Never raised to users."""

    def __init__(self, event: e.Event) -> None:
        super().__init__(f"it became event {event.seq}")
        self.event = event


def encoded(parts: Sequence[Content]) -> list[Json]:
    """Return the parts of a message as JSON data, for comparing the content of commands."""
    return [codec.encode_part(part) for part in parts]


def of_another(task_id: str, command_id: str | None, event: e.Event) -> ConfigurationError:
    """Return the error for a command id that belongs to another command, which became an event."""
    return ConfigurationError(
        f"task {task_id}: command_id {command_id!r} belongs to another command, which became event "
        f"{event.seq}, {event.kind}: take another id"
    )


class TaskCommands:
    """Sends commands to tasks of one store and waits for tasks to stop.

    Args:
        store: has the inboxes.
        cache: reads the tasks.
        owned: the tasks that this process drives.
        ownership: acquires a task without a driver to read its inbox.
        read_inbox: reads the inbox of an owned task.
        clock: microseconds since 1970, UTC.
        vault: masks secrets in commands.
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
        self,
        task_id: str,
        kind: str,
        data: dict[str, Json],
        *,
        row: TaskRow | None = None,
        command_id: str | None = None,
        number: int = 1,
    ) -> str:
        """Post a command to a task's inbox and return its id there; carry it out here if the task has no driver.

        With `row`, the driver in the row reads it, and the caller must read the task again. With `command_id`, raises
        `CarriedOut` if a command of that id was carried out before. `number` counts the sends, since a task that ends
        dismisses unread items.
        """
        item_id = new_id() if command_id is None else ids.command_item_id(command_id, number)
        data = self.without_secrets(data)
        item = InboxItem(item_id, kind, data, self._clock())
        if not await self._store.post(task_id, item):
            await self._check_repeat(task_id, command_id, item)
        if row is not None and self._owned.is_driven(row):
            self._owned.read_inbox_soon(task_id)
            return item_id
        try:
            await self.attend(task_id)
        except TaskTooNew as refusal:
            posted = f"{refusal}. The {kind} is in the task's inbox, where its next driver finds it"
            raise TaskTooNew(posted, task_id=task_id, needs=refusal.needs, knows=refusal.knows) from None
        return item_id

    # --------------------------------------------------------------------------------------- repeats

    async def once(
        self,
        task_id: str,
        command_id: str | None,
        kinds: tuple[type[e.Event], ...],
        carry_out: Callable[[], Awaitable[T]],
        repeated: Callable[[e.Event], Awaitable[T]],
    ) -> T:
        """Carry a command out and return its result; return that of `repeated` if it was carried out before.

        The first command changed the task, so a repeat usually does not fit any more. Hence an error counts only if no
        command of that id was carried out.

        Args:
            task_id: the task.
            command_id: the id that the caller chose; None if it chose none.
            kinds: the events of the command; if `CommandRejected` is one of them, `repeated` handles a rejection too.
            carry_out: carries it out; raises `CarriedOut` if it was carried out before.
            repeated: receives the event of the first command.

        Raises:
            ConfigurationError: a command of another kind had that id.
            TaskStateError: the command was rejected.
        """
        try:
            return await carry_out()
        except CarriedOut as before:
            event = before.event
        except (ConfigurationError, NotFound, TaskStateError) as error:
            if command_id is None:
                raise
            event = await self.event_of(getattr(error, "task_id", None) or task_id, command_id)
            if event is None:
                raise
        if isinstance(event, e.CommandRejected) and e.CommandRejected not in kinds:
            raise TaskStateError(f"task {task_id}: {event.reason}", task_id=task_id)
        if not isinstance(event, kinds):
            raise of_another(task_id, command_id, event)
        return await repeated(event)

    async def note(
        self, owned: OwnedTask, command_id: str | None, *, sent_as: str | None = None
    ) -> str | None:
        """Record the id of a command that the owner carries out itself; return the inbox id for its events.

        The commit of an event that names the inbox id removes the item. If no such event is committed, the item is
        dismissed.

        Args:
            owned: the task.
            command_id: the id that the caller chose; None if it chose none.
            sent_as: the kind of inbox item if the same command is sent to a driver; None if it never is.

        Raises:
            CarriedOut: a command of that id was carried out before.
            ConfigurationError: another command of that id is still unread.
        """
        if command_id is None:
            return None
        item_id = ids.command_item_id(command_id)
        task_id, now = owned.state.task_id, self._clock()
        if not await self._store.post(task_id, InboxItem(item_id, NOTED, {}, now)):
            await self._check_repeat(task_id, command_id, InboxItem(item_id, sent_as or "", {}, now))
        return item_id

    async def _check_repeat(self, task_id: str, command_id: str | None, item: InboxItem) -> None:
        """Raise `CarriedOut` if the command of an item was carried out before.

        Raises `ConfigurationError` if another command of this id is still unread.
        """
        # The inbox first: an item that has left it is in the journal by now.
        unread = [each for each in await self._store.inbox(task_id) if each.item_id == item.item_id]
        if unread and not _may_be_same(unread[0], item):
            raise ConfigurationError(
                f"task {task_id}: command_id {command_id!r} belongs to another command, the {unread[0].kind} that "
                "the task is about to read: take another id"
            )
        await self.check_new(task_id, command_id)

    def check_same(
        self, task_id: str, command_id: str | None, event: e.Event, recorded: Any, content: Any
    ) -> None:
        """Raise `ConfigurationError` if a repeated command differs from the first one of its id.

        Args:
            task_id: the task.
            command_id: the id of both commands.
            event: the event of the first one.
            recorded: the content of that event, as JSON data.
            content: the content of the repeated command.
        """
        if not is_same_json(recorded, self.without_secrets(content)):
            raise of_another(task_id, command_id, event)

    def without_secrets(self, data: Any) -> Any:
        """Return the content of a command without the secrets that this process knows, as it is sent."""
        return data if self._vault.hide_in is None else self._vault.known.hide_data(data)

    async def check_new(self, task_id: str, command_id: str | None) -> None:
        """Raise `CarriedOut` if a command of this id was carried out before."""
        event = await self.event_of(task_id, command_id) if command_id is not None else None
        if event is not None:
            raise CarriedOut(event)

    async def check_new_in(self, task_ids: Iterable[str], command_id: str | None) -> None:
        """Raise `CarriedOut` if any of several tasks carried out a command of this id before."""
        for task_id in task_ids if command_id is not None else ():
            await self.check_new(task_id, command_id)

    async def event_of(self, task_id: str, command_id: str) -> e.Event | None:
        """Return the event of a command of this id; None if it was not carried out yet."""
        row = await self._cache.row(task_id)
        upto = row.head
        while upto > row.base_seq:  # earlier events belong to the forked task
            after = max(row.base_seq, upto - WINDOW)
            records = await self._store.read(task_id, after=after, upto=upto)
            for _, event in events_with_epochs(task_id, records, after=after, previous=None):
                if ids.is_of_command(getattr(event, "inbox", None) or "", command_id):
                    return event
            upto = after
        return None

    # --------------------------------------------------------------------------------------- reading

    async def attend(self, task_id: str) -> None:
        """Wake a task's driver to read its inbox; read it here if the task has no driver."""
        if self._owned.read_inbox_soon(task_id):
            return
        try:
            async with self._ownership.acquire(task_id) as owned:
                await self._read_inbox(owned)
        except (TaskBusy, Fenced):
            # Its driver, in any process, finds the command in the inbox.
            self._owned.read_inbox_soon(task_id)

    async def tell_parents(self, row: TaskRow) -> None:
        """Notify the tasks above a child that may go on or has ended, so that they continue with it."""
        while row.parent is not None:
            parent = await self._cache.row_or_none(row.parent)
            if parent is None or parent.state in END_STATES:
                return
            call = (await self._cache.load(row.task_id)).state.parent_call
            await self.send(row.parent, CHILD_ITEM, {"call": call})
            row = parent

    # -------------------------------------------------------------------------------------- outcome

    async def is_unread(self, task_id: str, item_id: str) -> bool:
        """Return whether an item is still in a task's inbox."""
        return any(item.item_id == item_id for item in await self._store.inbox(task_id))

    async def contradicted(
        self, task_id: str, item_id: str, kinds: tuple[str, ...], name: str
    ) -> InboxItem | None:
        """Return an earlier inbox item that decides differently from a given one; None without one.

        Args:
            task_id: the task.
            item_id: the id of the item that decides a request or completes a ticket.
            kinds: the kinds of such items.
            name: the field that names the request or the ticket.
        """
        waiting = [item for item in await self._store.inbox(task_id) if item.kind in kinds]
        own = next((item for item in waiting if item.item_id == item_id), None)
        if own is None:  # it was read
            return None
        first = next(item for item in waiting if item.data[name] == own.data[name])
        is_same = first.kind == own.kind and is_same_json(_decision(first), _decision(own))
        return None if is_same else first

    async def is_left_for_another(self, task_id: str, command_id: str) -> bool:
        """Return whether the owner of a busy task drives it for another command; False once the task may be acquired.

        The owner gets an item, which it dismisses when it reads its inbox: by then it has recorded its command. Raises
        `CarriedOut` if it recorded the command of this id.
        """
        await self.check_new(task_id, command_id)
        question = InboxItem(new_id(), NOTED, {}, self._clock())
        owner = await self._cache.row(task_id)
        if not self._owned.is_driven(owner):
            return False
        await self._store.post(task_id, question)
        self._owned.read_inbox_soon(task_id)
        with self._owned.watching(task_id) as task:
            while True:
                task.skip()
                is_read = not await self.is_unread(task_id, question.item_id)
                row = await self._cache.row(task_id)
                if not self._owned.is_driven(row) or row.epoch != owner.epoch:
                    return False
                if is_read:
                    await self.check_new(task_id, command_id)
                    return True
                await task.changed()

    async def carried_out(self, task_id: str, item_id: str) -> None:
        """Return once the command was carried out and the task has stopped, or the task has ended and dismissed it."""
        await self.stopped(task_id)
        while await self.is_unread(task_id, item_id):
            # It arrived just after the driver had released or ended the task.
            await self.attend(task_id)
            await self.stopped(task_id)

    async def answer(self, task_id: str, item_id: str, *, after: int = 0) -> e.Event | None:
        """Return the event after `after` that an inbox item became, once it was read.

        None if the task has no driver to read it, or the item came after the end.
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
        """Return a task's row once the task has stopped or has left the state `or_left`."""
        with self._owned.watching(task_id) as task:
            while True:
                task.skip()
                if or_left is not None or not self._owned.is_owned(task_id):
                    row = await self._cache.row(task_id)
                    if not self._owned.is_driven(row) or (or_left is not None and row.state != or_left):
                        return row
                await task.changed()

    async def stopped_elsewhere(self, owned: OwnedTask, refusal: Fenced) -> TaskRow:
        """Return the row of a task that another process took over, once the task has stopped.

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


def _may_be_same(unread: InboxItem, item: InboxItem) -> bool:
    """Return whether two items of one id may be the same command; a note has only the id of its command."""
    if NOTED in (unread.kind, item.kind):
        return True
    content = (unread.data.keys() & item.data.keys()) - NOT_CONTENT
    return unread.kind == item.kind and all(
        is_same_json(unread.data[name], item.data[name]) for name in content
    )


def _decision(item: InboxItem) -> Json:
    """Return the data of a decision without its sender and reason, which do not matter."""
    return {name: value for name, value in item.data.items() if name not in ("by", "reason", "stop")}
