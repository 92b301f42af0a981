"""`runner.sync`: every verb without asyncio, also inside a running event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from treadle.agents.agent import Agent
from treadle.core.events import Ephemeral, Event
from treadle.core.messages import Json
from treadle.core.refused_uses import refuses
from treadle.core.unknown_names import explains_names, refuses_assignment
from treadle.drivers.adoption import AT_MOST, Tell, log
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError
from treadle.policy.verdicts import Judge
from treadle.ports import OutputT, OutputT_co
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import TaskStepOutput
from treadle.results.tasks import Task, TaskSummary
from treadle.runner.bridge import BRIDGE, one_by_one
from treadle.runner.faces import SyncHandleVerbs, SyncTaskVerbs, blocking, waiting
from treadle.runner.forking import ForkArguments
from treadle.runner.handle import RunHandle
from treadle.runner.runner import TaskRunner
from treadle.runner.stream import EventStream, StepStream, TaskStream
from treadle.runner.verbs import called_on, documented_by, face
from treadle.runner.views import Input, Ref

P = ParamSpec("P")
S_co = TypeVar("S_co", covariant=True, bound="TaskStream[Any]")


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


def starting(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, RunHandle[OutputT]]], remark: str
) -> Callable[Concatenate[Any, P], SyncHandle[OutputT]]:
    """Return the method that waits for a verb and returns the handle without asyncio."""

    def made(handle: RunHandle[Any]) -> SyncHandle[Any]:
        return SyncHandle(handle)

    return waiting("runner.sync", verb, made, returns="SyncHandle[OutputT]", remark=remark)


@overload
def streaming(
    verb: Callable[Concatenate[Any, P], EventStream[OutputT]], remark: str = ""
) -> Callable[Concatenate[Any, P], SyncRun[OutputT]]: ...
@overload
def streaming(
    verb: Callable[Concatenate[Any, P], StepStream[OutputT]], remark: str = ""
) -> Callable[Concatenate[Any, P], SyncStep[OutputT]]: ...
def streaming(verb: Callable[..., Any], remark: str = "") -> Callable[..., Any]:
    """Return the method that returns a stream without asyncio; the verb itself is not async."""
    function: Callable[..., Any] = inspect.unwrap(verb)
    name = function.__name__
    made: Any = SyncRun if name == "run_stream" else SyncStep

    def call(instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return made(getattr(instance._inner, name)(*args, **kwargs))  # noqa: SLF001  that of a class here
        except ConfigurationError:
            inspect.signature(function).bind(
                instance, *args, **kwargs
            )  # raises TypeError for wrong arguments
            raise

    return face("runner.sync", call, function, returns=f"{made.__name__}[OutputT]", remark=remark)


@called_on("runner.sync.handle(task)")
@explains_names("sync handle")
@refuses_assignment("task_id")
@documented_by(RunHandle=RunHandle, Runner=TaskRunner)
class SyncHandle(SyncHandleVerbs[OutputT_co], Generic[OutputT_co]):
    """A `RunHandle` without asyncio."""

    def __init__(self, handle: RunHandle[OutputT_co]) -> None:
        self._inner = handle
        self.task_id = handle.task_id

    def __repr__(self) -> str:
        return f"SyncHandle({self.task_id!r})"

    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False, follow: bool = False
    ) -> Iterator[Event | Ephemeral]:
        """See `RunHandle.events`."""

        async def opened() -> AsyncIterator[Event | Ephemeral]:
            return self._inner.events(after=after, deltas=deltas, raw=raw, follow=follow)

        return one_by_one(BRIDGE.run(opened()))

    @overload
    def partials(self, *, checked: Literal[True]) -> Iterator[OutputT_co]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> Iterator[Json]: ...
    def partials(self, *, checked: bool = False) -> Iterator[Any]:
        """See `RunHandle.partials`."""
        return one_by_one(self._inner.partials(checked=checked))

    def result(self) -> RunResult[OutputT_co]:
        """See `RunHandle.result`."""
        return BRIDGE.run(self._inner.result())

    list_pending = blocking(RunHandle.list_pending)
    complete = blocking(RunHandle.complete)
    fail = blocking(RunHandle.fail)
    progress = blocking(RunHandle.progress)


@called_on("runner.sync")
@refuses(
    aenter="write `with runner.sync`, or `async with runner`",
    call="write `runner.sync.run(agent, text)`",
)
@explains_names("runner.sync")
@refuses_assignment()
@documented_by(Runner=TaskRunner)
class SyncRunner(SyncTaskVerbs):
    """The verbs of a runner, each blocking. Ctrl-C interrupts the task durably and is raised again."""

    def __init__(self, runner: TaskRunner) -> None:
        self._inner = runner

    def __repr__(self) -> str:
        return f"{self._inner!r}.sync"

    def __enter__(self) -> Self:
        BRIDGE.run(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def scoped(
        self, *, tenant: str = "", by: str | None = None, options: RunOptions | None = None
    ) -> SyncRunner:
        """See `Runner.scoped`."""
        return SyncRunner(self._inner.scoped(tenant=tenant, by=by, options=options))

    def begin_adopting(
        self, *, at_most: int = AT_MOST, per_tenant: int | None = None, tell: Tell = log
    ) -> None:
        """See `Runner.begin_adopting`; `tell` is called in the bridge's thread."""

        async def begin() -> None:
            self._inner.begin_adopting(at_most=at_most, per_tenant=per_tenant, tell=tell)

        BRIDGE.run(begin())

    def set_policy(self, policy: Judge | None) -> None:
        """See `Runner.set_policy`."""
        self._inner.set_policy(policy)

    drain = blocking(TaskRunner.drain)

    def close(self) -> None:
        """See `Runner.aclose`."""
        BRIDGE.run(self._inner.aclose())

    run = blocking(TaskRunner.run)
    run_stream = streaming(TaskRunner.run_stream, "Here it is a plain `with` and a plain `for`.")
    stream_step = streaming(TaskRunner.stream_step)
    start = starting(
        TaskRunner.start, "The task is driven in a thread of Treadle's own and ends with the process."
    )

    def changes(self) -> Iterator[TaskSummary]:
        """See `Runner.changes`."""

        async def opened() -> AsyncIterator[TaskSummary]:
            return self._inner.changes()

        return one_by_one(BRIDGE.run(opened()))

    def handle(self, task: Ref[OutputT]) -> SyncHandle[OutputT]:
        """See `Runner.handle`."""
        return SyncHandle(self._inner.handle(task))

    submit = blocking(TaskRunner.submit)
    create_task = blocking(TaskRunner.create_task)
    get_agents = blocking(TaskRunner.get_agents)
    list_tasks = blocking(TaskRunner.list_tasks)
    count_tasks = blocking(TaskRunner.count_tasks)
    usage = blocking(TaskRunner.usage)
    get_thread = blocking(TaskRunner.get_thread)
    list_threads = blocking(TaskRunner.list_threads)
    compact_thread = blocking(TaskRunner.compact_thread)
    import_thread = blocking(TaskRunner.import_thread)
    delete_thread = blocking(TaskRunner.delete_thread)
    prune = blocking(TaskRunner.prune)
    verify = blocking(TaskRunner.verify)
    export_tasks = blocking(TaskRunner.export_tasks)
    import_tasks = blocking(TaskRunner.import_tasks)
    list_grants = blocking(TaskRunner.list_grants)
    revoke = blocking(TaskRunner.revoke)
    diff = blocking(TaskRunner.diff)

    # By hand: pyright lets the type variable of an overload that derives escape, in `fork("id")`.
    @overload
    def fork(
        self, task: Ref, *, agent: Agent[Any, OutputT], **others: Unpack[ForkArguments]
    ) -> Task[OutputT]: ...
    @overload
    def fork(
        self, task: Ref[OutputT], *, agent: None = ..., **others: Unpack[ForkArguments]
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
            self._inner.fork(
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
