"""A handle on one task: watch it, wait for it, control it, from wherever it is driven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from treadle.core.events import Ephemeral, Event
from treadle.core.messages import File, Json
from treadle.core.tools import Happened, NotHappened
from treadle.engine.results import RunResult, Task, UndoReport
from treadle.errors import StoreUnavailable, TaskNotFound
from treadle.runner.control import ControlVerbs
from treadle.runner.run_and_resume import RunVerbs
from treadle.runner.stream import watch
from treadle.runner.undo_fork import UndoForkVerbs
from treadle.runner.verbs import on_instances
from treadle.runner.views import Input, Role


class TaskVerbs(RunVerbs, ControlVerbs, UndoForkVerbs):
    """The verbs on one task."""


class RunHandle:
    """A task under its id. Watching never affects it; the verbs are those of the runner."""

    def __init__(self, runner: TaskVerbs, task_id: str) -> None:
        self._runner = runner
        self.task_id = task_id
        self._driven: asyncio.Task[RunResult] | None = None
        self._epoch: int | None = None

    def __repr__(self) -> str:
        return f"RunHandle({self.task_id!r})"

    def drive_with(
        self, work: Coroutine[Any, Any, RunResult], epoch: int | None = None
    ) -> asyncio.Task[RunResult]:
        """Drive the task in this event loop, under this epoch, and return the asyncio task that does."""
        self._driven, self._epoch = asyncio.ensure_future(work), epoch
        return self._driven

    @on_instances
    def events(
        self, *, after: int = 0, deltas: bool = True, raw: bool = False
    ) -> AsyncGenerator[Event | Ephemeral, None]:
        """Yield the task's events with sequence numbers greater than `after`, until it stops; can be opened again.

        Args:
            after: sequence number of the last event already seen.
            deltas: also yield what the model is writing just now, which is never stored.
            raw: also yield what the provider sends, as it sends it, in requests that begin from now on.
        """
        at_rest = partial(self._runner.at_rest, self.task_id)
        return watch(
            self._runner.driver.owned, self.task_id, after=after, deltas=deltas, raw=raw, over=at_rest
        )

    async def partials(self) -> AsyncGenerator[Json, None]:
        """Yield the answer that is being written, each time that there is more of it; see `EventStream.partials`.

        Raises `AgentUnknown` when this runner was not given the task's agent.
        """
        from treadle.runner.partials import partials

        typed = await self._runner.typed_of(self.task_id)
        async with aclosing(self.events()) as events:
            async for value in partials(events, typed):
                yield value

    async def result(self) -> RunResult:
        """Return how the task stands once it stops; `interrupted` also when the process that drives it crashes."""
        driven = self._driven
        if driven is None or driven.get_loop() is not asyncio.get_running_loop():
            return await self._runner.stopped(self.task_id)
        if driven.done() and await self._went_on(driven):
            return await self._runner.stopped(self.task_id)
        return await asyncio.shield(driven)

    async def _went_on(self, driven: asyncio.Task[RunResult]) -> bool:
        """Whether the task was driven again since the drive that began with this handle."""
        if self._epoch is None and (driven.cancelled() or driven.exception() is not None):
            return False  # there was none: the caller is told what kept it from beginning
        try:
            return (await self._runner.store.row(self.task_id)).epoch != self._epoch
        except (StoreUnavailable, TaskNotFound):
            return (
                False  # the store was closed, or the task deleted, after that drive: its result is the last
            )

    async def get_artifact(self, artifact_id: str) -> File:
        """See `Runner.get_artifact`."""
        return await self._runner.get_artifact(self.task_id, artifact_id)

    async def pause(self, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """See `Runner.pause`."""
        return await self._runner.pause(self.task_id, reason=reason, by=by)

    async def resume(self, **how: Any) -> RunResult:
        """See `Runner.resume`."""
        return await self._runner.resume(self.task_id, **how)

    async def interrupt(self, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """See `Runner.interrupt`."""
        return await self._runner.interrupt(self.task_id, reason=reason, by=by)

    async def cancel(self, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """See `Runner.cancel`."""
        return await self._runner.cancel(self.task_id, reason=reason, by=by)

    async def send(self, message: Input, *, role: Role = "user", by: str | None = None) -> None:
        """See `Runner.send`."""
        await self._runner.send(self.task_id, message, role=role, by=by)

    async def settle(
        self, request_id: str, verdict: Happened | NotHappened, *, by: str | None = None
    ) -> None:
        """See `Runner.settle`."""
        await self._runner.settle(self.task_id, request_id, verdict, by=by)

    async def undo_step(self, **how: Any) -> UndoReport:
        """See `Runner.undo_step`."""
        return await self._runner.undo_step(self.task_id, **how)

    async def fork(self, **how: Any) -> Task:
        """See `Runner.fork`."""
        return await self._runner.fork(self.task_id, **how)
