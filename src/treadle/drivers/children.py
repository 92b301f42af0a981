"""Run called agents as tasks of their own: begin, continue, pause and end them.

A child has its own journal, named by its parent and its call. So a begun call is never in doubt: the driver of the
parent continues that journal. A child is driven only by the drive of its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from treadle.agents.agent import Agent
from treadle.agents.subagent import Subagent
from treadle.core import events as e
from treadle.core import ids
from treadle.core.children import SpentBy, by_agent
from treadle.core.data import frozen
from treadle.core.effects import Effect, RunAgent
from treadle.core.events import END_STATES
from treadle.core.messages import copied
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.steps import CallState
from treadle.core.tools import ToolSpec
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.arguments import parts_of
from treadle.drivers.commands import TaskCommands
from treadle.drivers.continuing import lift_stop
from treadle.drivers.new_task import ChildOf, NewRun, TaskCreator
from treadle.drivers.owned_tasks import OwnedTask, OwnedTasks
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.stopping import TaskStopper
from treadle.drivers.task_cache import TaskCache
from treadle.engine.broadcast import Channel, Item
from treadle.engine.drive import DriveLoop
from treadle.engine.effect_context import AgentRuntime, Goal, Inherited
from treadle.engine.observers import Listeners
from treadle.engine.options import from_json
from treadle.errors import AgentUnknown, Fenced, TaskBusy, TaskConflict, TaskNotFound, TaskTooNew
from treadle.policy.budget import Account, calls_made, own_spending, spent_by
from treadle.ports import InboxItem, JournalStore, TaskExists

PARENT: Final = "parent"
"""The `by` of a parent's requests to its children."""


class Drive(Protocol):
    """Drives an owned task to a goal; `TaskDriver.drive`."""

    async def __call__(
        self,
        owned: OwnedTask,
        goal: Goal,
        agent: Agent[Any],
        context: Any,
        *,
        above: Account,
        inherited: Inherited,
    ) -> DriveLoop: ...


@frozen
class ChildTasks:
    """The parts that run the children of drives."""

    store: JournalStore
    cache: TaskCache
    owned: OwnedTasks
    ownership: TaskOwnership
    commands: TaskCommands
    stopper: TaskStopper
    creator: TaskCreator
    agents: AgentRegistry
    drive: Drive
    clock: Callable[[], int]

    async def family_of(
        self,
        owned: OwnedTask,
        runtime: AgentRuntime,
        above: Account | None,
        passed_on: Callable[[], Inherited],
    ) -> Family:
        """Return the children of a drive; raise `AgentUnknown` for an agent that is named but not registered."""
        state, agent = owned.state, runtime.agent
        agents = dict[str, Agent[Any]]()
        for name, child in agent.subagents_by_tool.items():
            agents[name] = self.agents.named(child, agent) if isinstance(child, str) else child
        answers = runtime.rules.on_limit == "final_answer" and agent.custom_worker is None
        account = Account(runtime.rules.limits, state, keeps=answers and bool(runtime.tools), above=above)
        spent, unseen = await self.spent_below(state)
        for child_id, spending in spent.items():
            account.learn(child_id, spending)
        if above is not None:
            above.open(state.task_id, account)
        terms, labels = agent.subagent_terms, owned.labels
        return Family(self, account, agents, terms, owned.channel, unseen, passed_on, labels, owned.observers)

    async def spent_below(self, state: TaskState) -> tuple[dict[str, tuple[SpentBy, ...]], int]:
        """Return the spending of a task's open children, and the microseconds that they ran and it has not recorded.

        The figures come from their own journals, since after a kill the parent's journal has older ones.
        """
        spent, unseen = dict[str, tuple[SpentBy, ...]](), 0
        for call in state.open_children():
            task_id = str(call.child)
            row = await self.cache.row_or_none(task_id)
            if row is None:
                continue
            child = (await self.cache.load(task_id, row)).state
            deeper, unseen_below = await self.spent_below(child)
            unseen = max(unseen, child.driven + unseen_below - (state.driven - call.since))
            parts = [part for spending in (child.children | deeper).values() for part in spending]
            spent[task_id] = by_agent([*own_spending(child, calls_made(child)), *parts])
        return spent, unseen

    async def to_next_stop(
        self,
        task_id: str,
        *,
        may_exist: bool,
        new: Callable[[], Awaitable[NewRun]],
        drive: Callable[[OwnedTask], Awaitable[TaskState]],
        observers: Listeners | None,
    ) -> TaskState:
        """Drive a child, created if it does not exist, to its next stop, and return its state."""
        while True:
            row = await self.cache.row_or_none(task_id) if may_exist else None
            if row is not None and row.state in END_STATES:
                return (await self.cache.load(task_id, row)).state
            owned = None
            try:
                if row is None:
                    owned = await self.creator.create(await new())
                    async with self.ownership.releasing(owned):
                        return await drive(owned)
                async with self.ownership.acquire(task_id, enter=True, observers=observers) as owned:
                    return await drive(owned)
            except TaskExists:
                if may_exist and row is None and not self.owned.is_owned(task_id):
                    raise TaskConflict(
                        f"task {task_id} belonged to a task that was deleted",
                        task_id=task_id,
                        field="task_id",
                    ) from None
                may_exist = True
            except TaskBusy:
                await self.commands.stopped(task_id)
            except Fenced as refusal:
                if owned is None:
                    raise
                await self.commands.stopped_elsewhere(owned, refusal)
                may_exist = True

    async def pause(self, task_id: str, item_id: str, reason: str | None) -> None:
        """Post the pause of a parent to its child, with a stable id, so that a repeat is the same pause."""
        data = {"by": PARENT, "reason": reason}
        try:
            await self.store.post(task_id, InboxItem(item_id, "pause", data, self.clock()))
        except TaskNotFound:
            return  # it will see its parent's pause when it is created
        with suppress(TaskTooNew):  # a newer driver has it, and finds the pause
            await self.commands.attend(task_id)  # it may have stopped just before

    async def stop(self, call: CallState, reason: str) -> TaskState | None:
        """Cancel the task of a call and return its final state; None if it was never created."""
        task_id = str(call.child)
        row = await self.cache.row_or_none(task_id)
        if row is None:
            return None
        if row.state not in END_STATES:
            await self.stopper.stop(task_id, "cancel", {"by": PARENT, "reason": reason})
        return (await self.cache.load(task_id)).state


class Family:
    """The children of one drive.

    Args:
        tasks: runs them.
        account: the account of the parent.
        agents: the agents by the names of their tools.
        terms: the terms of the calls of some of them, by these names.
        channel: the channel of the parent, whose watchers get the events of its children.
        unseen: microseconds that children ran before a crash, recorded only in their own journals.
        passed_on: returns the inheritance of a child that is called now.
        labels: the labels of the task, which its children get too; None reads them from its row.
        observers: the observers of the call that drives the parent.
    """

    def __init__(
        self,
        tasks: ChildTasks,
        account: Account,
        agents: Mapping[str, Agent[Any]],
        terms: Mapping[str, Subagent],
        channel: Channel,
        unseen: int,
        passed_on: Callable[[], Inherited],
        labels: dict[str, str] | None = None,
        observers: Listeners | None = None,
    ) -> None:
        self._tasks = tasks
        self._observers = observers
        self._labels = labels
        self._passed_on = passed_on
        self._channel = channel
        self.account = account
        self.state = account.state
        self._agents = agents
        self._terms = terms
        self.unseen = unseen
        self.resting: set[str] = set()
        """the calls whose tasks stopped by themselves in this drive and wait for a command"""

        self.refused: e.LimitReached | None = None
        """the limit that refused a call since the last request; the model then gets no tools and must answer"""

        self._states: dict[str, TaskState] = {}
        """the states of the children that were driven here, by call"""

        self._tools: dict[str, Mapping[str, ToolSpec]] = {}
        """the tools of these children's present agents, by call"""

        self._pauses: dict[str, asyncio.Task[None]] = {}
        """the parent's pauses in delivery to its children, by call"""

    def has_agent(self, name: str) -> bool:
        """Return whether the tool of this name is an agent."""
        return name in self._agents

    def without_resting(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Return the effects without those of stopped children."""
        return tuple([effect for effect in effects if effect.id not in self.resting])

    def pause(self, effects: Iterable[Effect]) -> None:
        """Pass the pause of the parent on to running children."""
        for effect in effects:
            if type(effect) is RunAgent and effect.id not in self._pauses:
                self._pauses[effect.id] = asyncio.ensure_future(self._pause(effect.call))

    async def _pause(self, call: CallState) -> None:
        await self._tasks.pause(str(call.child), ids.child_pause_id(self.state.seq), self.state.stop_reason)

    async def note_resting(self, call: CallState, state: TaskState) -> None:
        """Record that a call's task stopped by itself; a task that stopped for its parent's pause continues with it."""
        pause = self._pauses.pop(call.id, None)
        if pause is not None:
            await pause  # the pause must arrive before the child is continued
        if pause is None or not state.pausing:
            self.resting.add(call.id)

    async def wait_for_pause(self) -> None:
        """Return once the pause of the parent has reached all its children."""
        if self._pauses:
            await asyncio.gather(*self._pauses.values())

    async def run(self, call: CallState, input: str, context: Any) -> TaskState:
        """Drive the task of a call to its next stop and return its state."""
        terms = self._terms.get(call.name)
        if terms is not None:
            context = terms.context_of(context)
        state = await self._tasks.to_next_stop(
            str(call.child),
            may_exist=call.attempt > 1,
            new=partial(self._new, call, input),
            drive=partial(self._drive, call, context),
            observers=self._observers,
        )
        self._check(state, call)
        return state

    def spent_by(self, call: CallState) -> tuple[SpentBy, ...]:
        """Return the spending of a call's task so far, if it was driven here."""
        state = self._states.get(call.id)
        return spent_by(state) if state is not None else ()

    def effects_seen(self, call: CallState, state: TaskState) -> tuple[str, ...]:
        """Return the declared effects of the tools whose results the task of a call has seen."""
        from treadle.policy.requests import Exposure

        agent = self._agents[call.name]

        def specs_of(name: str) -> Mapping[str, ToolSpec]:
            try:
                member = self._tasks.agents.member(state, agent, name) if name != agent.name else agent
            except AgentUnknown:
                return {}
            return {tool.spec.name: tool.spec for tool in member.tools}

        specs = self._tools.get(call.id) or specs_of(state.agent)
        return tuple(sorted(Exposure(specs, tools_of=specs_of).of(state).effects))

    def is_open(self, call: CallState) -> bool:
        """Return whether the task of a call was driven here and has not ended."""
        state = self._states.get(call.id)
        return state is not None and state.ended is None

    async def _new(self, call: CallState, input_text: str) -> NewRun:
        labels = self._labels
        if labels is None:
            labels = (await self._tasks.cache.row(self.state.task_id)).labels
        passed_on, relay = self._passed_on(), partial(self._relay, call)
        parent = ChildOf(self.state.task_id, call.id, self.state.depth + 1, relay)
        options = replace(from_json(self.state.options), limits=None, break_on=None, model_settings=None)
        options = replace(options, caller_tools=None, labels=labels)
        agent, task_id, terms = self._agents[call.name], str(call.child), self._terms.get(call.name)
        new = NewRun(agent, parts_of(input_text), task_id=task_id, options=options, child_of=parent)
        new.observers = self._observers
        new.untrusted, new.exposed = passed_on.untrusted, tuple(sorted(passed_on.exposed))
        if terms is not None and terms.state:
            state_view = StateView(StateAccess(self.state, call.began, f"the call of {call.name}"))
            new.extra_state = copied({key: state_view[key] for key in terms.state if key in state_view})
        return new

    async def _drive(self, call: CallState, context: Any, owned: OwnedTask) -> TaskState:
        state = owned.state
        self._check(state, call)
        self._states[call.id] = state
        if not isinstance(owned.channel.observed, ChildRelay):
            self._relay(call, owned)
        if state.ended is not None:
            return state
        if self.state.pausing:
            owned.writer.record(e.PauseRequested(PARENT, self.state.stop_reason))
        else:
            if state.limit is not None and self.account.forbids_request(final=False) is None:
                owned.writer.record(e.OptionsChanged(state.options, PARENT))  # it was raised since
            lift_stop(owned, PARENT)
        agent = self._tasks.agents.with_task(state, self._agents[call.name])
        try:
            drive = await self._tasks.drive(
                owned, "end", agent, context, above=self.account, inherited=self._passed_on()
            )
            self._tools[call.id] = drive.tools
        finally:
            self.account.close(state.task_id)
        return state

    def _relay(self, call: CallState, owned: OwnedTask) -> None:
        """Relay the events of a child to watchers of the parent."""
        agent, task_id = self._agents[call.name].name, owned.state.task_id
        owned.channel.above = self._channel
        owned.channel.observe(ChildRelay(owned.channel, self._channel, self.state, call, task_id, agent))

    def _check(self, state: TaskState, call: CallState) -> None:
        if (state.parent, state.parent_call) != (self.state.task_id, call.id):
            raise TaskConflict(
                f"task {state.task_id} exists already and is no child of task {self.state.task_id}",
                task_id=state.task_id,
                field="parent",
            )


class ChildRelay:
    """Relays the events of a child to the watchers of its parent, in addition to the child's own observers.

    Args:
        own: the child's channel, whose observers get events as before.
        up: the channel of the parent.
        parent: the state of the parent; relayed events follow its last event.
        call: the parent's call of the child.
        task_id, agent: those of the child.
    """

    def __init__(
        self, own: Channel, up: Channel, parent: TaskState, call: CallState, task_id: str, agent: str
    ) -> None:
        self._inner = own.observed
        self._own = own
        self._up, self._parent, self._call = up, parent, call
        self._task_id, self._agent = task_id, agent
        self.deltas = up.listeners or (self._inner is not None and self._inner.deltas)

    def publish(self, items: Sequence[Item]) -> None:
        """Relay durable events."""
        if self._inner is not None:
            self._inner.publish(items)
        for item in items:
            if isinstance(item, e.Event):
                self.pass_on(self._task_id, (), item)

    def tell(self, item: e.Ephemeral) -> None:
        """Relay a delta."""
        if self._inner is not None and self._inner.deltas:
            self._inner.tell(item)
        if isinstance(item, (e.Delta, e.ModelRestarted, e.ToolProgress)):
            self.pass_on(self._task_id, (), item)

    def pass_on(
        self,
        task_id: str,
        path: tuple[str, ...],
        event: e.Event | e.Delta | e.ModelRestarted | e.ToolProgress,
    ) -> None:
        """Relay an event to the watchers of every task above, with the agents on the path to its task."""
        origin = self._own.origin if path else getattr(event, "origin", None)
        path = (origin.agent_path[-1] if origin is not None else self._agent, *path)
        if self._up.watchers:
            child_event = e.ChildEvent(self._call.step, self._call.id, task_id, path, event, self._parent.seq)
            if (origin := self._up.origin) is not None:
                child_event.origin = origin
            self._up.tell_watchers(child_event)
        above = self._up.observed
        if isinstance(above, ChildRelay):
            above.pass_on(task_id, path, event)
