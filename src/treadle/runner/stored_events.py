"""Events read from a journal, each with its task, its agents and its tool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from treadle.core.codec import mentions
from treadle.core.deltas import for_watchers
from treadle.core.events import (
    AgentChanged,
    CallOccurrence,
    CallRequested,
    Event,
    EventOrigin,
    ModelReturned,
    Rewound,
    RouteChosen,
    ToolStarted,
    ToolStopped,
    explain_names,
)
from treadle.core.ids import base_call_id, content_name, undone_call
from treadle.core.journal import unfold
from treadle.core.state import TaskState
from treadle.core.team import AgentTrack
from treadle.drivers.driver import TaskDriver
from treadle.drivers.task_cache import TaskCache
from treadle.engine.time_slice import TimeSlice
from treadle.errors import JournalCorrupt, TaskNotFound
from treadle.ports import JournalStore, Record, TaskRow

_AGENT_OF_TASK: Final = ("task_created", "task_forked")
"""The kinds of events that name the agent of a new task."""


class StoredEvents:
    """Reads a task's events from its journal, and sets the task, the agents and the tool of each.

    Long journals are read in slices, so that the event loop can do other work meanwhile.

    Args:
        store: the store of the journal.
        task_id: the task.
        state: the state of the task, if the caller has it, which saves a search of earlier events.
    """

    def __init__(self, store: JournalStore, task_id: str, state: TaskState | None = None) -> None:
        explain_names()
        self._store = store
        self._task_id = task_id
        self._state = state
        self._origin: EventOrigin | None = None
        self._track = AgentTrack()
        self._names: dict[str, str] = {}
        """the names of called tools by the ids of their calls, from the events read so far"""

        self._writes: dict[str, bool] = {}
        """by the ids of calls whether they are writes of tools, from the events read so far"""

    async def after(self, seq: int, upto: int | None = None, *, whole: bool = False) -> Sequence[Event]:
        """Return the events after a sequence number; none for a task that was not created yet.

        Args:
            seq: the last event before them; it may only grow from call to call.
            upto: the last event; None for all.
            whole: also return the later events in the record of that event, which are decoded with it.
        """
        try:
            records = await self._store.read(self._task_id, after=seq, upto=upto)
            events = for_watchers(await self._decoded(records, seq, None if whole else upto))
            if events:
                await self.origin_at(seq)
        except TaskNotFound:
            return []
        for event in events:
            if self._origin is not None:
                event.origin = self._at(self._origin, event)
            call = self._call_of(event)
            if call is None:
                continue
            if (content := content_name(call)) is not None:
                event.tool_name = content
                continue
            if call not in self._names:
                await self._find_name(call, event.seq)
            event.tool_name = self._names.get(call, "")
            if isinstance(event, ToolStarted):
                self._writes[event.call] = _is_write(event)
            elif isinstance(event, ToolStopped) and event.reason != "parked":
                event.in_doubt = await self._is_write(event)
        return events

    async def origin_at(self, seq: int) -> EventOrigin:
        """Return the task and the agents on the path to it, at the first event that is read.

        Args:
            seq: the event before the first one, if none was read yet.

        Raises:
            TaskNotFound: there is no such task.
        """
        if self._origin is None:
            self._origin = await self._found_origin(seq)
        return self._origin

    async def _decoded(self, records: Sequence[Record], seq: int, upto: int | None = None) -> list[Event]:
        """Return the events of records after `seq`, verified."""
        read: list[Event] = []
        time_slice = TimeSlice()
        for _, events in unfold(self._task_id, records, after=seq, previous=None if seq else b""):
            read += events
            if time_slice.is_over:
                await time_slice.pause()
        while upto is not None and read and read[-1].seq > upto:
            read.pop()  # its record continues after it
        return read

    async def _find_name(self, call: str, before: int) -> None:
        """Remember the name of the tool of a call that was requested before an event."""
        call_state = self._state.find_call(call) if self._state is not None else None
        if call_state is not None:
            self._names[call] = call_state.name
            return
        for event in await events_that_mention(self._store, self._task_id, call, before):
            self._note_names(event)

    async def _is_write(self, stopped: ToolStopped) -> bool:
        """Return whether a stopped call is a write of a tool, by its last start."""
        if stopped.call not in self._writes:
            before = await events_that_mention(self._store, self._task_id, stopped.call, stopped.seq)
            starts = [each for each in before if isinstance(each, ToolStarted) and each.call == stopped.call]
            self._writes[stopped.call] = bool(starts) and _is_write(starts[-1])
        return self._writes[stopped.call]

    def _call_of(self, event: Event) -> str | None:
        """Return the call of an event, None without one; remember the calls in an answer."""
        if not isinstance(event, CallOccurrence):
            self._note_names(event)
            return None
        undoes = event.undoes if isinstance(event, ToolStarted) else None
        return base_call_id(undoes or undone_call(event.call))

    def _note_names(self, event: Event) -> None:
        if isinstance(event, (ModelReturned, RouteChosen)) and event.message is not None:
            self._names.update({call.id: call.name for call in event.message.tool_calls})
        elif isinstance(event, CallRequested):
            self._names[event.call] = event.name

    def _at(self, origin: EventOrigin, event: Event) -> EventOrigin:
        """Return the origin of an event, with the agent that had the task then; call it for events in order."""
        before, agent = self._track.agent, self._track.note(event)
        if type(event) is Rewound:
            agent = before
        if agent in ("", origin.agent_path[-1]):
            return origin
        return EventOrigin(origin.task_id, (*origin.agent_path[:-1], agent))

    async def _found_origin(self, seq: int) -> EventOrigin:
        """Return the task and the agents on the path to it, from the rows of its parents.

        After a handoff in a parent, its journal tells which agent called the task below it.
        """
        row = await self._store.row(self._task_id)
        if seq and not self._never_moved():
            for event in await _agents_in(self._store, row, seq):
                self._track.note(event)
        path = [row.agent]
        with suppress(TaskNotFound):  # a parent was deleted
            while row.parent is not None:
                child, row = row, await self._store.row(row.parent)
                path.insert(0, await self._caller(row, child.task_id))
        return EventOrigin(self._task_id, tuple(path))

    def _never_moved(self) -> bool:
        """Whether the task certainly had one agent all the time."""
        state = self._state
        return state is not None and state.forked_from is None and not state.versions

    async def _caller(self, row: TaskRow, child: str) -> str:
        """Return the agent of a task that called a task below it."""
        track, started = AgentTrack(), row.agent
        for event in await _agents_in(self._store, row, None, child):
            track.note(event)
            if isinstance(event, ToolStarted) and event.child == child:
                return track.agent or started
        return row.agent


def _is_write(started: ToolStarted) -> bool:
    """Return whether the outcome of a call is unknown if it is stopped; the call of an agent goes on with its task."""
    return started.effect == "write" and started.child is None


async def events_of_records(driver: TaskDriver, task_id: str, after: int, limit: int) -> Sequence[Event]:
    """Return events after a sequence number, `limit` or more: all those of the records that must be decoded.

    Raises:
        TaskNotFound: there is no such task.
        JournalCorrupt: an event cannot be read.
    """
    row = await driver.cache.row(task_id)
    if after >= row.head:
        return ()
    state = await state_if_readable(driver.cache, row) if after else None
    upto = min(after + limit, row.head)
    return await StoredEvents(driver.store, task_id, state).after(after, upto, whole=True)


async def state_if_readable(cache: TaskCache, row: TaskRow) -> TaskState | None:
    """Return the state of a task; None if its journal is unreadable."""
    try:
        return (await cache.load(row.task_id, row)).state
    except JournalCorrupt:
        return None


async def _agents_in(store: JournalStore, row: TaskRow, upto: int | None, *mentioned: str) -> Iterable[Event]:
    """Return the events from which an `AgentTrack` learns the agents of a task, and those that mention a text."""
    if row.format < AgentChanged.since and row.base is None:
        return ()
    records = await store.read(row.task_id, upto=upto)
    if any(mentions(record.data, (AgentChanged.kind,)) for record in records):
        return await _events_of(row.task_id, records, upto)
    return await _events_of(
        row.task_id, [each for each in records if mentions(each.data, (*_AGENT_OF_TASK, *mentioned))], upto
    )


async def events_that_mention(
    store: JournalStore, task_id: str, name: str, upto: int | None = None
) -> Sequence[Event]:
    """Return the events, up to a sequence number, of the records that contain a text, such as an id."""
    records = await store.read(task_id, upto=upto)
    quoted = (json.dumps(name, ensure_ascii=False),)
    return await _events_of(task_id, [each for each in records if mentions(each.data, quoted)], upto)


async def _events_of(task_id: str, records: Sequence[Record], upto: int | None) -> list[Event]:
    """Return the events of some records, all of which are trusted."""
    events_read: list[Event] = []
    time_slice = TimeSlice()
    for record in records:
        for _, events in unfold(task_id, (record,), previous=None):
            events_read += events
        if time_slice.is_over:
            await time_slice.pause()
    return [event for event in events_read if upto is None or event.seq <= upto]
