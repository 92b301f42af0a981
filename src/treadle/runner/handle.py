"""A handle on one task: watch it, wait for it, control it, from wherever it is driven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, Literal, cast, overload

from treadle.agents.agent import Agent
from treadle.core.events import ApprovalScope, Ephemeral, Event
from treadle.core.messages import File, Json
from treadle.core.refused_uses import refuses
from treadle.core.tools import Happened, NotHappened
from treadle.core.unknown_names import explains_arguments, explains_names, refuses_assignment
from treadle.engine.options import RunOptions
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.ports import ContextT, Observers, OutputT, OutputT_co
from treadle.results.read_results import EventPage, Lineage, PastRequest, StepPage
from treadle.results.results import PendingPage, RunResult, Task, UndoReport
from treadle.runner.background import BackgroundVerbs
from treadle.runner.history import HistoryVerbs
from treadle.runner.run_and_resume import RunVerbs
from treadle.runner.stream import EventStream
from treadle.runner.subscription import in_event_loop
from treadle.runner.undo_fork import UndoForkVerbs
from treadle.runner.verbs import called_on, documented_by, on_instances
from treadle.runner.views import Input, Role, driver_of
from treadle.runner.watching import WatchedEvents
from treadle.runner.watching import follow as follow_task


class TaskVerbs(RunVerbs, BackgroundVerbs, UndoForkVerbs, HistoryVerbs):
    """The verbs on one task."""


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
class RunHandle(Generic[OutputT_co]):
    """A task under its id. Watching never affects it; the verbs are those of the runner."""

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
        """the asyncio task that drives it in this event loop, if one does"""

        self._epoch = epoch
        """the ownership under which that drives it"""

    def __repr__(self) -> str:
        return f"RunHandle({self.task_id!r})"

    @on_instances
    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the task's events with sequence numbers greater than `after`, until it stops; can be opened again.

        It takes part from now on, also if the first event is asked for later. In the middle of an answer, all of it so
        far comes first, after the events: one `Delta` for each channel and call, with `at=0`.

        Args:
            after: sequence number of the last event already seen.
            deltas: also yield what the model is writing just now, which is never stored.
            raw: also yield what the provider sends, as it sends it, in requests that begin from now on.
            follow: go on when the task stops, until it is deleted, and yield a `TaskStood` first of all and whenever
                its state or its driver changes.
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
        """Yield the answer that is being written, each time that there is more of it; see `EventStream.partials`.

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
        """Return how the task stands once it stops; `interrupted` also when the process that drives it crashes."""
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
            return False  # there was none: the caller is told what kept it from beginning
        try:
            return (await self._runner.store.row(self.task_id)).epoch != self._epoch
        except (StoreUnavailable, TaskNotFound):
            return (
                False  # the store was closed, or the task deleted, after that drive: its result is the last
            )

    async def get_events(
        self, *, after: int = 0, limit: int = 100, kinds: str | Collection[str] | None = None
    ) -> EventPage:
        """See `Runner.get_events`."""
        return await self._runner.get_events(self.task_id, after=after, limit=limit, kinds=kinds)

    async def get_steps(self, *, after: int = 0, limit: int = 100) -> StepPage[OutputT_co]:
        """See `Runner.get_steps`."""
        return await self._runner.get_steps(self.task_id, after=after, limit=limit)

    async def get_request(self, step: str | int, *, call: str | None = None) -> PastRequest:
        """See `Runner.get_request`."""
        return await self._runner.get_request(self.task_id, step, call=call)

    async def get_lineage(self, *, limit: int = 100) -> Lineage:
        """See `Runner.get_lineage`."""
        return await self._runner.get_lineage(self.task_id, limit=limit)

    async def get_artifact(self, artifact_id: str) -> File:
        """See `Runner.get_artifact`."""
        return await self._runner.get_artifact(self.task_id, artifact_id)

    async def pause(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.pause`."""
        return await self._runner.pause(self.task_id, reason=reason, by=by, command_id=command_id)

    async def resume(
        self,
        *,
        agent: Agent[ContextT, Any] | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        options: RunOptions | None = None,
        drive: bool = True,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT_co]:
        """See `Runner.resume`."""
        return await self._runner.resume(
            self.task_id,
            agent=agent,
            context=context,
            observers=observers,
            options=options,
            drive=drive,
            expect=expect,
            by=by,
            command_id=command_id,
        )

    async def interrupt(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.interrupt`."""
        return await self._runner.interrupt(self.task_id, reason=reason, by=by, command_id=command_id)

    async def cancel(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.cancel`."""
        return await self._runner.cancel(self.task_id, reason=reason, by=by, command_id=command_id)

    async def send(
        self, message: Input, *, role: Role = "user", by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.send`."""
        await self._runner.send(self.task_id, message, role=role, by=by, command_id=command_id)

    async def settle(
        self,
        request_id: str,
        verdict: Happened | NotHappened,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.settle`."""
        await self._runner.settle(
            self.task_id, request_id, verdict, expect=expect, by=by, command_id=command_id
        )

    async def list_pending(self, *, limit: int = 100, cursor: str | None = None) -> PendingPage:
        """See `Runner.list_pending`. Of this task and of those below it."""
        return await self._runner.list_pending(self.task_id, limit=limit, cursor=cursor)

    async def approve(
        self,
        request_id: str | None = None,
        *,
        arguments: dict[str, Json] | None = None,
        scope: ApprovalScope = "once",
        same: Sequence[str] = (),
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.approve`."""
        await self._runner.approve(
            self.task_id,
            request_id,
            arguments=arguments,
            scope=scope,
            same=same,
            by=by,
            command_id=command_id,
        )

    async def deny(
        self,
        request_id: str | None = None,
        *,
        reason: str | None = None,
        stop: bool = False,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.deny`."""
        await self._runner.deny(
            self.task_id, request_id, reason=reason, stop=stop, by=by, command_id=command_id
        )

    async def answer(
        self,
        request_id: str | None = None,
        *,
        value: Any,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.answer`."""
        await self._runner.answer(self.task_id, request_id, value=value, by=by, command_id=command_id)

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

    async def undo_step(
        self,
        *,
        to: int | str | None = None,
        step: int | str | None = None,
        force: bool = False,
        dry_run: bool = False,
        agent: Agent[ContextT, Any] | None = None,
        context: ContextT | None = None,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> UndoReport:
        """See `Runner.undo_step`."""
        return await self._runner.undo_step(
            self.task_id,
            to=to,
            step=step,
            force=force,
            dry_run=dry_run,
            agent=agent,
            context=context,
            expect=expect,
            by=by,
            command_id=command_id,
        )

    @overload
    async def fork(
        self,
        *,
        agent: Agent[Any, OutputT],
        at: str | int | None = ...,
        instructions: str | None = ...,
        model: str | None = ...,
        input: Input | None = ...,
        replace: dict[str, Json] | None = ...,
        thread_id: str | None = ...,
        task_id: str | None = ...,
        options: RunOptions | None = ...,
        expect: int | None = ...,
        by: str | None = ...,
    ) -> Task[OutputT]: ...
    @overload
    async def fork(
        self,
        *,
        agent: None = ...,
        at: str | int | None = ...,
        instructions: str | None = ...,
        model: str | None = ...,
        input: Input | None = ...,
        replace: dict[str, Json] | None = ...,
        thread_id: str | None = ...,
        task_id: str | None = ...,
        options: RunOptions | None = ...,
        expect: int | None = ...,
        by: str | None = ...,
    ) -> Task[OutputT_co]: ...
    async def fork(
        self,
        *,
        at: str | int | None = None,
        agent: Agent[Any] | None = None,
        instructions: str | None = None,
        model: str | None = None,
        input: Input | None = None,
        replace: dict[str, Json] | None = None,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        expect: int | None = None,
        by: str | None = None,
    ) -> Task[Any]:
        """See `Runner.fork`."""
        return await self._runner.fork(
            self.task_id,
            at=at,
            agent=cast("Agent[Any]", agent),
            instructions=instructions,
            model=model,
            input=input,
            replace=replace,
            thread_id=thread_id,
            task_id=task_id,
            options=options,
            expect=expect,
            by=by,
        )
