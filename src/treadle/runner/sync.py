"""`runner.sync`: every verb without asyncio. One bridge to the same code; works inside a running event loop too."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, Self, TypeVar, cast, overload

from treadle.agents.agent import Agent
from treadle.core.events import END_STATES, ApprovalScope, Ephemeral, Event
from treadle.core.messages import File, Json, Message
from treadle.core.permits import StandingGrant
from treadle.core.refused_uses import refuses
from treadle.core.tools import Happened, NotHappened
from treadle.core.unknown_names import explains_names, refuses_assignment
from treadle.drivers.adoption import AT_MOST, Tell, log
from treadle.engine.options import RunOptions
from treadle.policy.verdicts import Judge
from treadle.ports import ContextT, Model, Observers, OutputT, OutputT_co
from treadle.results.agent_info import AgentInfo
from treadle.results.read_results import EventPage, Lineage, PastRequest, StepPage, UsageReport
from treadle.results.results import (
    CompactionReport,
    Difference,
    Pending,
    PendingPage,
    PruneReport,
    RunResult,
    StepInfo,
    StepOutputs,
    Task,
    TaskPage,
    TaskStepOutput,
    TaskSummary,
    TaskTotals,
    ThreadMessages,
    ThreadPage,
    ThreadSummary,
    UndoReport,
)
from treadle.runner.bridge import BRIDGE
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream, StepStream, TaskStream
from treadle.runner.verbs import called_on, documented_by

if TYPE_CHECKING:
    from treadle.transfer.exporting import ExportReport
    from treadle.transfer.importing import ImportReport
    from treadle.transfer.verifying import VerifyReport


S_co = TypeVar("S_co", covariant=True, bound="TaskStream[Any]")
T = TypeVar("T")

if TYPE_CHECKING:
    from treadle.runner.views import Input, Moment, Ref, Role, States


@refuses(
    aiter="write `for event in stream`, or `async for` over `runner.run_stream(...)`",
    aenter="write `with runner.sync.run_stream(...) as stream`, or `async with runner.run_stream(...) as stream`",
)
@explains_names("sync stream")
@refuses_assignment("inner")
class SyncStream(Generic[S_co]):
    """A stream for a plain `with` and `for`; `inner` is the stream itself, with its `result` or `output`."""

    def __init__(self, inner: S_co) -> None:
        self.inner = inner
        inner.statement = "with"

    def __enter__(self) -> Self:
        BRIDGE.run(self.inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        BRIDGE.run(self.inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Event | Ephemeral]:
        return one_by_one(aiter(self.inner))


@documented_by(EventStream=EventStream)
class SyncRun(SyncStream[EventStream[OutputT_co]], Generic[OutputT_co]):
    """A run with its events."""

    @overload
    def partials(self, *, checked: Literal[True]) -> Iterator[OutputT_co]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> Iterator[Json]: ...
    def partials(self, *, checked: bool = False) -> Iterator[Any]:
        """See `EventStream.partials`."""
        return one_by_one(self.inner.partials(checked=checked))

    @property
    def result(self) -> RunResult[OutputT_co]:
        """See `EventStream.result`."""
        return self.inner.result


@documented_by(StepStream=StepStream)
class SyncStep(SyncStream[StepStream[OutputT_co]], Generic[OutputT_co]):
    """One step with its events."""

    @property
    def output(self) -> TaskStepOutput[OutputT_co]:
        """See `StepStream.output`."""
        return self.inner.output


def one_by_one(events: AsyncIterator[T]) -> Iterator[T]:
    """Yield the items of an asynchronous iterator, none of which is None; each is fetched when it is asked for."""

    async def following() -> T | None:
        return await anext(events, None)

    while (event := BRIDGE.run(following())) is not None:
        yield event


class SyncTaskPage(TaskPage):
    """Some tasks, newest first; a plain `for` goes over these and those of all later pages."""

    __slots__ = ()

    @classmethod
    def of(cls, page: TaskPage) -> Self:
        """Return a page of the runner as one of `runner.sync`."""
        return cls(page.items, page.cursor).followed_by(page.turn)

    def __iter__(self) -> Iterator[TaskSummary]:
        return one_by_one(aiter(self))


def _sync_lineage(lineage: Lineage) -> Lineage:
    pages = (SyncTaskPage.of(lineage.children), SyncTaskPage.of(lineage.forks))
    return Lineage(lineage.task, lineage.parent, lineage.forked_from, *pages)


class SyncThreadPage(ThreadPage):
    """Some threads, by id; a plain `for` goes over these and those of all later pages."""

    __slots__ = ()

    @classmethod
    def of(cls, page: ThreadPage) -> Self:
        """Return a page of the runner as one of `runner.sync`."""
        return cls(page.items, page.cursor).followed_by(page.turn)

    def __iter__(self) -> Iterator[ThreadSummary]:
        return one_by_one(aiter(self))


class SyncPendingPage(PendingPage):
    """Some of what waits for a person; a plain `for` goes over these requests and those of all later pages."""

    __slots__ = ()

    @classmethod
    def of(cls, page: PendingPage) -> Self:
        """Return a page of the runner as one of `runner.sync`."""
        return cls(page.items, page.cursor).followed_by(page.turn)

    def __iter__(self) -> Iterator[Pending]:
        return one_by_one(aiter(self))


class SyncEventPage(EventPage):
    """Some events of a task, in order; a plain `for` goes over these and those of all later pages."""

    __slots__ = ()

    @classmethod
    def of(cls, page: EventPage) -> Self:
        """Return a page of the runner as one of `runner.sync`."""
        return cls(page.items, page.cursor, page.head).followed_by(page.turn)

    def __iter__(self) -> Iterator[Event]:
        return one_by_one(aiter(self))


class SyncStepPage(StepPage[OutputT_co], Generic[OutputT_co]):
    """Some steps of a task, in order; a plain `for` goes over these and those of all later pages."""

    __slots__ = ()

    @classmethod
    def of(cls, page: StepPage[OutputT_co]) -> Self:
        """Return a page of the runner as one of `runner.sync`."""
        return cls(page.items, page.cursor).followed_by(page.turn)

    def __iter__(self) -> Iterator[TaskStepOutput[OutputT_co]]:
        return one_by_one(aiter(self))


@called_on("runner.sync.handle(task)")
@explains_names("sync handle")
@refuses_assignment("task_id")
@documented_by(RunHandle=RunHandle, Runner=TaskRunner)
class SyncHandle(Generic[OutputT_co]):
    """A `RunHandle` without asyncio."""

    def __init__(self, handle: RunHandle[OutputT_co]) -> None:
        self._handle = handle
        self.task_id = handle.task_id

    def __repr__(self) -> str:
        return f"SyncHandle({self.task_id!r})"

    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> Iterator[Event | Ephemeral]:
        """See `RunHandle.events`."""

        async def opened() -> AsyncIterator[Event | Ephemeral]:
            return self._handle.events(after=after, deltas=deltas, raw=raw, follow=follow)

        return one_by_one(BRIDGE.run(opened()))

    @overload
    def partials(self, *, checked: Literal[True]) -> Iterator[OutputT_co]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> Iterator[Json]: ...
    def partials(self, *, checked: bool = False) -> Iterator[Any]:
        """See `RunHandle.partials`."""
        return one_by_one(self._handle.partials(checked=checked))

    def result(self) -> RunResult[OutputT_co]:
        """See `RunHandle.result`."""
        return BRIDGE.run(self._handle.result())

    def get_events(
        self, *, after: int = 0, limit: int = 100, kinds: str | Collection[str] | None = None
    ) -> SyncEventPage:
        """See `Runner.get_events`."""
        return SyncEventPage.of(BRIDGE.run(self._handle.get_events(after=after, limit=limit, kinds=kinds)))

    def get_steps(self, *, after: int = 0, limit: int = 100) -> SyncStepPage[OutputT_co]:
        """See `Runner.get_steps`."""
        return SyncStepPage[OutputT_co].of(BRIDGE.run(self._handle.get_steps(after=after, limit=limit)))

    def get_request(self, step: str | int, *, call: str | None = None) -> PastRequest:
        """See `Runner.get_request`."""
        return BRIDGE.run(self._handle.get_request(step, call=call))

    def get_lineage(self, *, limit: int = 100) -> Lineage:
        """See `Runner.get_lineage`."""
        return _sync_lineage(BRIDGE.run(self._handle.get_lineage(limit=limit)))

    def get_artifact(self, artifact_id: str) -> File:
        """See `Runner.get_artifact`."""
        return BRIDGE.run(self._handle.get_artifact(artifact_id))

    def pause(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.pause`."""
        return BRIDGE.run(self._handle.pause(reason=reason, by=by, command_id=command_id))

    def resume(
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
        return BRIDGE.run(
            self._handle.resume(
                agent=agent,
                context=context,
                observers=observers,
                options=options,
                drive=drive,
                expect=expect,
                by=by,
                command_id=command_id,
            )
        )

    def interrupt(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.interrupt`."""
        return BRIDGE.run(self._handle.interrupt(reason=reason, by=by, command_id=command_id))

    def cancel(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> RunResult[OutputT_co]:
        """See `Runner.cancel`."""
        return BRIDGE.run(self._handle.cancel(reason=reason, by=by, command_id=command_id))

    def send(
        self, message: Input, *, role: Role = "user", by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.send`."""
        BRIDGE.run(self._handle.send(message, role=role, by=by, command_id=command_id))

    def settle(
        self,
        request_id: str,
        verdict: Happened | NotHappened,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.settle`."""
        BRIDGE.run(self._handle.settle(request_id, verdict, expect=expect, by=by, command_id=command_id))

    def list_pending(self, *, limit: int = 100, cursor: str | None = None) -> SyncPendingPage:
        """See `Runner.list_pending`. Of this task and of those below it."""
        return SyncPendingPage.of(BRIDGE.run(self._handle.list_pending(limit=limit, cursor=cursor)))

    def approve(
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
        BRIDGE.run(
            self._handle.approve(
                request_id, arguments=arguments, scope=scope, same=same, by=by, command_id=command_id
            )
        )

    def deny(
        self,
        request_id: str | None = None,
        *,
        reason: str | None = None,
        stop: bool = False,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.deny`."""
        BRIDGE.run(self._handle.deny(request_id, reason=reason, stop=stop, by=by, command_id=command_id))

    def answer(
        self,
        request_id: str | None = None,
        *,
        value: Any,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.answer`."""
        BRIDGE.run(self._handle.answer(request_id, value=value, by=by, command_id=command_id))

    def complete(
        self, ticket: str, value: Json = None, *, by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.complete`. A ticket of this task, or of one below it."""
        BRIDGE.run(self._handle.complete(ticket, value, by=by, command_id=command_id))

    def fail(self, ticket: str, error: str, *, by: str | None = None, command_id: str | None = None) -> None:
        """See `Runner.fail`. A ticket of this task, or of one below it."""
        BRIDGE.run(self._handle.fail(ticket, error, by=by, command_id=command_id))

    def progress(
        self, ticket: str, value: Json, *, by: str | None = None, command_id: str | None = None
    ) -> None:
        """See `Runner.progress`. A ticket of this task, or of one below it."""
        BRIDGE.run(self._handle.progress(ticket, value, by=by, command_id=command_id))

    def undo_step(
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
        return BRIDGE.run(
            self._handle.undo_step(
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
        )

    @overload
    def fork(
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
    def fork(
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
    def fork(
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
        return BRIDGE.run(
            self._handle.fork(
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
        )


@called_on("runner.sync")
@refuses(
    aenter="write `with runner.sync`, or `async with runner`",
    call="write `runner.sync.run(agent, text)`",
)
@explains_names("runner.sync")
@refuses_assignment()
@documented_by(Runner=TaskRunner)
class SyncRunner:
    """The verbs of a runner, each waiting for its end. Ctrl-C interrupts the task durably and is raised again."""

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner

    def __repr__(self) -> str:
        return f"{self._runner!r}.sync"

    def __enter__(self) -> Self:
        BRIDGE.run(self._runner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def scoped(
        self, *, tenant: str = "", by: str | None = None, options: RunOptions | None = None
    ) -> SyncRunner:
        """See `Runner.scoped`."""
        return SyncRunner(self._runner.scoped(tenant=tenant, by=by, options=options))

    def begin_adopting(
        self, *, at_most: int = AT_MOST, per_tenant: int | None = None, tell: Tell = log
    ) -> None:
        """See `Runner.begin_adopting`; `tell` is called in the bridge's thread."""

        async def begin() -> None:
            self._runner.begin_adopting(at_most=at_most, per_tenant=per_tenant, tell=tell)

        BRIDGE.run(begin())

    def set_policy(self, policy: Judge | None) -> None:
        """See `Runner.set_policy`."""
        self._runner.set_policy(policy)

    def drain(self, grace: float = 0.0) -> None:
        """See `Runner.drain`."""
        BRIDGE.run(self._runner.drain(grace))

    def close(self) -> None:
        """See `Runner.aclose`."""
        BRIDGE.run(self._runner.aclose())

    def run(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        by: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.run`."""
        return BRIDGE.run(
            self._runner.run(
                agent,
                input,
                thread_id=thread_id,
                task_id=task_id,
                extra_state=extra_state,
                options=options,
                context=context,
                observers=observers,
                by=by,
            )
        )

    def run_stream(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        by: str | None = None,
        raw: bool = False,
    ) -> SyncRun[OutputT]:
        """See `Runner.run_stream`; here it is a plain `with` and a plain `for`."""
        how: dict[str, Any] = {
            "thread_id": thread_id,
            "task_id": task_id,
            "extra_state": extra_state,
            "options": options,
            "context": context,
            "observers": observers,
            "by": by,
            "raw": raw,
        }
        return SyncRun(self._runner.run_stream(agent, input, **how))

    def stream_step(
        self,
        task: Ref[OutputT],
        *,
        input: Input | None = None,
        step: str | None = None,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
        raw: bool = False,
    ) -> SyncStep[OutputT]:
        """See `Runner.stream_step`."""
        return SyncStep(
            self._runner.stream_step(
                task,
                input=input,
                step=step,
                agent=agent,
                context=context,
                observers=observers,
                expect=expect,
                by=by,
                command_id=command_id,
                raw=raw,
            )
        )

    def start(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        by: str | None = None,
    ) -> SyncHandle[OutputT]:
        """See `Runner.start`; the task is driven in a thread of Treadle's own and ends with the process."""
        how: dict[str, Any] = {
            "thread_id": thread_id,
            "task_id": task_id,
            "extra_state": extra_state,
            "options": options,
            "context": context,
            "observers": observers,
            "by": by,
        }
        return SyncHandle(BRIDGE.run(self._runner.start(agent, input, **how)))

    def changes(self) -> Iterator[TaskSummary]:
        """See `Runner.changes`."""

        async def opened() -> AsyncIterator[TaskSummary]:
            return self._runner.changes()

        return one_by_one(BRIDGE.run(opened()))

    def handle(self, task: Ref[OutputT]) -> SyncHandle[OutputT]:
        """See `Runner.handle`."""
        return SyncHandle(self._runner.handle(task))

    def submit(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
        by: str | None = None,
    ) -> Task[OutputT]:
        """See `Runner.submit`."""
        return BRIDGE.run(
            self._runner.submit(
                agent,
                input,
                thread_id=thread_id,
                task_id=task_id,
                extra_state=extra_state,
                options=options,
                context=context,
                by=by,
            )
        )

    def resume(
        self,
        task: Ref[OutputT],
        *,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        options: RunOptions | None = None,
        drive: bool = True,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.resume`."""
        return BRIDGE.run(
            self._runner.resume(
                task,
                agent=agent,
                context=context,
                observers=observers,
                options=options,
                drive=drive,
                expect=expect,
                by=by,
                command_id=command_id,
            )
        )

    def result(self, task: Ref[OutputT], *, at: int | None = None) -> RunResult[OutputT]:
        """See `Runner.result`."""
        return BRIDGE.run(self._runner.result(task, at=at))

    def create_task(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
        by: str | None = None,
    ) -> Task[OutputT]:
        """See `Runner.create_task`."""
        return BRIDGE.run(
            self._runner.create_task(
                agent,
                input,
                thread_id=thread_id,
                task_id=task_id,
                extra_state=extra_state,
                options=options,
                context=context,
                by=by,
            )
        )

    def run_step(
        self,
        task: Ref[OutputT],
        *,
        input: Input | None = None,
        step: str | None = None,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> TaskStepOutput[OutputT]:
        """See `Runner.run_step`."""
        return BRIDGE.run(
            self._runner.run_step(
                task,
                input=input,
                step=step,
                agent=agent,
                context=context,
                observers=observers,
                expect=expect,
                by=by,
                command_id=command_id,
            )
        )

    def run_ready_steps(
        self,
        task: Ref[OutputT],
        *,
        context: Any = None,
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> StepOutputs[OutputT]:
        """See `Runner.run_ready_steps`."""
        return BRIDGE.run(
            self._runner.run_ready_steps(
                task, context=context, observers=observers, expect=expect, by=by, command_id=command_id
            )
        )

    def finalize(
        self,
        task: Ref[OutputT],
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.finalize`."""
        return BRIDGE.run(self._runner.finalize(task, expect=expect, by=by, command_id=command_id))

    def get_agents(self) -> tuple[AgentInfo, ...]:
        """See `Runner.get_agents`."""
        return BRIDGE.run(self._runner.get_agents())

    def get_task(self, task: Ref[OutputT], *, at: int | None = None) -> Task[OutputT]:
        """See `Runner.get_task`."""
        return BRIDGE.run(self._runner.get_task(task, at=at))

    def get_request(self, task: Ref, step: str | int, *, call: str | None = None) -> PastRequest:
        """See `Runner.get_request`."""
        return BRIDGE.run(self._runner.get_request(task, step, call=call))

    def get_lineage(self, task: Ref, *, limit: int = 100) -> Lineage:
        """See `Runner.get_lineage`."""
        return _sync_lineage(BRIDGE.run(self._runner.get_lineage(task, limit=limit)))

    def list_tasks(
        self,
        *,
        state: States = None,
        agent: str | None = None,
        thread_id: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        since: Moment = None,
        until: Moment = None,
        labels: dict[str, str] | None = None,
        search: str | None = None,
        roots: bool = False,
        updated_since: Moment = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SyncTaskPage:
        """See `Runner.list_tasks`."""
        return SyncTaskPage.of(
            BRIDGE.run(
                self._runner.list_tasks(
                    state=state,
                    agent=agent,
                    thread_id=thread_id,
                    parent=parent,
                    forked_from=forked_from,
                    since=since,
                    until=until,
                    labels=labels,
                    search=search,
                    roots=roots,
                    updated_since=updated_since,
                    limit=limit,
                    cursor=cursor,
                )
            )
        )

    def count_tasks(
        self,
        *,
        state: States = None,
        agent: str | None = None,
        thread_id: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        since: Moment = None,
        until: Moment = None,
        labels: dict[str, str] | None = None,
        search: str | None = None,
        roots: bool = False,
        updated_since: Moment = None,
    ) -> TaskTotals:
        """See `Runner.count_tasks`."""
        return BRIDGE.run(
            self._runner.count_tasks(
                state=state,
                agent=agent,
                thread_id=thread_id,
                parent=parent,
                forked_from=forked_from,
                since=since,
                until=until,
                labels=labels,
                search=search,
                roots=roots,
                updated_since=updated_since,
            )
        )

    def usage(
        self,
        *,
        since: Moment = None,
        until: Moment = None,
        by: str = "agent",
        agent: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> UsageReport:
        """See `Runner.usage`."""
        return BRIDGE.run(self._runner.usage(since=since, until=until, by=by, agent=agent, labels=labels))

    def get_upcoming_steps(self, task: Ref) -> tuple[StepInfo, ...]:
        """See `Runner.get_upcoming_steps`."""
        return BRIDGE.run(self._runner.get_upcoming_steps(task))

    def get_completed_steps(self, task: Ref[OutputT]) -> StepOutputs[OutputT]:
        """See `Runner.get_completed_steps`."""
        return BRIDGE.run(self._runner.get_completed_steps(task))

    def get_step(self, task: Ref[OutputT], step: str | int) -> TaskStepOutput[OutputT]:
        """See `Runner.get_step`."""
        return BRIDGE.run(self._runner.get_step(task, step))

    def get_events(
        self,
        task: Ref,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: str | Collection[str] | None = None,
    ) -> SyncEventPage:
        """See `Runner.get_events`."""
        return SyncEventPage.of(
            BRIDGE.run(self._runner.get_events(task, after=after, limit=limit, kinds=kinds))
        )

    def get_steps(self, task: Ref[OutputT], *, after: int = 0, limit: int = 100) -> SyncStepPage[OutputT]:
        """See `Runner.get_steps`."""
        return SyncStepPage[OutputT].of(BRIDGE.run(self._runner.get_steps(task, after=after, limit=limit)))

    def get_artifact(self, task: Ref, artifact_id: str) -> File:
        """See `Runner.get_artifact`."""
        return BRIDGE.run(self._runner.get_artifact(task, artifact_id))

    def get_thread(self, thread_id: str) -> ThreadMessages:
        """See `Runner.get_thread`."""
        return BRIDGE.run(self._runner.get_thread(thread_id))

    def list_threads(self, *, limit: int = 100, cursor: str | None = None) -> SyncThreadPage:
        """See `Runner.list_threads`."""
        return SyncThreadPage.of(BRIDGE.run(self._runner.list_threads(limit=limit, cursor=cursor)))

    def compact_thread(
        self,
        thread_id: str,
        *,
        keep: int = 4,
        agent: Agent[Any] | None = None,
        model: str | Model | None = None,
        context_tokens: int = 32_000,
        by: str | None = None,
    ) -> CompactionReport:
        """See `Runner.compact_thread`."""
        return BRIDGE.run(
            self._runner.compact_thread(
                thread_id, keep=keep, agent=agent, model=model, context_tokens=context_tokens, by=by
            )
        )

    def import_thread(
        self,
        thread_id: str,
        messages: Sequence[Message],
        *,
        by: str | None = None,
        command_id: str | None = None,
    ) -> str:
        """See `Runner.import_thread`."""
        return BRIDGE.run(self._runner.import_thread(thread_id, messages, by=by, command_id=command_id))

    def delete_thread(self, thread_id: str, *, by: str | None = None) -> None:
        """See `Runner.delete_thread`."""
        BRIDGE.run(self._runner.delete_thread(thread_id, by=by))

    def prune(
        self,
        older_than: float | timedelta,
        *,
        states: Sequence[str] = END_STATES,
        labels: dict[str, str] | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> PruneReport:
        """See `Runner.prune`."""
        return BRIDGE.run(
            self._runner.prune(older_than, states=states, labels=labels, dry_run=dry_run, by=by)
        )

    def verify(self, task: Ref | None = None) -> VerifyReport:
        """See `Runner.verify`."""
        return BRIDGE.run(self._runner.verify(task))

    def export_tasks(self, to: str | os.PathLike[str] | BinaryIO, *tasks: Ref) -> ExportReport:
        """See `Runner.export_tasks`."""
        return BRIDGE.run(self._runner.export_tasks(to, *tasks))

    def import_tasks(self, source: str | os.PathLike[str]) -> ImportReport:
        """See `Runner.import_tasks`."""
        return BRIDGE.run(self._runner.import_tasks(source))

    def delete_task(self, task: Ref, *, by: str | None = None) -> None:
        """See `Runner.delete_task`."""
        BRIDGE.run(self._runner.delete_task(task, by=by))

    def send(
        self,
        task: Ref,
        message: Input,
        *,
        role: Role = "user",
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.send`."""
        BRIDGE.run(self._runner.send(task, message, role=role, by=by, command_id=command_id))

    def edit_step(
        self,
        task: Ref,
        input: Input,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> StepInfo:
        """See `Runner.edit_step`."""
        return BRIDGE.run(self._runner.edit_step(task, input, expect=expect, by=by, command_id=command_id))

    def edit_call(
        self,
        task: Ref,
        call_id: str,
        arguments: dict[str, Json],
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.edit_call`."""
        BRIDGE.run(
            self._runner.edit_call(task, call_id, arguments, expect=expect, by=by, command_id=command_id)
        )

    def skip_step(
        self,
        task: Ref,
        *,
        step: str | None = None,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.skip_step`."""
        BRIDGE.run(self._runner.skip_step(task, step=step, expect=expect, by=by, command_id=command_id))

    def pause(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.pause`."""
        return BRIDGE.run(self._runner.pause(task, reason=reason, by=by, command_id=command_id))

    def interrupt(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.interrupt`."""
        return BRIDGE.run(self._runner.interrupt(task, reason=reason, by=by, command_id=command_id))

    def cancel(
        self,
        task: Ref[OutputT],
        *,
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """See `Runner.cancel`."""
        return BRIDGE.run(self._runner.cancel(task, reason=reason, by=by, command_id=command_id))

    def settle(
        self,
        task: Ref,
        request_id: str,
        verdict: Happened | NotHappened,
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.settle`."""
        BRIDGE.run(
            self._runner.settle(task, request_id, verdict, expect=expect, by=by, command_id=command_id)
        )

    def list_pending(
        self,
        task: Ref | None = None,
        *,
        thread_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SyncPendingPage:
        """See `Runner.list_pending`."""
        return SyncPendingPage.of(
            BRIDGE.run(self._runner.list_pending(task, thread_id=thread_id, limit=limit, cursor=cursor))
        )

    def approve(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        arguments: dict[str, Json] | None = None,
        scope: ApprovalScope = "once",
        same: Sequence[str] = (),
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.approve`."""
        BRIDGE.run(
            self._runner.approve(
                task, request_id, arguments=arguments, scope=scope, same=same, by=by, command_id=command_id
            )
        )

    def deny(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        reason: str | None = None,
        stop: bool = False,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.deny`."""
        BRIDGE.run(
            self._runner.deny(task, request_id, reason=reason, stop=stop, by=by, command_id=command_id)
        )

    def answer(
        self,
        task: Ref,
        request_id: str | None = None,
        *,
        value: Any,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.answer`."""
        BRIDGE.run(self._runner.answer(task, request_id, value=value, by=by, command_id=command_id))

    def list_grants(
        self, *, thread_id: str | None = None, revoked: bool = False
    ) -> tuple[StandingGrant, ...]:
        """See `Runner.list_grants`."""
        return BRIDGE.run(self._runner.list_grants(thread_id=thread_id, revoked=revoked))

    def revoke(self, grant_id: str, *, by: str | None = None) -> None:
        """See `Runner.revoke`."""
        BRIDGE.run(self._runner.revoke(grant_id, by=by))

    def complete(
        self,
        ticket: str,
        value: Json = None,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.complete`."""
        BRIDGE.run(self._runner.complete(ticket, value, task=task, by=by, command_id=command_id))

    def fail(
        self,
        ticket: str,
        error: str,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.fail`."""
        BRIDGE.run(self._runner.fail(ticket, error, task=task, by=by, command_id=command_id))

    def progress(
        self,
        ticket: str,
        value: Json,
        *,
        task: Ref | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> None:
        """See `Runner.progress`."""
        BRIDGE.run(self._runner.progress(ticket, value, task=task, by=by, command_id=command_id))

    def undo_step(
        self,
        task: Ref,
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
        return BRIDGE.run(
            self._runner.undo_step(
                task,
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
        )

    @overload
    def fork(
        self,
        task: Ref,
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
    def fork(
        self,
        task: Ref[OutputT],
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
    ) -> Task[OutputT]: ...
    def fork(
        self,
        task: Ref,
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
        return BRIDGE.run(
            self._runner.fork(
                task,
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
        )

    def diff(self, a: Ref, b: Ref) -> Difference:
        """See `Runner.diff`."""
        return BRIDGE.run(self._runner.diff(a, b))
