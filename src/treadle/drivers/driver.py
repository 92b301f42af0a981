"""Drive owned tasks to a goal, and assemble the parts that drive tasks in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from treadle.agents.agent import Agent
from treadle.agents.decide import function_calling
from treadle.agents.middleware import ToolMiddleware
from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.events.control import RUNNER
from treadle.core.ids import in_tenant
from treadle.core.messages import Content, Json
from treadle.core.permits import StandingGrant
from treadle.core.state import TaskState
from treadle.core.tools import ToolSpec
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.agent_version import record_agent
from treadle.drivers.children import ChildTasks
from treadle.drivers.commands import TaskCommands
from treadle.drivers.continuing import commit
from treadle.drivers.new_task import TaskCreator
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.seen_messages import select_messages
from treadle.drivers.stopping import TaskStopper
from treadle.drivers.task_cache import CACHED_TASKS, TaskCache
from treadle.drivers.terminal import has_terminal
from treadle.drivers.toolsets import ConnectedToolsets
from treadle.drivers.user_context import ContextFactory, UserContexts
from treadle.engine import task_log
from treadle.engine.drive import DriveLoop
from treadle.engine.effect_context import (
    AgentRuntime,
    DriveSpec,
    EffectContext,
    Goal,
    Inherited,
    failing,
    idle,
)
from treadle.engine.journal_writer import Recorder
from treadle.engine.metering import Pricing, no_price
from treadle.engine.observers import Listeners, ObserverSet
from treadle.engine.options import RunOptions, from_json, rules_for
from treadle.engine.pending_callback import OnPending, PendingCallback
from treadle.engine.policy_in_force import RunnerPolicy, judges_of, under_judges
from treadle.engine.release import DRIVER_CLOSED
from treadle.engine.thread_queue import ENCLOSING_TASKS, AdmissionHooks, ThreadAdmission
from treadle.engine.vault import NO_VAULT, Vault
from treadle.errors import AgentUnknown, Fenced, TaskNotFound
from treadle.policy.budget import Account
from treadle.policy.verdicts import Judge
from treadle.ports import (
    Commit,
    Conversation,
    ConversationWindow,
    JournalStore,
    Memory,
    Model,
    Observer,
    Observers,
    OnBusyThread,
    QueuePosition,
    TenantStores,
    Tool,
)
from treadle.results.states import state_at_rest

if TYPE_CHECKING:
    from treadle.policy.guardrails import Guardrail


def system_time() -> int:
    """Return the system time, in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@frozen
class Dependencies:
    """The parts that the composition root gives to a runner."""

    store: JournalStore
    tenants: TenantStores
    resolve_model: Callable[[str | Model], Model]
    load_parts: Callable[[tuple[Content, ...]], tuple[Content, ...]]
    options: RunOptions
    memory: Memory
    agents: tuple[Agent[Any], ...] = ()
    context_factory: ContextFactory | None = None
    clock: Callable[[], int] = system_time
    observers: tuple[Observer, ...] = ()
    price: Pricing = no_price
    extra_state: dict[str, Json] | None = None
    policy: Judge | None = None
    middleware: tuple[ToolMiddleware, ...] = ()
    vault: Vault = NO_VAULT
    guardrails: tuple[Guardrail, ...] = ()
    on_pending: Callable[[str], OnPending] | None = None
    at_terminal: Callable[[str], OnPending] | None = None
    model: str | Model | None = None
    """the default for agents that name none"""

    tenant: str = ""
    """the tenant of the tasks; the two functions above take it"""

    observer_of: Callable[[str, Any], Observer] | None = None
    """converts an entry of a list of observers; takes its label in errors too; None if entries need no conversion"""


CACHED_OF_TENANT: Final = 32
"""Number of stopped tasks whose state stays in memory, for each tenant with a name."""

_NO_OBSERVERS: Final[AbstractContextManager[None]] = nullcontext()

DRIVE_BEGIN_TRIES: Final = 100
"""Hundredths of a second to wait for the drive of a newly acquired task, so that it can be stopped."""


class TaskDriver:
    """Drives the tasks of one tenant of a runner; its parts are attributes for the verbs.

    Args:
        dependencies: the choices of the composition root.
        shared: the driver of another tenant of the same runner, whose agents, observers and toolsets are used.

    Attributes:
        tenant: the tenant of the tasks.
        cache: rows and states of tasks.
        owned: the tasks that this process owns.
        ownership: acquires and releases tasks.
        agents: the registered agents.
        toolsets: the connections of toolsets.
        creator: makes new tasks.
        commands: sends commands to tasks and waits for them.
        stopper: cancels, pauses and interrupts tasks.
        children: runs tasks below others.
        contexts: builds and checks the contexts of drives; verbs call it before they record anything.
    """

    def __init__(self, dependencies: Dependencies, shared: TaskDriver | None = None) -> None:
        self.tenant = tenant = dependencies.tenant
        self.store = store = dependencies.store
        self.clock = clock = dependencies.clock
        self.vault = vault = dependencies.vault
        self._is_shared = shared is not None
        if shared is not None:
            self.observers, self.agents, self.toolsets = shared.observers, shared.agents, shared.toolsets
            self._policy = shared._policy  # noqa: SLF001  it is of this class
        else:
            self.observers = ObserverSet(dependencies.observers, vault)
            self.agents = AgentRegistry(
                dependencies.resolve_model,
                dependencies.price,
                dependencies.middleware,
                vault,
                dependencies.model,
            )
            for agent in dependencies.agents:
                self.agents.register(agent)
            self.toolsets = ConnectedToolsets(getattr(store, "path", None), vault)
            self._policy = RunnerPolicy(dependencies.policy)
        self.cache = TaskCache(store, CACHED_TASKS if shared is None else CACHED_OF_TENANT)
        self.owned = OwnedTasks(store, self.cache, clock, self.observers.own, vault, tenant)
        self.ownership = TaskOwnership(store, self.cache, self.owned, self.read_inbox, clock)
        self.creator = TaskCreator(
            store,
            self.cache,
            self.owned,
            self.ownership,
            self.agents,
            dependencies.load_parts,
            dependencies.options,
            dependencies.extra_state,
            clock,
        )
        self.commands = TaskCommands(
            store, self.cache, self.owned, self.ownership, self.read_inbox, clock, vault
        )
        self.stopper = TaskStopper(store, self.cache, self.owned, self.commands)
        self.children = ChildTasks(
            store,
            self.cache,
            self.owned,
            self.ownership,
            self.commands,
            self.stopper,
            self.creator,
            self.agents,
            self.drive,
            clock,
        )
        self._observer_of = dependencies.observer_of
        self._memory = dependencies.memory
        self._price = dependencies.price
        on_pending, at_terminal = dependencies.on_pending, dependencies.at_terminal
        self._on_pending = PendingCallback(on_pending(tenant), vault) if on_pending else None
        self._at_terminal = PendingCallback(at_terminal(tenant), vault) if at_terminal else None
        self._guardrails = dependencies.guardrails
        self._stopping: set[asyncio.Task[None]] = set()
        """functions that release the tasks of a store that a newer version migrated"""

        self.contexts = UserContexts(dependencies.context_factory, self.agents, self.cache, tenant, vault)

    def observing(self, verb: str, listed: Observers) -> AbstractContextManager[Listeners | None]:
        """Provide the observers of one call for the length of a block; None without any.

        Raises:
            ConfigurationError: an entry is neither a function, nor an observer, nor the name of one.
            MissingExtra: the observer of a name needs a package that is not installed.
        """
        if not listed:
            return _NO_OBSERVERS
        made, label = self._observer_of, f"{verb}: observers"
        observers: list[Any] = [each if made is None else made(label, each) for each in listed]
        named = [isinstance(each, str) for each in listed]  # those belong to this call alone
        return self.observers.of_call([*zip(observers, named, strict=True)])

    async def drive(
        self,
        owned: OwnedTask,
        goal: Goal,
        agent: Agent[Any] | None,
        context: Any,
        only: frozenset[str] | None = None,
        above: Account | None = None,
        inherited: Inherited | None = None,
    ) -> DriveLoop:
        """Drive an owned task to a goal and return the stopped drive; the owner releases the task.

        `only` limits a task of step functions to the steps of these ids. For a child, `above` is the account of its
        parent, and `inherited` the parent's inheritance.
        """
        runs = goal in ("end", "step")
        is_closing = False
        if agent is not None and agent.toolsets and runs:
            bound = await self.toolsets.bind_unless_stopped(
                agent, self._full_id(owned), partial(self._is_commanded_to_stop, owned)
            )
            if bound == "commanded":
                return await self.read_inbox(owned)
            is_closing = bound == "shutdown"
            agent = None if isinstance(bound, str) else bound
        terms = _Terms(goal, only, context, above, inherited or Inherited())
        in_force = self._policy.in_force
        spec, effect_context = await self._prepare(owned, agent, terms)
        owned.drive = drive = DriveLoop(
            self.store,
            owned.writer,
            owned.state,
            spec,
            effect_context,
            self.children.stop,
            self._admission(owned, spec.options) if runs else None,
            was_wanted=owned.wanted,
            on_pending=self._callback_of(spec.options) if runs else None,
            hand_over=partial(self._hand_over, owned, terms),
        )
        if self._policy.in_force is not in_force:
            drive.judge_anew()
        if is_closing:
            drive.interrupt(RUNNER, DRIVER_CLOSED)
        inside = ENCLOSING_TASKS.set((*ENCLOSING_TASKS.get(), self._full_id(owned)))
        if runs:
            task_log.tell_began(owned.state)
        try:
            await drive.run()
            if runs:
                task_log.tell_stopped(owned.state, state_at_rest(owned.state))
        except Fenced:
            task_log.tell_lost(owned.state, owned.writer.epoch)
            raise
        finally:
            with suppress(ValueError):  # collected in another context, since its loop was closed
                ENCLOSING_TASKS.reset(inside)
        return drive

    async def _prepare(
        self, owned: OwnedTask, agent: Agent[Any] | None, terms: _Terms
    ) -> tuple[DriveSpec, EffectContext | None]:
        """Return the specification of a drive with an agent, and the context of its effects."""
        state, inherited = owned.state, terms.inherited
        if agent is not None and state.options:
            agent = self.agents.with_caller_tools(state, agent)
        runtime = self.agents.runtime_for(state, agent) if agent is not None else None
        if runtime is None:
            return _spec(terms, state, None, ()), None
        creator = runtime.agent if state.team is None else self.agents.creator_of(state, runtime.agent)
        if creator is not runtime.agent and creator.policy is not None:
            inherited = replace(inherited, judges=(*inherited.judges, creator.policy))
        if runtime.agent.policy is not None and runtime.agent.policy not in inherited.judges:
            inherited = replace(inherited, judges=(*inherited.judges, runtime.agent.policy))
        has_guardrails = self._guardrails or runtime.agent.guardrails
        guardrails = self._guardrails_for(runtime.agent) if has_guardrails else ()
        judges = judges_of(self._policy.in_force, inherited.judges)
        spec = _spec(terms, state, runtime, judges, guardrails)
        if terms.goal in ("end", "step"):
            await self.agents.check_limits(runtime.agent, runtime.rules.limits, state, spec.options.break_on)
            failure = await record_agent(owned, runtime.agent, terms.context, spec.options, self.vault)
            if failure is not None:
                spec.work = failing(failure)
        effect_context = await self._effect_context(owned, runtime, spec, terms, inherited)
        if guardrails:
            from treadle.engine.guarding import Guarding

            effect_context.guarding = Guarding(effect_context, guardrails)
            effect_context.labels = await self._labels(owned)
        return spec, effect_context

    async def _hand_over(
        self,
        owned: OwnedTask,
        terms: _Terms,
        present: Agent[Any],
        record: Recorder,
        is_called: Callable[[], bool],
    ) -> tuple[DriveSpec, EffectContext | None] | None:
        """Record the requested handoff and return the specification for the rest of the drive.

        None if a command for the drive arrives while a toolset of that agent starts.
        """
        state = owned.state
        next_agent = state.team.next if state.team is not None else None
        assert next_agent is not None, "the last step asked for it"
        from treadle.agents.handoff import check_takes_over

        agent = self.agents.member(state, present, next_agent.agent)
        check_takes_over(agent)
        if agent.toolsets:

            async def is_commanded() -> bool:
                return is_called()

            bound = await self.toolsets.bind_unless_stopped(agent, self._full_id(owned), is_commanded)
            if isinstance(bound, str):
                return None
            agent = bound
        step = state.steps[-1].id
        record(e.AgentChanged(step, next_agent.call, agent.name, state.agent, agent.fingerprint))
        return await self._prepare(owned, agent, terms)

    def _full_id(self, owned: OwnedTask) -> str:
        """Return the id of a task, unique across tenants."""
        return in_tenant(self.tenant, owned.state.task_id)

    async def read_inbox(self, owned: OwnedTask) -> DriveLoop:
        """Read the inbox of an owned task, then release the task."""
        return await self.drive(owned, "attend", None, None)

    async def _is_commanded_to_stop(self, owned: OwnedTask) -> bool:
        """Return whether a command in the inbox of a task stops it, in which case it needs no tools."""
        try:
            items = await self.store.inbox(owned.state.task_id)
        except TaskNotFound:
            return False  # it is written with its first events
        return any(item.kind in ("cancel", "interrupt", "pause") for item in items)

    async def stop(self, owned: OwnedTask, grace: float) -> None:
        """Interrupt an owned task because its driver shuts down; return when it is interrupted."""
        tries = DRIVE_BEGIN_TRIES
        if owned.drive is None:
            self.toolsets.stop_waiting(self._full_id(owned))
        while owned.drive is None and tries and self.owned.is_owned(owned.state.task_id):
            tries -= 1  # it was just created, or claimed
            await asyncio.sleep(0.01)
        if owned.drive is not None:
            await owned.drive.stop(DRIVER_CLOSED, grace)

    def release_all(self, grace: float) -> None:
        """Interrupt and release every owned task soon; callable from any thread."""
        for owned in list(self.owned.tasks.values()):
            loop = owned.writer.loop

            def stop(owned: OwnedTask = owned, loop: asyncio.AbstractEventLoop = loop) -> None:
                stopping = loop.create_task(self.stop(owned, grace))
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)

            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(stop)

    async def close(self) -> None:
        """Release all releasable tasks, close connections of toolsets, and stop watching the store."""
        await self.ownership.close()
        if not self._is_shared:
            await self.toolsets.close()
        self.cache.close()
        self.owned.close()

    def set_policy(self, policy: Judge | None) -> None:
        """Use another policy from now on, in all tenants; `wake_for_policy` notifies the running drives."""
        self._policy.set(policy)

    def wake_for_policy(self) -> None:
        """Make the drives of this tenant check the policy in force; callable from any thread."""
        for owned in list(self.owned.tasks.values()):
            if (drive := owned.drive) is not None:
                drive.judge_anew()

    def _callback_of(self, options: RunOptions) -> PendingCallback | None:
        """Return the callback for requests for approval; that of the terminal if the run uses it and there is one."""
        if options.interaction == "interactive" and has_terminal():
            return self._at_terminal
        return self._on_pending

    async def _standing_grants(self, tool: str) -> Sequence[StandingGrant]:
        return await self.store.grants(tool=tool)

    async def _effect_context(
        self,
        owned: OwnedTask,
        runtime: AgentRuntime,
        spec: DriveSpec,
        terms: _Terms,
        inherited: Inherited,
    ) -> EffectContext:
        state, writer, agent, above = owned.state, owned.writer, runtime.agent, terms.above
        options = spec.options
        effects = EffectContext(
            state, runtime, owned.channel, terms.context, writer.durable, writer.clock, self._price
        )
        effects.vault = self.vault
        effects.enter_call = owned.enter_call
        effects.conversation = inherited.conversation or state.thread
        if hasattr(self.store, "grants"):
            effects.standing_grants = self._standing_grants
        if agent.subagents or above is not None or state.children:
            effects.subagents = await self.children.family_of(owned, runtime, above, effects.passed_on)
        effects.policy, effects.inherited = self._policy, inherited
        effects.read_labels = partial(self._labels, owned)
        if runtime.layers is not None:
            from treadle.engine.judging import refusal_of

            effects.refusal_of = refusal_of
        if agent.function_worker is not None:
            from treadle.engine.step_requests import StepRequests

            headless = options.interaction == "headless"
            effects.step_requests = StepRequests(state, writer.clock, effects.vault, headless=headless)
            effects.step_requests.guarded_tools = spec.rules.guarded_tools
            spec.rules = replace(spec.rules, asked_again=effects.step_requests.asked_again)
        if state.versions:
            effects.tools_of = partial(self._tools_of, state, agent)
            effects.specs_of = partial(self._specs_of, state, agent)
        if state.team is not None or options.context_tokens is not None:

            def open_window(conversation: Conversation) -> ConversationWindow:
                if conversation is not state:
                    return self._memory.window(conversation)
                owned.window = window = owned.window or self._memory.window(state)
                return window

            effects.select_messages = select_messages(self.agents, state, runtime, open_window)
        return effects

    def _tools_of(self, state: TaskState, present: Agent[Any], name: str) -> dict[str, Tool]:
        """Return the tools of a former agent of a task; raises `AgentUnknown`."""
        return {tool.spec.name: tool for tool in self.agents.member(state, present, name).tools}

    def _specs_of(self, state: TaskState, present: Agent[Any], name: str) -> dict[str, ToolSpec]:
        """Return the specs of a former agent's tools; empty if it is not known."""
        try:
            tools = self._tools_of(state, present, name)
        except AgentUnknown:
            return {}
        return {name: tool.spec for name, tool in tools.items()}

    async def _labels(self, owned: OwnedTask) -> Mapping[str, str]:
        labels = owned.labels
        return (await self.cache.row(owned.state.task_id)).labels if labels is None else labels

    def _guardrails_for(self, agent: Agent[Any]) -> tuple[Guardrail, ...]:
        """Return the guardrails for the tasks of an agent: the runner's, and its own."""
        from treadle.policy.guardrails import guardrails_for

        return guardrails_for(agent.name, (*self._guardrails, *agent.guardrails))

    # ---------------------------------------------------------------------------- entering the thread

    def _admission(self, owned: OwnedTask, options: RunOptions) -> ThreadAdmission | None:
        """Return the admission of a task to its thread; None if it has entered, or is a summary."""
        if owned.entered or owned.state.covers:
            return None
        state, writer = owned.state, owned.writer

        async def ask(on_busy: OnBusyThread) -> QueuePosition | None:
            await writer.durable()
            return (await commit(self.store, Commit(state.task_id, writer.epoch, enter=on_busy))).place

        def record(event: e.Event) -> None:
            writer.record(event)
            writer.flush()

        async def read_history(version: int) -> None:
            await self.cache.begin_with_history(state, state.thread, version)

        async def release_again(task_id: str) -> None:
            await self.ownership.release_again(task_id)

        hooks = AdmissionHooks(ask, record, read_history, self._interrupt_holder, release_again)
        on_busy = options.on_busy_thread or "enqueue"
        return ThreadAdmission(self.owned.thread_queue, state, on_busy, owned.position, hooks, self.tenant)

    async def _interrupt_holder(self, task_id: str) -> None:
        row = await self.cache.row_or_none(task_id)
        if row is not None and self.owned.is_driven(row):
            reason = {"reason": "another task was to begin in its thread"}
            with suppress(TaskNotFound):
                await self.commands.send(task_id, "interrupt", reason)


@mutable
class _Terms:
    """The terms of a drive that stay the same across handoffs; see `TaskDriver.drive`."""

    goal: Goal
    only: frozenset[str] | None
    context: Any
    above: Account | None
    inherited: Inherited


def _spec(
    terms: _Terms,
    state: TaskState,
    runtime: AgentRuntime | None,
    judges: tuple[Judge, ...],
    guardrails: tuple[Guardrail, ...] = (),
) -> DriveSpec:
    goal, only = terms.goal, terms.only
    if runtime is None:
        options = from_json(state.options)
        return DriveSpec(goal, rules_for(None, options), options, idle)
    worker, rules = runtime.agent.custom_worker, runtime.rules
    decide = function_calling.decide if worker is None else worker.decide
    if goal not in ("end", "step"):
        decide = idle
    rules = under_judges(rules, runtime.agent, runtime.model, judges, gated=rules.gated)
    if guardrails or state.checks:
        from treadle.agents.decide.guardrails import guarded, guarded_rules

        acts_first = runtime.agent.function_worker is not None or runtime.agent.router is not None
        rules = guarded_rules(rules, guardrails, runs_functions=acts_first)
        decide = decide if decide is idle else guarded(decide)
    if only is not None:
        rules = replace(rules, only_steps=only)
    elif goal == "step" and worker is not None:
        rules = replace(rules, max_parallel_steps=1)  # steps that are not planned yet have no ids
    return DriveSpec(goal, rules, runtime.options, decide)
