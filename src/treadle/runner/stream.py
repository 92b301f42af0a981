"""Streams of events: run a task or a step and watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from treadle.core.events import Ephemeral, Event
from treadle.core.messages import Json
from treadle.core.refused_uses import refuses
from treadle.core.unknown_names import explains_names, refuses_assignment
from treadle.drivers.owned_tasks import OwnedTasks
from treadle.engine.broadcast import Watcher
from treadle.errors import TaskNotFound, TaskUnfinished
from treadle.ports import OutputT_co
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import TaskStepOutput
from treadle.runner.watching import watch

if TYPE_CHECKING:
    from treadle.engine.typed_answers import TypedAnswers

R_co = TypeVar("R_co", covariant=True)


_OPENING = "write `async with runner.run_stream(...) as stream`, then `async for event in stream`"
_WITHOUT_ASYNCIO = "; without asyncio, `with runner.sync.run_stream(...) as stream` and a plain `for`"


@refuses(iter=_OPENING + _WITHOUT_ASYNCIO, enter=_OPENING + _WITHOUT_ASYNCIO, await_=_OPENING)
@explains_names("stream")
@refuses_assignment("task_id")
class TaskStream(Generic[R_co]):
    """Drives a task while its caller iterates over its events; leaving the block early interrupts it."""

    statement = "async with"
    """how to open the stream, for messages"""

    _delivered: Callable[[Any], Awaitable[None]] | None = None
    """called with the result after the block, when the task's events are no longer read"""

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
                task.exception()  # retrieved, also if the caller was cancelled while it left

        self._task.add_done_callback(ended)
        self._events = watch(self._tasks, self.task_id, watcher, after=after, deltas=True, over=self._over)
        return self

    async def _head(self) -> int:
        """Return the last event of the task's journal before this stream drives it on."""
        return 0

    async def _over(self) -> bool:
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
        assert self._events is not None
        cancelled: asyncio.CancelledError | None = None
        try:
            if not self._task.done():
                self._task.cancel()
            while not self._task.done():
                # A cancel scope delivers its cancellation at every await, and a caller may be cancelled twice. The task
                # still stops within its grace, and does not run on after the block.
                try:
                    await asyncio.wait([self._task])
                except asyncio.CancelledError as again:
                    cancelled = again
            await self._events.aclose()
        finally:
            if self._watcher is not None:
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
        await self._deliver(error)

    async def _deliver(self, error: BaseException | None) -> None:
        """Deliver the result after the block, if it ended without an error and was not left early."""
        if self._delivered is not None and error is None and self._left is None:
            await self._delivered(self._value())

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
        delivered: Callable[[RunResult[OutputT_co]], Awaitable[None]] | None = None,
        *,
        raw: bool = False,
    ) -> None:
        super().__init__(tasks, task_id, work, standing, raw=raw)
        self._typed_of = typed_of
        self._delivered = delivered

    @overload
    def partials(self, *, checked: Literal[True]) -> AsyncGenerator[OutputT_co, None]: ...
    @overload
    def partials(self, *, checked: Literal[False] = False) -> AsyncGenerator[Json, None]: ...
    def partials(self, *, checked: bool = False) -> AsyncGenerator[Any, None]:
        """Yield the growing answer instead of the events, each time that it has grown.

        A typed answer is yielded as JSON data, unchecked and without its unwritten parts; another answer as text. A
        wrong answer is followed by the next one, from its beginning. The final answer is in `result`.

        Args:
            checked: yield only values that already have the agent's output type. Lists and mappings grow item by item,
                and an object appears once all its required fields are written.
        """
        from treadle.runner.partials import partials

        return partials(aiter(self), self._typed_of, checked=checked)

    @property
    def result(self) -> RunResult[OutputT_co]:
        """The return value of `run`, or the state of the task if the stream was left early.

        Raises `TaskUnfinished` before the stream's end.
        """
        return self._value()


class StepStream(TaskStream[TaskStepOutput[OutputT_co]], Generic[OutputT_co]):
    """One step with its events; `output` when they have ended."""

    async def _head(self) -> int:
        return (await self._tasks.store.row(self.task_id)).head

    @property
    def output(self) -> TaskStepOutput[OutputT_co]:
        """The return value of `run_step`.

        Raises `TaskUnfinished` before the end of the stream, and if it was left early.
        """
        return self._value()
