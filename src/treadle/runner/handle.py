"""A handle on one task, to watch, await and control it wherever it is driven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, Literal, overload

from treadle.core.events import Ephemeral, Event
from treadle.core.messages import Json
from treadle.core.refused_uses import refuses
from treadle.core.unknown_names import explains_arguments, explains_names, refuses_assignment
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.ports import OutputT_co
from treadle.results.pages import PendingPage
from treadle.results.run_result import RunResult
from treadle.runner.faces import HandleVerbs, TaskVerbs
from treadle.runner.stream import EventStream
from treadle.runner.verbs import called_on, documented_by, on_instances
from treadle.runner.views import driver_of
from treadle.runner.watching import WatchedEvents, in_event_loop
from treadle.runner.watching import follow as follow_task


@called_on("handle")
@refuses(
    await_="write `await handle.result()`",
    iter="write `async for event in handle.events()`",
    aiter="write `async for event in handle.events()`",
)
@explains_arguments
@explains_names("handle")
@refuses_assignment("task_id")
@documented_by(Runner=TaskVerbs, EventStream=EventStream)
class RunHandle(HandleVerbs[OutputT_co], Generic[OutputT_co]):
    """A task by its id, with the verbs of the runner. Watching never affects the task."""

    def __init__(
        self,
        runner: TaskVerbs,
        task_id: str,
        driven: asyncio.Task[RunResult[OutputT_co]] | None = None,
        epoch: int | None = None,
    ) -> None:
        self.task_id = task_id
        self._runner = runner
        self._driver = driver_of(runner)
        self._driven = driven
        """the asyncio task that drives it in this event loop, if any"""

        self._epoch = epoch
        """the epoch in which that drives it"""

    def __repr__(self) -> str:
        return f"RunHandle({self.task_id!r})"

    @on_instances
    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the task's events with sequence numbers greater than `after`, until it stops; can be called again.

        The subscription begins with the call, even if the first event is requested later. If an answer is being
        written, its text so far follows the stored events: one `Delta` for each channel and call, with `at=0`.

        Args:
            after: sequence number of the last event already seen.
            deltas: also yield the deltas of the model, which are never stored.
            raw: also yield the provider's raw chunks, for requests that begin from now on.
            follow: go on when the task stops, until it is deleted. Yield a `TaskStood` first, and whenever its state or
                its driver changes.
        """
        tasks, task_id = self._driver.owned, self.task_id
        watcher = tasks.channels.subscribe(task_id, deltas=deltas, raw=raw) if in_event_loop() else None
        events = follow_task(tasks, task_id, watcher, after=after, deltas=deltas, raw=raw, to_rest=not follow)
        leave = None if watcher is None else partial(tasks.channels.unsubscribe, task_id, watcher)
        return WatchedEvents(events, leave)

    @overload
    def partials(self, *, checked: Literal[True]) -> AsyncGenerator[OutputT_co, None]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> AsyncGenerator[Json, None]: ...
    async def partials(self, *, checked: bool = False) -> AsyncGenerator[Any, None]:
        """Yield the growing answer each time that it has grown; see `EventStream.partials`.

        Raises `AgentUnknown` when this runner was not given the task's agent.
        """
        from treadle.runner.partials import partials

        agents, row = self._driver.agents, await self._driver.cache.row(self.task_id)
        agents.of(row.agent, None, row.task_id)  # raises if it is not known
        async with aclosing(self.events()) as events:
            async for value in partials(
                events, lambda name: agents.typed_named(name or row.agent), checked=checked
            ):
                yield value

    async def result(self) -> RunResult[OutputT_co]:
        """Return the state of the task once it stops; `interrupted` also if the driving process crashes."""
        driven = self._driven
        if driven is None or driven.get_loop() is not asyncio.get_running_loop():
            return await self._stopped()
        if driven.done() and await self._went_on(driven):
            return await self._stopped()
        return await asyncio.shield(driven)

    async def _stopped(self) -> RunResult[OutputT_co]:
        await self._driver.commands.stopped(self.task_id)
        return await self._runner.result(self.task_id)

    async def _went_on(self, driven: asyncio.Task[RunResult[OutputT_co]]) -> bool:
        """Whether the task was driven again since the drive that began with this handle."""
        if self._epoch is None and (driven.cancelled() or driven.exception() is not None):
            return False  # it never began: the caller gets its error
        try:
            return (await self._runner.store.row(self.task_id)).epoch != self._epoch
        except (StoreUnavailable, TaskNotFound):
            return (
                False  # the store was closed, or the task deleted, after that drive: its result is the last
            )

    async def list_pending(self, *, limit: int = 100, cursor: str | None = None) -> PendingPage:
        """See `Runner.list_pending`. The requests are those of this task and of the tasks below it."""
        return await self._runner.list_pending(self.task_id, limit=limit, cursor=cursor)

    async def complete(
        self, ticket: str, value: Json = None, *, by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.complete`. A ticket of this task, or of one below it."""
        await self._runner.complete(ticket, value, task=self.task_id, by=by, command_id=command_id)

    async def fail(
        self, ticket: str, error: str, *, by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.fail`. A ticket of this task, or of one below it."""
        await self._runner.fail(ticket, error, task=self.task_id, by=by, command_id=command_id)

    async def progress(
        self, ticket: str, value: Json, *, by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.progress`. A ticket of this task, or of one below it."""
        await self._runner.progress(ticket, value, task=self.task_id, by=by, command_id=command_id)
