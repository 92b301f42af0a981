"""Streams of events: watching a task, and running one while watching it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from treadle.core.events import (
    AgentChanged,
    CallOccurrence,
    CallRequested,
    Ephemeral,
    Event,
    EventOrigin,
    ModelReturned,
    RawChunk,
    Rewound,
    RouteChosen,
    ToolStarted,
    explain_names,
)
from treadle.core.ids import base_call_id, content_name, undone_call
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json
from treadle.core.team import AgentTrack
from treadle.core.unknown_names import explains_names
from treadle.core.withheld import for_watchers
from treadle.drivers.owned_tasks import OwnedTasks
from treadle.engine.broadcast import Stopped, Watcher
from treadle.engine.results import RunResult, TaskStepOutput
from treadle.errors import TaskNotFound, TaskUnfinished
from treadle.ports import JournalStore, OutputT_co, TaskRow
from treadle.runner.verbs import refuses

if TYPE_CHECKING:
    from treadle.engine.typed_answers import TypedAnswers

R_co = TypeVar("R_co", covariant=True)


async def watch(
    tasks: OwnedTasks,
    task_id: str,
    watcher: Watcher | None = None,
    *,
    after: int,
    deltas: bool,
    raw: bool = False,
    over: Callable[[bool], Awaitable[bool]],
) -> AsyncGenerator[Event | Ephemeral, None]:
    """Yield a task's events after a sequence number, each once and in order, until it is over.

    A delta is held back until the events before it were yielded, and left out once later ones were. What the watcher
    is not shown is read from the journal. Without a watcher it makes one at the first event that is asked for, and
    reads earlier events from the journal too. `over` is called when the task may have stopped, with whether it is known
    to have been released here.
    """
    behind = watcher is None
    watcher = watcher if watcher is not None else tasks.channels.subscribe(task_id, deltas=deltas, raw=raw)
    last = after
    held: deque[Ephemeral] = deque()
    stopped, final = False, None
    stored: StoredEvents | None = None
    try:
        while True:
            ended = False
            if watcher.look or stopped:
                watcher.look = False
                ended = await over(stopped and final is not None)
            stopped = False
            for item in watcher.take():
                if isinstance(item, Ephemeral):
                    if not watcher.raw and isinstance(item, RawChunk):
                        continue
                    if deltas and item.after == last:
                        yield item
                    elif deltas and item.after > last:
                        held.append(item)
                    continue  # of a delta before `last`, what it announced was read from the journal already
                if isinstance(item, Stopped):
                    stopped, final = True, item.seq
                elif item.seq == last + 1:
                    last = item.seq
                    yield item
                elif item.seq > last:
                    behind = True
                while held and held[0].after <= last:
                    yield held.popleft()
            if behind or watcher.missed or (ended and last != final):
                watcher.missed = behind = False
                stored = stored or StoredEvents(tasks.store, task_id)
                for event in await stored.after(last):
                    last = event.seq
                    yield event
                while held and held[0].after <= last:
                    delta = held.popleft()
                    if delta.after == last:  # the events that earlier deltas announced were yielded
                        yield delta
            if ended:
                return
            if not stopped:
                await watcher.wait(tasks.patience(task_id))
    finally:
        tasks.channels.unsubscribe(task_id, watcher)


@refuses(
    iter="write `async for event in handle.events()`; without asyncio, "
    "`for event in runner.sync.handle(task).events()`",
    await_="write `async for event in handle.events()`",
)
class WatchedEvents(AsyncGenerator[Event | Ephemeral, None]):
    """The events that `watch` yields."""

    __slots__ = ("_events",)

    def __init__(self, events: AsyncGenerator[Event | Ephemeral, None]) -> None:
        self._events = events

    def __anext__(self) -> Coroutine[Any, Any, Event | Ephemeral]:
        return self._events.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, Event | Ephemeral]:
        return self._events.asend(value)

    def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> Coroutine[Any, Any, Event | Ephemeral]:
        return self._events.athrow(typ if val is None else val)

    def aclose(self) -> Coroutine[Any, Any, None]:
        return self._events.aclose()


class StoredEvents:
    """Reads a task's events from its journal, and says of each which task, agents and tool it tells of.

    Args:
        store: where the journal is.
        task_id: the task.
    """

    def __init__(self, store: JournalStore, task_id: str) -> None:
        explain_names()
        self._store = store
        self._task_id = task_id
        self._origin: EventOrigin | None = None
        self._track = AgentTrack()
        self._names: dict[str, str] = {}
        """the names of called tools, by the ids of the calls that were asked for in the events read so far"""

    async def after(self, seq: int) -> Sequence[Event]:
        """Return the events after a sequence number; none if the task was never made: its creator raises the error."""
        try:
            events = await self._read(seq)
            if events and self._origin is None:
                self._origin = await self._found_origin(seq)
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
                for earlier in await self._read(0, event.seq):
                    self._note_names(earlier)
            event.tool_name = self._names.get(call, "")
        return events

    async def _read(self, seq: int, upto: int | None = None) -> Sequence[Event]:
        records = await self._store.read(self._task_id, after=seq, upto=upto)
        found = events_with_epochs(self._task_id, records, after=seq, previous=None if seq else b"")
        return for_watchers([event for _, event in found])

    def _call_of(self, event: Event) -> str | None:
        """Return which call an event tells of; None if of none. What an answer asks for is noted."""
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
        """Return where an event comes from, by the agent that the task was with then; events come in order."""
        before, agent = self._track.agent, self._track.note(event)
        if type(event) is Rewound:
            agent = before
        if agent in ("", origin.agent_path[-1]):
            return origin
        return EventOrigin(origin.task_id, (*origin.agent_path[:-1], agent))

    async def _found_origin(self, seq: int) -> EventOrigin:
        """Return the task with the agents on the path to it, as the rows of its parents tell.

        Where the conversation of a parent moved, its journal tells whose call the task below it is.
        """
        row = await self._store.row(self._task_id)
        if seq and row.format >= AgentChanged.since:
            for event in await self._read(0, seq):
                self._track.note(event)
        path = [row.agent]
        with suppress(TaskNotFound):  # a parent was deleted
            while row.parent is not None:
                child, row = row, await self._store.row(row.parent)
                moved = row.format >= AgentChanged.since
                path.insert(0, await self._caller(row, child.task_id) if moved else row.agent)
        return EventOrigin(self._task_id, tuple(path))

    async def _caller(self, row: TaskRow, child: str) -> str:
        """Return the agent of a task that called a task below it."""
        track = AgentTrack()
        for _, event in events_with_epochs(row.task_id, await self._store.read(row.task_id)):
            track.note(event)
            if isinstance(event, ToolStarted) and event.child == child:
                return track.agent
        return row.agent


_OPENING = "write `async with runner.run_stream(...) as stream`, then `async for event in stream`"
_WITHOUT_ASYNCIO = "; without asyncio, `with runner.sync.run_stream(...) as stream` and a plain `for`"


@refuses(iter=_OPENING + _WITHOUT_ASYNCIO, enter=_OPENING + _WITHOUT_ASYNCIO, await_=_OPENING)
@explains_names("stream")
class TaskStream(Generic[R_co]):
    """A task that is driven while its caller iterates over its events; leaving the block early interrupts it."""

    statement = "async with"
    """what opens the stream, for messages"""

    def __init__(
        self,
        tasks: OwnedTasks,
        task_id: str,
        work: Callable[[], Awaitable[R_co]],
        standing: Callable[[], Awaitable[R_co]] | None = None,
        *,
        raw: bool = False,
    ) -> None:
        self._tasks = tasks
        self._raw = raw
        self.task_id = task_id
        self._work = work
        self._standing = standing
        self._left: R_co | None = None
        self._task: asyncio.Task[R_co] | None = None
        self._watcher: Watcher | None = None
        self._events: AsyncGenerator[Event | Ephemeral, None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.cache.open()
        after = await self._head()
        self._watcher = watcher = self._tasks.channels.subscribe(self.task_id, raw=self._raw)

        async def work() -> R_co:
            return await self._work()

        self._task = asyncio.ensure_future(work())

        def ended(task: asyncio.Task[R_co]) -> None:
            watcher.look_again()
            if not task.cancelled():
                task.exception()  # retrieved, also where the caller was cancelled while it left

        self._task.add_done_callback(ended)
        self._events = watch(self._tasks, self.task_id, watcher, after=after, deltas=True, over=self._over)
        return self

    async def _head(self) -> int:
        """Return where the task's journal ends before this stream drives it on."""
        return 0

    async def _over(self, released: bool) -> bool:
        return self._task is not None and self._task.done()

    def __aiter__(self) -> AsyncIterator[Event | Ephemeral]:
        if self._events is None:
            raise self._not_open()
        return self._events

    def _not_open(self) -> TaskUnfinished:
        text = f"the stream is not open: write `{self.statement} ... as stream:`, and iterate over it in that block"
        return TaskUnfinished(text, task_id=self.task_id)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._watcher is not None
        assert self._events is not None
        cancelled: asyncio.CancelledError | None = None
        try:
            if not self._task.done():
                self._task.cancel()
            while not self._task.done():
                # A cancel scope delivers its cancellation at every await, and a caller may be cancelled twice: the
                # task stops within its grace, and does not run on after the block.
                try:
                    await asyncio.wait([self._task])
                except asyncio.CancelledError as again:
                    cancelled = again
            await self._events.aclose()
        finally:
            self._tasks.channels.unsubscribe(self.task_id, self._watcher)
        if cancelled is not None:
            raise cancelled
        if self._task.cancelled():
            with suppress(TaskNotFound):
                self._left = await self._standing() if self._standing is not None else None
        elif error is None:
            self._task.result()
        else:
            self._task.exception()  # retrieved: the caller gets the error of its own block

    def _value(self) -> R_co:
        if self._left is not None:
            return self._left
        if self._task is None:
            raise self._not_open()
        if not self._task.done():
            raise TaskUnfinished(
                "the stream has not ended yet: read it to its end first", task_id=self.task_id
            )
        if self._task.cancelled():
            raise TaskUnfinished("the stream was left before its end", task_id=self.task_id)
        return self._task.result()


class EventStream(TaskStream[RunResult[OutputT_co]], Generic[OutputT_co]):
    """A run with its events; `result` when they have ended."""

    def __init__(
        self,
        tasks: OwnedTasks,
        task_id: str,
        work: Callable[[], Awaitable[RunResult[OutputT_co]]],
        standing: Callable[[], Awaitable[RunResult[OutputT_co]]] | None = None,
        typed_of: Callable[[str | None], TypedAnswers | None] = lambda _: None,
        *,
        raw: bool = False,
    ) -> None:
        super().__init__(tasks, task_id, work, standing, raw=raw)
        self._typed_of = typed_of

    @overload
    def partials(self, *, checked: Literal[True]) -> AsyncGenerator[OutputT_co, None]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> AsyncGenerator[Json, None]: ...
    def partials(self, *, checked: bool = False) -> AsyncGenerator[Any, None]:
        """Yield, instead of the events, the answer that is being written, each time that there is more of it.

        Of a typed answer it is JSON data, with what is not written yet left out and nothing checked; else it is text.
        A wrong answer is followed by the next one, from its beginning. The answer itself is in `result`.

        Args:
            checked: yield only what is of the agent's output type already, as that type: lists and mappings grow item
                by item, and objects appear once all that they require is written.
        """
        from treadle.runner.partials import partials

        return partials(aiter(self), self._typed_of, checked=checked)

    @property
    def result(self) -> RunResult[OutputT_co]:
        """What `run` would have returned, or how the task stands if the stream was left early.

        Raises `TaskUnfinished` before the stream's end.
        """
        return self._value()


class StepStream(TaskStream[TaskStepOutput[OutputT_co]], Generic[OutputT_co]):
    """One step with its events; `output` when they have ended."""

    async def _head(self) -> int:
        return (await self._tasks.store.row(self.task_id)).head

    @property
    def output(self) -> TaskStepOutput[OutputT_co]:
        """What `run_step` would have returned; raises `TaskUnfinished` before the stream's end and if it was left."""
        return self._value()
