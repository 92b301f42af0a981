"""Running agents that were called as tasks of their own: begin, go on with, pause, end, and what came of them.

A child has its own journal, named by its parent and the call that it is. So a call that was begun is never in doubt:
whoever drives the parent goes on with that journal. A child is driven only by the drive of its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.children import SpentBy, by_agent
from treadle.core.data import frozen
from treadle.core.effects import Effect, RunAgent
from treadle.core.events import END_STATES
from treadle.core.state import TaskState
from treadle.core.steps import CallState
from treadle.drivers.arguments import parts_of
from treadle.drivers.stopping import stop
from treadle.drivers.task_cache import OwnedTask
from treadle.engine.broadcast import Channel, Item
from treadle.engine.effect_context import AgentRuntime
from treadle.engine.options import from_json
from treadle.errors import Fenced, TaskBusy, TaskConflict, TaskNotFound, TaskTooNew
from treadle.policy.budget import Account, own_spending, spent_by
from treadle.ports import InboxItem, TaskExists

if TYPE_CHECKING:
    from treadle.drivers.driver import NewRun, TaskDriver

PARENT: Final = "parent"
"""Who asks a child for what was asked of its parent."""


@frozen
class ChildOf:
    """Of which task a new one is a child, by which of its calls, and how deep below the first.

    `relay` is called before anything is said in the new task, so that those above it hear all of it.
    """

    task_id: str
    call: str
    depth: int
    relay: Callable[[OwnedTask], None]


class Family:
    """The children of one drive.

    Args:
        driving: how tasks are driven here.
        account: the parent's.
        agents: by the names of the tools that they are.
        channel: the parent's, whose watchers hear of its children.
    """

    def __init__(
        self, driving: TaskDriver, account: Account, agents: Mapping[str, Agent[Any]], channel: Channel
    ) -> None:
        self._driving = driving
        self._channel = channel
        self.account = account
        self.state = account.state
        self._agents = agents
        self.resting: set[str] = set()
        """the calls whose tasks stopped of their own in this drive: they are left until somebody says otherwise"""

        self.unseen = 0
        """microseconds for which the tree was driven before a kill, and of which only children's journals tell"""

        self.refused: e.LimitReached | None = None
        """why a call was refused since the model was last asked: it is asked for an answer, not for more calls"""

        self._states: dict[str, TaskState] = {}
        """of the children that were driven here, by call"""

        self._told: dict[str, asyncio.Task[None]] = {}
        """whom the pause of the parent was passed on to"""

    def has_agent(self, name: str) -> bool:
        """Whether there is an agent under the name of a tool."""
        return name in self._agents

    def without_resting(self, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
        """Return what is wanted without the children that rest."""
        return tuple([effect for effect in effects if effect.id not in self.resting])

    def pause(self, effects: Iterable[Effect]) -> None:
        """Pass the pause of the parent on to children that run."""
        for effect in effects:
            if type(effect) is RunAgent and effect.id not in self._told:
                self._told[effect.id] = asyncio.ensure_future(self._pause(effect.call))

    async def _pause(self, call: CallState) -> None:
        data = {"by": PARENT, "reason": self.state.stop_reason}
        item = InboxItem(f"pause-{self.state.seq}", "pause", data, self._driving.parts.clock())
        try:
            await self._driving.store.post(str(call.child), item)
        except TaskNotFound:
            return  # it is about to be made, and sees then that its parent is to pause
        with suppress(TaskTooNew):  # a newer driver has it, and finds the pause
            await self._driving.attend(str(call.child))  # it may have come to rest just before

    async def note_resting(self, call: CallState, state: TaskState) -> None:
        """Note that a call's task stopped of its own; one that stopped for its parent's pause goes on with it."""
        told = self._told.pop(call.id, None)
        if told is not None:
            await told  # so that the pause comes before the child is driven on, and not after
        if told is None or not state.pausing:
            self.resting.add(call.id)

    async def wait_for_pause(self) -> None:
        """Return once the pause of the parent is with all its children."""
        if self._told:
            await asyncio.gather(*self._told.values())

    async def run(self, call: CallState, told: str, context: Any) -> TaskState:
        """Drive the task that a call is to its next stop, and return how it stands."""
        driving, task_id, known = self._driving, str(call.child), call.attempt > 1
        while True:
            row = await driving.row_or_none(task_id) if known else None
            if row is not None and row.state in END_STATES:
                state = (await driving.desk.load(task_id, row)).state
                self._check(state, call)
                return state
            owned = None
            try:
                if row is None:
                    owned = await driving.create(self._new(call, told))
                    async with driving.owning.releasing(owned):
                        return await self._drive(owned, call, context)
                async with driving.owning.own(task_id, enter=True) as owned:
                    return await self._drive(owned, call, context)
            except TaskExists:
                if known and row is None and not driving.desk.is_owned(task_id):
                    raise TaskConflict(
                        f"task {task_id} belonged to a task that was deleted",
                        task_id=task_id,
                        field="task_id",
                    ) from None
                known = True
            except TaskBusy:
                await driving.stopped(task_id)
            except Fenced as refusal:
                if owned is None:
                    raise
                await driving.succeeded(owned, refusal)
                known = True

    def spent_by(self, call: CallState) -> tuple[SpentBy, ...]:
        """Return what the task of a call spent so far, if it was driven here."""
        state = self._states.get(call.id)
        return spent_by(state) if state is not None else ()

    def is_open(self, call: CallState) -> bool:
        """Whether the task of a call was driven here and has not ended."""
        state = self._states.get(call.id)
        return state is not None and state.ended is None

    def _new(self, call: CallState, told: str) -> NewRun:
        from treadle.drivers.driver import NewRun

        of = ChildOf(self.state.task_id, call.id, self.state.depth + 1, partial(self._relay, call))
        options = replace(from_json(self.state.options), limits=None, break_on=None)
        agent, task_id = self._agents[call.name], str(call.child)
        return NewRun(agent, parts_of(told), task_id=task_id, options=options, child_of=of)

    async def _drive(self, owned: OwnedTask, call: CallState, context: Any) -> TaskState:
        driving, state = self._driving, owned.state
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
            driving.go_on(owned, PARENT)
        agent = driving.agents.version_for(state, self._agents[call.name])
        try:
            await driving.drive(owned, "end", agent, context, above=self.account)
        finally:
            self.account.close(state.task_id)
        return state

    def _relay(self, call: CallState, owned: OwnedTask) -> None:
        """Have those who watch the parent hear of what happens in a child."""
        agent, task_id = self._agents[call.name].name, owned.state.task_id
        owned.channel.observe(ChildRelay(owned.channel, self._channel, self.state, call, task_id, agent))

    def _check(self, state: TaskState, call: CallState) -> None:
        if (state.parent, state.parent_call) != (self.state.task_id, call.id):
            raise TaskConflict(
                f"task {state.task_id} is there already and is no child of task {self.state.task_id}",
                task_id=state.task_id,
                field="parent",
            )


class ChildRelay:
    """Tells the watchers of a parent what happens in a child, beside those who observe the child itself.

    Args:
        own: the child's channel; whoever observes it is told on.
        up: its parent's.
        parent: as it stands; what is told comes after its last event.
        call: which of the parent's calls the child is.
        task_id, agent: who the child is.
    """

    def __init__(
        self, own: Channel, up: Channel, parent: TaskState, call: CallState, task_id: str, agent: str
    ) -> None:
        self._inner = own.observed
        self._up, self._parent, self._call = up, parent, call
        self._task_id, self._agent = task_id, agent
        self.deltas = up.listeners or (self._inner is not None and self._inner.deltas)

    def publish(self, items: Sequence[Item]) -> None:
        """Tell of events that are durable."""
        if self._inner is not None:
            self._inner.publish(items)
        for item in items:
            if isinstance(item, e.Event):
                self._pass_on(self._task_id, (), item)

    def tell(self, item: e.Ephemeral) -> None:
        """Tell of a delta."""
        if self._inner is not None and self._inner.deltas:
            self._inner.tell(item)
        if isinstance(item, (e.Delta, e.ModelRestarted, e.ToolProgress)):
            self._pass_on(self._task_id, (), item)

    def _pass_on(
        self,
        task_id: str,
        path: tuple[str, ...],
        event: e.Event | e.Delta | e.ModelRestarted | e.ToolProgress,
    ) -> None:
        call, path = self._call, (self._agent, *path)
        if self._up.watchers:
            told = e.ChildEvent(call.step, call.id, task_id, path, event, self._parent.seq)
            self._up.tell_watchers(told)
        above = self._up.observed
        if isinstance(above, ChildRelay):
            above._pass_on(task_id, path, event)  # noqa: SLF001  of the same kind


async def family_of(
    driving: TaskDriver, owned: OwnedTask, kit: AgentRuntime, above: Account | None
) -> Family:
    """Return the children of a drive; raises `AgentUnknown` for one that is only named and not known here."""
    state, agents = owned.state, dict[str, Agent[Any]]()
    for name, agent in kit.agent.subagents_by_tool.items():
        agents[name] = driving.agents.named(agent, kit.agent) if isinstance(agent, str) else agent
    answers = kit.rules.on_limit == "final_answer" and kit.agent.custom_worker is None
    account = Account(kit.rules.limits, state, keeps=answers and bool(kit.tools), above=above)
    known, unseen = await spent_below(driving, state)
    for child, told in known.items():
        account.learn(child, told)
    if above is not None:
        above.open(state.task_id, account)
    family = Family(driving, account, agents, owned.channel)
    family.unseen = unseen
    return family


async def stop_child(driving: TaskDriver, call: CallState, why: str) -> TaskState | None:
    """Cancel the task that a call is and return its state at its end; None if it was never made."""
    task_id = str(call.child)
    row = await driving.row_or_none(task_id)
    if row is None:
        return None
    if row.state not in END_STATES:
        await stop(driving, task_id, "cancel", {"by": PARENT, "reason": why})
    return (await driving.desk.load(task_id)).state


async def spent_below(driving: TaskDriver, state: TaskState) -> tuple[dict[str, tuple[SpentBy, ...]], int]:
    """Return what the open children of a task spent, and for how long they were driven unseen by it.

    Their own journals tell: a kill left that of their parent behind.
    """
    found, unseen = dict[str, tuple[SpentBy, ...]](), 0
    for call in state.open_children():
        task_id = str(call.child)
        row = await driving.row_or_none(task_id)
        if row is None:
            continue
        child = (await driving.desk.load(task_id, row)).state
        deeper, below = await spent_below(driving, child)
        unseen = max(unseen, child.driven + below - (state.driven - call.since))
        parts = [part for known in (child.children | deeper).values() for part in known]
        found[task_id] = by_agent([own_spending(child), *parts])
    return found, unseen
