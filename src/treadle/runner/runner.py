"""`TaskRunner` has every verb on tasks, over ports alone. The public `Runner` only chooses its adapters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import ExitStack
from copy import copy
from types import TracebackType
from typing import Any, Self

from treadle.agents.agent import Agent
from treadle.core.abandoned import AbandonedCall
from treadle.core.messages import Json
from treadle.core.refused_uses import refuses
from treadle.core.unknown_names import ExplainsNames, explains_names, refuses_assignment
from treadle.drivers import arguments
from treadle.drivers.adoption import AT_MOST, Adopter, Tell, log
from treadle.drivers.arguments import parts_of
from treadle.drivers.driver import Dependencies
from treadle.drivers.new_task import NewRun
from treadle.engine.abandoned import still_running
from treadle.engine.observers import ObserverReport
from treadle.engine.options import RunOptions
from treadle.engine.vault import HidesSecrets
from treadle.errors import ConfigurationError, MisusedVerb
from treadle.policy.verdicts import Judge, checked_judge
from treadle.ports import ContextT, Observers, OutputT
from treadle.results.agent_info import AgentInfo, agent_info
from treadle.results.run_result import RunResult
from treadle.results.tasks import TaskSummary
from treadle.runner.changes import Changes, TaskChanges
from treadle.runner.faces import TaskVerbs
from treadle.runner.handle import RunHandle
from treadle.runner.maintenance import MaintenanceVerbs
from treadle.runner.scope import Scope
from treadle.runner.threads import ThreadVerbs
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, id_of
from treadle.runner.watching import in_event_loop


@refuses(
    enter="write `async with runner`, or `with runner.sync` without asyncio",
    iter="write `for task in (await runner.list_tasks()).items`",
    call="write `await runner.run(agent, text)`, or `runner.run_sync(agent, text)` without asyncio",
)
@explains_names("Runner")
@refuses_assignment("scope", "sync")
class TaskRunner(TaskVerbs, MaintenanceVerbs, ThreadVerbs, metaclass=ExplainsNames):
    """Creates, drives, controls and inspects tasks. Holds no state of a run; safe under any concurrency."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._background: set[asyncio.Future[Any]] = set()
        """drives of handles, referenced here so that they are not garbage-collected"""

        self._adopter: Adopter | None = None

    @on_instances
    def scoped(self, *, tenant: str = "", by: str | None = None, options: RunOptions | None = None) -> Self:
        """Return a runner with the same verbs in one tenant, for one principal, under a ceiling of options.

        Tenants share a store and are invisible to each other. An id of another tenant is not found, and a tenant may
        reuse it for a task or thread of its own. The runner itself works in the tenant whose name is empty.

        The scoped runner shares all other parts of this runner. It is cheap: a server makes one for each request. This
        runner drives its tasks and must stay open; closing the scoped runner closes nothing.

        Args:
            tenant: the tenant of all tasks, threads and grants that the verbs read and create: 1 to 100 printable
                characters without quotes and backslashes. A scoped runner can only be scoped to its own tenant.
            by: the name that each command and decision records. A call with another `by` is refused.
            options: a ceiling for the options of calls, also those of `resume`. The smaller of two numbers counts, such
                as limits. Calls cannot change any other field that it sets. A resume without options keeps those of a
                task, and so does a run of a known task.

        Raises:
            ConfigurationError: an argument is not valid, or this runner is scoped to another tenant or principal.
        """
        if tenant != "":
            arguments.tenant("scoped: tenant", tenant)
        elif self.scope is not None:
            tenant = self.scope.tenant
        if by is not None:
            arguments.identifier("scoped: by", by)
        if options is not None:
            arguments.options("scoped: options", options)
        outer = self.scope if self.scope is not None else Scope(tenant, defaults=self._options)
        view = copy(self)
        view.scope = outer.narrowed(tenant, by, options)
        view._use(self._drivers.of(tenant))  # noqa: SLF001  it is of this class
        return view

    @on_instances
    def changes(self) -> AsyncGenerator[TaskSummary, None]:
        """Yield each task that is created, driven on, stopped, ended or deleted from now on, as lists show it.

        Changes of a task within 0.2 seconds may be yielded as one. After a gap, such as a lost connection of the store,
        the changes of that time are yielded. A deleted task has `deleted=True`. Runners that share a store object
        report every deletion to each other. A deletion in another process is reported only for tasks that were yielded
        before; for other tasks, read the list periodically.
        """
        if not in_event_loop():
            raise MisusedVerb(
                "runner.changes() needs an event loop: without asyncio, write runner.sync.changes()"
            )
        changes = Changes(self._owned, self._clock, self.scope.tenant if self.scope is not None else "")
        return TaskChanges(changes.summaries(), changes.leave)

    @property
    def abandoned(self) -> tuple[AbandonedCall, ...]:
        """The calls of this process that still run after they ignored two cancellations and were abandoned."""
        return still_running()

    @verb
    async def get_agents(self) -> tuple[AgentInfo, ...]:
        """Return the agents that this runner can drive, by name: its own, and those they can reach."""
        agents = self._agents
        return tuple([agent_info(agent, agents.model_name_of(agent)) for agent in agents.registered()])

    @property
    def observers(self) -> tuple[ObserverReport, ...]:
        """Reports on this runner's observers: notices delivered and dropped, and errors raised."""
        return self._driver.observers.reports()

    def log_filter(self) -> logging.Filter:
        """Return a filter for `handler.addFilter` that masks this runner's known secrets, in tracebacks too."""
        return HidesSecrets(self._driver.vault)

    def middleware_of(self, agent: Agent[Any]) -> dict[str, tuple[str, ...]]:
        """Return the names of the middleware around each tool of an agent, the outermost first.

        Args:
            agent: the agent; tools without middleware are left out.
        """
        arguments.agent("middleware_of: agent", agent)
        layers = self._driver.agents.layers_of(agent)
        return {tool: tuple([str(layer) for layer in each]) for tool, each in layers.items()}

    async def __aenter__(self) -> Self:
        if self.scope is None:
            await self._drivers.open()
        else:
            await self._cache.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Write queued data and close the store; tasks still driven here are interrupted, as by `drain`.

        Observers receive their waiting notices for at most 2 seconds. Then verbs raise `StoreUnavailable`, until
        another `async with` opens the runner again. Closing a scoped runner closes nothing.
        """
        if self.scope is not None:
            return
        await self.drain()
        await self._drivers.close()
        await self._store.close()
        await self._driver.observers.aclose()

    @verb
    async def drain(self, grace: float = 0.0) -> None:
        """Stop driving before this process ends: adopt no more tasks, and release every task driven here.

        The tasks are `interrupted`. An adopting driver continues them at once, and so does `resume`.

        Args:
            grace: seconds that calls in flight get to end, while no call starts; then they are stopped.
        """
        arguments.seconds("drain: grace", grace)
        self._check_whole("drain")
        stopping = [
            driver.stop(owned, grace)
            for driver in self._drivers.all()
            for owned in list(driver.owned.tasks.values())
            if driver.owned.is_owned(owned.state.task_id)
        ]
        if self._adopter is not None:
            stopping.append(self._adopter.stop(grace))
        await asyncio.gather(*stopping)

    @on_instances
    def begin_adopting(
        self, *, at_most: int = AT_MOST, per_tenant: int | None = None, tell: Tell = log
    ) -> None:
        """Adopt tasks of all tenants that need a driver and have none, in the running event loop, until `drain`.

        Tasks are driven with the agents of this runner and the options they were created with.

        Args:
            at_most: maximum number of tasks driven at the same time.
            per_tenant: maximum number of these for one tenant, so that no tenant blocks the others; None for no limit.
            tell: called in the event loop with each action or problem of the adopter. By default they are logged to
                `treadle.adopting`.
        """
        arguments.count("begin_adopting: at_most", at_most)
        if per_tenant is not None:
            arguments.count("begin_adopting: per_tenant", per_tenant)
        self._check_whole("begin_adopting")
        self._adopter = Adopter(self._drivers, at_most=at_most, per_tenant=per_tenant, tell=tell)

    @on_instances
    def set_policy(self, policy: Judge | None) -> None:
        """Replace the policy of `Runner(policy=)` from now on; None restores that.

        It applies to every later judgement of this process, in all tenants, also in running tasks. Earlier judgements
        stay: an open question about a call stays open. The journal names the policy of each judgement by its
        `Policy.fingerprint`.

        Args:
            policy: the policy; `Policy()` allows everything that no agent's policy forbids.
        """
        checked_judge("set_policy: policy", policy)
        self._check_whole("set_policy")
        self._driver.set_policy(policy)
        for driver in self._drivers.all():
            driver.wake_for_policy()

    def _check_whole(self, verb: str) -> None:
        """Raise `ConfigurationError` on a scoped runner: the verb affects all driving of this process."""
        if self.scope is not None:
            raise ConfigurationError(f"{verb}: call it on the runner that this one was scoped from")

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
        observers: Observers = (),
        by: str | None = None,
    ) -> RunHandle[OutputT]:
        """Start a task and return a handle at once; the task is driven in this event loop and stops with it.

        The arguments are those of `run`.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state, by=by)
        with ExitStack() as entered:
            if observers:
                new.observers = entered.enter_context(self._driver.observing("start", observers))
            owned = await self._create_or_none(new, context)
            if owned is None:
                work = self._in_background(self._run_existing(new, context, detached=True))
            else:
                work = self._in_background(self._drive_to_end(owned, agent, context, detached=True))
            if observers:
                until_it_stops = entered.pop_all()
                work.add_done_callback(lambda _: until_it_stops.close())
        if owned is None:
            return RunHandle(self, str(task_id), work)
        handle = RunHandle(self, owned.state.task_id, work, owned.writer.epoch)
        await owned.writer.durable()
        return handle

    def _in_background(self, work: Coroutine[Any, Any, RunResult]) -> asyncio.Task[RunResult]:
        """Start work in this event loop and keep it from garbage collection; the handle raises its error."""
        background_task = asyncio.ensure_future(work)
        self._background.add(background_task)
        background_task.add_done_callback(self._background.discard)
        return background_task

    @on_instances
    def handle(self, task: Ref[OutputT]) -> RunHandle[OutputT]:
        """Return a handle on a task, wherever it is driven."""
        return RunHandle(self, id_of(task))
