"""`TaskRunner`: every verb on tasks, over ports alone. The public `Runner` only decides which adapters it gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from treadle.agents.agent import Agent
from treadle.core.abandoned import AbandonedCall
from treadle.core.messages import Json
from treadle.core.unknown_names import explains_names
from treadle.drivers import arguments
from treadle.drivers.adoption import AT_MOST, Adopter, Tell, log
from treadle.drivers.arguments import parts_of
from treadle.drivers.driver import Dependencies
from treadle.drivers.new_task import NewRun
from treadle.engine.abandoned import still_running
from treadle.engine.observers import ObserverReport
from treadle.engine.options import RunOptions
from treadle.engine.results import RunResult
from treadle.engine.vault import HidesSecrets
from treadle.ports import ContextT, OutputT
from treadle.runner.handle import RunHandle, TaskVerbs
from treadle.runner.maintenance import MaintenanceVerbs
from treadle.runner.threads import ThreadVerbs
from treadle.runner.verbs import on_instances, refuses, verb
from treadle.runner.views import Input, Ref, id_of


@refuses(
    enter="write `async with runner`, or `with runner.sync` without asyncio",
    iter="write `for task in (await runner.list_tasks()).items`",
)
@explains_names("Runner")
class TaskRunner(TaskVerbs, MaintenanceVerbs, ThreadVerbs):
    """Creates, drives, controls and inspects tasks. Holds no state of a run; safe under any concurrency."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._background: set[asyncio.Future[Any]] = set()
        """drives of handles, referred to from here so that they are not collected"""

        self._adopter: Adopter | None = None

    @property
    def abandoned(self) -> tuple[AbandonedCall, ...]:
        """The calls of this process that ignored two cancellations, were abandoned, and still run."""
        return still_running()

    @property
    def observers(self) -> tuple[ObserverReport, ...]:
        """Reports on this runner's observers: what they were told, what was dropped, and how often they raised."""
        return self._driver.observers.reports() if self._driver.observers is not None else ()

    def log_filter(self) -> logging.Filter:
        """Return a filter for `handler.addFilter`: it hides the secrets that this runner knows, in tracebacks too."""
        return HidesSecrets(self._driver.vault)

    def middleware_of(self, agent: Agent[Any]) -> dict[str, tuple[str, ...]]:
        """Return by which middleware each tool of an agent is wrapped in tasks of this runner, the outermost first.

        Args:
            agent: its tools without middleware are left out.
        """
        arguments.agent("middleware_of: agent", agent)
        layers = self._driver.agents.layers_of(agent)
        return {tool: tuple([str(layer) for layer in each]) for tool, each in layers.items()}

    async def __aenter__(self) -> Self:
        await self._cache.open(again=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write what is queued and close the store; tasks still driven here are interrupted, as `drain` does it.

        Observers are told the rest, for at most 2 seconds. From then on verbs raise `StoreUnavailable`, until another
        `async with` opens the runner again.
        """
        await self.drain()
        await self._driver.close()
        await self._store.close()
        if self._driver.observers is not None:
            await self._driver.observers.aclose()

    @verb
    async def drain(self, grace: float = 0.0) -> None:
        """Stop driving, since this process is about to end: adopt nothing more, and release every task driven here.

        The tasks are `interrupted`; a driver that adopts tasks goes on with them at once, and so does `resume`.

        Args:
            grace: seconds for which calls in flight may end, while nothing new starts; then they are stopped.
        """
        arguments.seconds("drain: grace", grace)
        stopping = [
            self._driver.stop(owned, grace)
            for owned in list(self._owned.tasks.values())
            if self._owned.is_owned(owned.state.task_id)
        ]
        if self._adopter is not None:
            stopping.append(self._adopter.stop(grace))
        await asyncio.gather(*stopping)

    def begin_adopting(self, *, at_most: int = AT_MOST, tell: Tell = log) -> None:
        """Adopt tasks that need a driver and have none, in the running event loop, until `drain` or `aclose`.

        Tasks are driven with the agents this runner was given, and the options they were begun with.

        Args:
            at_most: how many are driven at the same time.
            tell: is called with what the adopter did or met, in the event loop; by default it goes to the log
                `treadle.adopting`.
        """
        arguments.count("begin_adopting: at_most", at_most)
        self._adopter = Adopter(self._driver, at_most=at_most, tell=tell)

    @verb
    async def start(
        self,
        agent: Agent[ContextT, OutputT],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: dict[str, Json] | None = None,
        options: RunOptions | None = None,
        context: ContextT | None = None,
    ) -> RunHandle[OutputT]:
        """Start a task and return a handle at once; it is driven in this event loop and ends with it."""
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state)
        owned = await self._create_or_none(new, context)
        if owned is None:
            work = self._in_background(self._run_existing(new, context, detached=True))
            return RunHandle(self, str(task_id), work)
        work = self._in_background(self._drive_to_end(owned, agent, context, detached=True))
        handle = RunHandle(self, owned.state.task_id, work, owned.writer.epoch)
        await owned.writer.durable()
        return handle

    def _in_background(self, work: Coroutine[Any, Any, RunResult]) -> asyncio.Task[RunResult]:
        """Begin work in this event loop, and refer to it, so that it is not collected; the handle raises its error."""
        begun = asyncio.ensure_future(work)
        self._background.add(begun)
        begun.add_done_callback(self._background.discard)
        return begun

    @on_instances
    def handle(self, task: Ref[OutputT]) -> RunHandle[OutputT]:
        """Return a handle on a task, wherever it is driven."""
        return RunHandle(self, id_of(task))
