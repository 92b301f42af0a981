"""Waiting until a task has stopped as a caller asked: the rule is in `core.stop_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.core.events import END_STATES
from treadle.core.journal import unfold
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.core.stop_requests import Fate, StopKind, fate_of
from treadle.ports import TaskRow

if TYPE_CHECKING:
    from treadle.drivers.driver import TaskDriver


async def stop(driving: TaskDriver, task_id: str, kind: StopKind, data: dict[str, Json]) -> TaskState:
    """Have a task cancelled, paused or interrupted, and return its state at the moment at which that was reached.

    Of a task that has ended it is the state at its end. Callers read it before they await anything: it may be shared.
    """
    while True:
        row = await driving.row(task_id)
        if row.state in END_STATES:
            state = await _at_rest(driving, row)
        else:
            item_id = await driving.command(task_id, kind, data)
            state = await _Stop(driving, task_id, kind, item_id, after=row.head).reached()
        if state is not None:
            return state


class _Stop:
    """One request to stop a task that was sent: `after` is an event that was there before it."""

    def __init__(
        self, driving: TaskDriver, task_id: str, kind: StopKind, item_id: str, *, after: int
    ) -> None:
        self._driving = driving
        self._task_id = task_id
        self._kind = kind
        self._item_id = item_id
        self._after = after

    async def reached(self) -> TaskState | None:
        """Return the task's state once the request is obeyed or lifted; None when its attempt ended without it."""
        driving, desk, task_id = self._driving, self._driving.desk, self._task_id
        watcher = desk.channels.subscribe(task_id, deltas=False)
        try:
            while True:
                watcher.skip()
                # The inbox first: what is not there any more is in the journal by now.
                unread = await driving.is_unread(task_id, self._item_id)
                fate = Fate("in_force") if unread else await self._fate()
                if fate.kind == "unrecorded":
                    return None
                if fate.kind == "lifted":
                    before = await desk.state_at(task_id, fate.seq)
                    return await self._next_stop() if before.in_flight() else before
                row = await driving.row(task_id)
                if fate.kind == "ended" and not self._is_being_released():
                    return await self._end(fate.seq, row)
                if desk.is_driven(row):
                    await watcher.wait(desk.patience(task_id))
                elif unread or self._lacks_driver(row, fate):
                    await driving.attend(task_id)
                elif (state := await _at_rest(driving, row)) is not None and self._is_obeyed(state):
                    return state
        finally:
            desk.channels.unsubscribe(task_id, watcher)

    def _lacks_driver(self, row: TaskRow, fate: Fate) -> bool:
        """Whether the request is recorded and no driver is left to obey it: it crashed, or gave the task back early."""
        if row.state in END_STATES:
            return False
        return row.driver is not None or self._kind == "cancel" or fate.kind == "refused"

    def _is_obeyed(self, state: TaskState) -> bool:
        """Whether a task at rest is as it was asked to be: it may have been lifted since the journal was read."""
        if state.ended is not None:
            return True
        return state.pausing if self._kind == "pause" else state.interrupting

    def _is_being_released(self) -> bool:
        """Whether the driver that ended the task, in this process, is still to give it back."""
        desk = self._driving.desk
        return desk.is_owned(self._task_id) and desk.owned[self._task_id].state.ended is not None

    async def _end(self, seq: int, row: TaskRow) -> TaskState:
        """Return the state in which the task ended at an event; most often that is how it stands now."""
        state = await _at_rest(self._driving, row) if row.state in END_STATES else None
        if state is not None and state.end_seq == seq:
            return state
        return await self._driving.desk.state_at(self._task_id, seq)

    async def _fate(self) -> Fate:
        records = await self._driving.store.read(self._task_id, after=self._after)
        found = unfold(self._task_id, records, after=self._after, previous=None if self._after else b"")
        return fate_of(self._item_id, (event for _, events in found for event in events))

    async def _next_stop(self) -> TaskState:
        while True:
            row = await self._driving.stopped(self._task_id)
            if (state := await _at_rest(self._driving, row)) is not None:
                return state


async def _at_rest(driving: TaskDriver, row: TaskRow) -> TaskState | None:
    """Return the state of a task at rest; None if it went on since its row was read."""
    state = (await driving.desk.load(row.task_id, row)).state
    return state if state.seq == row.head else None
