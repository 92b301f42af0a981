"""Cancel, pause or interrupt a task, and wait until it has stopped as requested.

A request is an inbox item that the owner turns into an event. The call that sent it returns once it was obeyed:

    cancel               the task has ended. A cancel is never lifted.
    pause, interrupt     the request is in force and the task's calls have stopped; or the task has ended.

A pause or an interrupt is in force until a `Resumed` event. If no call ran when that was recorded, the request was
obeyed first and lifted afterwards. The caller gets the state in between. If a call still ran, the request was lifted
before it was obeyed. The caller gets the state when the task stops next. A pause and an interrupt that are both in
force are obeyed together, and the task is `paused`. A request that the owner never recorded came too late for its
attempt: it is sent again if another attempt has begun.

    5  tool_started
    6  pause_requested     pause() waits, since a call runs
    7  tool_ended          the request is obeyed: the task is released, `paused`
    8  resumed             pause() returns the state as of event 7, however late it looks

Without event 7, `resumed` would have lifted the pause before it was obeyed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, Literal, TypeAlias

from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.events import END_STATES
from treadle.core.journal import unfold
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.drivers.commands import CarriedOut, TaskCommands, of_another
from treadle.drivers.owned_tasks import OwnedTasks
from treadle.drivers.task_cache import TaskCache
from treadle.engine.inbox import NOTED
from treadle.ports import JournalStore, TaskRow

StopKind: TypeAlias = Literal["cancel", "pause", "interrupt"]


@frozen
class Fate:
    """The fate of a request.

    Args:
        kind: `unrecorded`: it has no event. `refused`: the task is being cancelled. `in_force`. `lifted`: by the event
            after `seq`. `ended`: the task ended at `seq`.
        seq: the last event under which the request was in force.
    """

    kind: Literal["unrecorded", "refused", "in_force", "lifted", "ended"]
    seq: int = 0


def fate_of(item_id: str, events: Iterable[e.Event]) -> Fate:
    """Return the fate of the request with this inbox id, from the events since it was sent."""
    request: e.Event | None = None
    for event in events:
        if request is None:
            if getattr(event, "inbox", None) == item_id:
                request = event
        elif isinstance(event, e.TaskEnded):
            return Fate("ended", event.seq)
        elif isinstance(event, e.Resumed) and isinstance(request, (e.PauseRequested, e.InterruptRequested)):
            return Fate("lifted", event.seq - 1)
    if request is None:
        return Fate("unrecorded")
    return Fate("refused" if isinstance(request, e.CommandRejected) else "in_force")


_REQUESTS: Final[dict[StopKind, type[e.Event]]] = {
    "cancel": e.CancelRequested,
    "pause": e.PauseRequested,
    "interrupt": e.InterruptRequested,
}


class TaskStopper:
    """Cancels, pauses and interrupts tasks of one store.

    Args:
        store: has the journals.
        cache: reads the tasks.
        owned: the tasks that this process drives.
        commands: sends the requests.
    """

    def __init__(
        self, store: JournalStore, cache: TaskCache, owned: OwnedTasks, commands: TaskCommands
    ) -> None:
        self._store = store
        self._cache = cache
        self._owned = owned
        self._commands = commands

    async def stop(
        self, task_id: str, kind: StopKind, data: dict[str, Json], command_id: str | None = None
    ) -> TaskState:
        """Cancel, pause or interrupt a task, and return its state when the request was obeyed.

        A task that has ended returns its final state. Callers must read the state before they await anything, since it
        may be shared. A repeated command waits like the first one.

        Raises:
            ConfigurationError: a command of another kind has that id.
        """
        state = None
        while state is None:
            row = await self._cache.row(task_id)
            try:
                if row.state in END_STATES:
                    if command_id is not None:  # a repeat must not stop a later attempt
                        await self._commands.send(task_id, NOTED, {}, command_id=command_id)
                    state = await self._stopped_state(row)
                    continue
                item_id = await self._commands.send(task_id, kind, data, row=row, command_id=command_id)
            except CarriedOut as before:
                item_id, after = str(getattr(before.event, "inbox", None)), before.event.seq - 1
            else:
                after = row.head
            state = await self._reached(task_id, kind, item_id, command_id, after=after)
            if state is None and command_id is not None:
                # Its attempt has ended, and it must not stop a later one.
                state = (await self._cache.load(task_id)).state
        return state

    async def _reached(
        self, task_id: str, kind: StopKind, item_id: str, command_id: str | None, *, after: int
    ) -> TaskState | None:
        """Return the task's state once a request is obeyed or lifted; None if its attempt ended without it.

        `after` is an event from before the request.
        """
        with self._owned.watching(task_id) as task:
            while True:
                task.skip()
                # The inbox first: an item that has left it is in the journal by now.
                unread = await self._commands.is_unread(task_id, item_id)
                fate = Fate("in_force")
                if not unread:
                    fate = await self._fate(task_id, kind, item_id, command_id, after)
                if fate.kind == "unrecorded":
                    return None
                if fate.kind == "lifted":
                    before = await self._cache.state_at(task_id, fate.seq)
                    return await self._next_stop(task_id) if before.in_flight() else before
                row = await self._cache.row(task_id)
                if fate.kind == "ended" and not self._is_being_released(task_id):
                    return await self._end(fate.seq, row)
                if self._owned.is_driven(row):
                    await task.changed()
                elif unread or _lacks_driver(row, kind, fate):
                    await self._commands.attend(task_id)
                elif (state := await self._stopped_state(row)) is not None and _is_obeyed(state, kind):
                    return state

    def _is_being_released(self, task_id: str) -> bool:
        """Return whether the driver in this process that ended the task has not released it yet."""
        return self._owned.is_owned(task_id) and self._owned.tasks[task_id].state.ended is not None

    async def _end(self, seq: int, row: TaskRow) -> TaskState:
        """Return the state of the task at its end, usually its present state."""
        state = await self._stopped_state(row) if row.state in END_STATES else None
        if state is not None and state.end_seq == seq:
            return state
        return await self._cache.state_at(row.task_id, seq)

    async def _fate(
        self, task_id: str, kind: StopKind, item_id: str, command_id: str | None, after: int
    ) -> Fate:
        records = await self._store.read(task_id, after=after)

        def checked() -> Generator[e.Event]:
            for _, events in unfold(task_id, records, after=after, previous=None if after else b""):
                for event in events:
                    is_own = getattr(event, "inbox", None) == item_id
                    if is_own and not _may_have_become(
                        kind, event
                    ):  # it is no stop, so it cannot be obeyed or lifted
                        raise of_another(task_id, command_id, event)
                    yield event

        return fate_of(item_id, checked())

    async def _next_stop(self, task_id: str) -> TaskState:
        while True:
            row = await self._commands.stopped(task_id)
            if (state := await self._stopped_state(row)) is not None:
                return state

    async def _stopped_state(self, row: TaskRow) -> TaskState | None:
        """Return the state of a stopped task; None if it went on since its row was read."""
        state = (await self._cache.load(row.task_id, row)).state
        return state if state.seq == row.head else None


def _may_have_become(kind: StopKind, event: e.Event) -> bool:
    """Return whether a request of this kind may have become an event."""
    if isinstance(event, e.CommandRejected):
        return event.command == kind
    return isinstance(event, _REQUESTS[kind])


def _lacks_driver(row: TaskRow, kind: StopKind, fate: Fate) -> bool:
    """Return whether no driver will obey a recorded request, since it crashed or released the task early."""
    if row.state in END_STATES:
        return False
    return row.driver is not None or kind == "cancel" or fate.kind == "refused"


def _is_obeyed(state: TaskState, kind: StopKind) -> bool:
    """Return whether a stopped task is in the requested state, although the stop may have been lifted since."""
    if state.ended is not None:
        return True
    return state.pausing if kind == "pause" else state.interrupting
