"""From a caller's wish to a driven task: with which options, made or reopened, driven, told."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from treadle.agents.agent import Agent
from treadle.agents.context import RunContext
from treadle.agents.decide import function_calling
from treadle.core import events as e
from treadle.core.codec import flaw
from treadle.core.data import frozen, mutable
from treadle.core.events import END_STATES
from treadle.core.journal import unfold
from treadle.core.messages import Content, Json
from treadle.core.state import TaskState, start
from treadle.core.steps import CallState
from treadle.drivers import arguments
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.ownership import TaskOwnership
from treadle.drivers.task_cache import OwnedTask, TaskCache
from treadle.engine.drive import CHILD_ITEM, DRIVER_CLOSED, DriveLoop, DriveSpec, Goal, idle
from treadle.engine.effect_context import AgentRuntime, EffectContext
from treadle.engine.inbox import as_event
from treadle.engine.journal_writer import Lease
from treadle.engine.metering import Pricing, no_price
from treadle.engine.observers import ObserverSet
from treadle.engine.options import RunOptions, from_json, limits_of, rules_for, to_json, was_raised
from treadle.engine.perform import standing_instructions
from treadle.engine.thread_queue import ENCLOSING_TASKS, AdmissionHooks, ThreadAdmission
from treadle.errors import (
    ChildTask,
    ConfigurationError,
    Fenced,
    TaskBusy,
    TaskNotFound,
    TaskTooNew,
    ThreadBusy,
    VersionRefused,
)
from treadle.ports import (
    Commit,
    InboxItem,
    JournalStore,
    Memory,
    Model,
    NewTask,
    Observer,
    OnBusyThread,
    QueuePosition,
    TaskExists,
    TaskFilter,
    TaskRow,
    ThreadChange,
)

if TYPE_CHECKING:
    from treadle.drivers.children import ChildOf
    from treadle.policy.budget import Account


def system_time() -> int:
    """Return the time of the system's clock, in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@frozen
class Dependencies:
    """What the composition root hands to a runner."""

    store: JournalStore
    resolve_model: Callable[[str | Model], Model]
    load_parts: Callable[[tuple[Content, ...]], tuple[Content, ...]]
    options: RunOptions
    memory: Memory
    agents: tuple[Agent[Any], ...] = ()
    context_factory: Callable[[], Any] | None = None
    clock: Callable[[], int] = system_time
    observers: tuple[Observer, ...] = ()
    price: Pricing = no_price


@mutable
class NewRun:
    """What a caller asks for with a new task."""

    agent: Agent[Any]
    input: tuple[Content, ...]
    thread_id: str | None = None
    task_id: str | None = None
    options: RunOptions | None = None
    extra_state: Json = None
    summarises: e.SummaryRequested | None = None
    """what it is a summary of"""

    child_of: ChildOf | None = None

    def __post_init__(self) -> None:
        arguments.agent(self.agent)
        arguments.options(self.options)
        arguments.json_value("extra_state", self.extra_state)
        if self.thread_id is not None:
            arguments.thread(self.thread_id)


ABOUT_TO_DRIVE: Final = 100
"""Hundredths of a second that a task which is owned and not driven yet has until its drive can be stopped."""


@cache
def _uuid7() -> Callable[[], object]:
    from uuid_utils import uuid7

    return uuid7


def new_id() -> str:
    """Return an id that sorts by time."""
    return str(_uuid7()())


class TaskDriver:
    """Makes tasks, finds the code for them and drives them to a goal."""

    def __init__(self, parts: Dependencies) -> None:
        self.parts = parts
        self.store = parts.store
        self.observing = ObserverSet(parts.observers) if parts.observers else None
        self.desk = TaskCache(parts.store, parts.clock, self.observing)
        self.owning = TaskOwnership(
            self.desk, lambda owned: self.drive(owned, "attend", None, None), parts.clock
        )
        self._kept_options = to_json(parts.options)
        self.agents = AgentRegistry(parts.resolve_model, parts.price)
        for agent in parts.agents:
            self.agents.know(agent)

    def _terms(
        self, goal: Goal, state: TaskState, kit: AgentRuntime | None, only: frozenset[str] | None
    ) -> DriveSpec:
        """Return what a drive goes by."""
        if kit is None:
            options = from_json(state.options)
            return DriveSpec(goal, rules_for(None, options), options, idle)
        own = kit.agent.custom_worker
        work = function_calling.decide if own is None else own.decide
        if goal not in ("end", "step"):
            work = idle
        rules = kit.rules if only is None else replace(kit.rules, only_steps=only)
        if goal == "step" and only is None and kit.agent.custom_worker is not None:
            rules = replace(
                rules, max_parallel_steps=1
            )  # what is planned next has no ids yet, and one is asked for
        return DriveSpec(goal, rules, kit.options, work)

    # ------------------------------------------------------------------------------------- new tasks

    async def create(self, new: NewRun, made_id: str | None = None, *, drives: bool = True) -> OwnedTask:
        """Return a new task that this process owns; it is made in the store with its first commit.

        With `made_id` the id was made by this process just now, so that nobody can have used it before. With `drives`
        the agent's model must be there, before a task is. Raises `TaskExists` only when the caller chose the id.
        """
        if drives:
            self.agents.preload(new.agent)
        await self.store.open()
        of = new.child_of
        options = self.parts.options if new.options is None else new.options.over(self.parts.options)
        if of is not None:
            options = new.options or RunOptions()  # its parent's, in which the runner's are already
        if drives:
            self.agents.model_of(new.agent)
            await self.agents.check_limits(new.agent, limits_of(new.agent, options))
        self.agents.know(new.agent)
        parts = self.parts.load_parts(new.input)
        task_id = new.task_id or made_id or new_id()
        state = start(task_id)
        base = 0
        if new.thread_id is not None and new.summarises is None:
            base = await self.desk.begin_with_history(state, new.thread_id)
        thread = new.thread_id or (task_id if of is not None else new_id())
        row = NewTask(task_id, new.agent.name, thread, self.parts.clock(), labels=options.labels)
        if of is not None:
            row.parent = of.task_id
        enter = self._entering(new, options) if drives and new.summarises is None else None
        owned = self.desk.begin(state, Lease(1, b"", row, enter))
        owned.entered = enter == "parallel"
        if of is not None:
            of.relay(owned)
        fingerprint = new.agent.fingerprint
        kept = self._kept_options if options is self.parts.options else to_json(options)
        created = e.TaskCreated(new.agent.name, parts, thread, base, fingerprint, kept, new.extra_state)
        if new.task_id is not None:
            created.incarnation = os.urandom(4).hex()  # a task of this id may have been deleted
        if of is not None:
            created.parent, created.parent_call, created.depth = of.task_id, of.call, of.depth
        owned.writer.record(created)
        if new.summarises is not None:
            owned.writer.record(new.summarises)
        told = base if enter in (None, "parallel") else 0  # else its place tells which version it begins with
        if new.task_id is not None or told or enter not in (None, "parallel"):
            await self._made(owned, told)
            owned.place = owned.writer.place
        return owned

    def _entering(self, new: NewRun, options: RunOptions) -> OnBusyThread:
        """Return how a new task comes into its thread; nobody can be in one that is made with it."""
        return "parallel" if new.thread_id is None else options.on_busy_thread or "enqueue"

    async def _made(self, owned: OwnedTask, base: int) -> None:
        """Return once a new task is in the store; a caller cancelled meanwhile leaves it there at rest.

        With `base`, see whether something was taken out of its thread since it read that version: what was deleted
        before the task was there is not kept for it. Then it begins with what the thread holds now.
        """
        state = owned.state
        try:
            await owned.writer.durable()
            if base:
                version, added = await self.store.thread(state.thread, since=base)
                if len(added) != version - base:
                    version = await self.desk.begin_with_history(state, state.thread)
                    owned.writer.record(e.ThreadEntered(version))
        except BaseException:
            with suppress(TaskExists, ThreadBusy):
                async with self.owning.releasing(owned):
                    pass
            raise

    # ----------------------------------------------------------------------------------------- drive

    async def stop(self, owned: OwnedTask, grace: float) -> None:
        """Have an owned task interrupted since its driver shuts down; return when it is."""
        tries = ABOUT_TO_DRIVE
        while owned.drive is None and tries and self.desk.is_owned(owned.state.task_id):
            tries -= 1  # it was just begun, or claimed
            await asyncio.sleep(0.01)
        if owned.drive is not None:
            await owned.drive.stop(DRIVER_CLOSED, grace)

    async def drive(
        self,
        owned: OwnedTask,
        goal: Goal,
        agent: Agent[Any] | None,
        context: Any,
        only: frozenset[str] | None = None,
        above: Account | None = None,
    ) -> DriveLoop:
        """Drive an owned task to a goal and return the drive, at rest; the owner gives the task back.

        With `only`, none but steps of these ids run, if the task's steps are functions. `above` is the account of its
        parent, if it is a child.
        """
        state, writer = owned.state, owned.writer
        kit = self.agents.runtime_for(state, agent) if agent is not None else None
        terms = self._terms(goal, state, kit, only)
        effect_context = None
        if kit is not None:
            if context is None and self.parts.context_factory is not None:
                context = self.parts.context_factory()
            if goal in ("end", "step"):
                await self.agents.check_limits(kit.agent, kit.rules.limits, state)
                self.introduce(owned, kit.agent, context, terms.options)
            parts = self.parts
            effect_context = EffectContext(
                state, kit, owned.channel, context, writer.durable, writer.clock, parts.price
            )
            if kit.agent.subagents or above is not None:
                from treadle.drivers.children import family_of

                effect_context.subagents = await family_of(self, owned, kit, above)
            if kit.agent.custom_worker is not None and kit.agent.custom_worker.runs_functions:
                from treadle.engine.step_requests import StepRequests

                effect_context.step_requests = StepRequests(state, writer.clock)
            if terms.options.context_tokens is not None:
                most, told = terms.options.context_tokens, standing_instructions(kit, state)
                if kit.agent.dialect is not None:
                    told += kit.agent.dialect.header
                effect_context.select_messages = lambda specs: self.parts.memory.show(
                    state, most, told, specs
                )
        entrance = self._entrance(owned, terms.options) if goal in ("end", "step") else None
        wanted = owned.wanted
        drive = DriveLoop(
            self.store,
            writer,
            owned.channel,
            state,
            terms,
            effect_context,
            self._stop_child,
            entrance,
            was_wanted=wanted,
        )
        owned.drive = drive
        inside = ENCLOSING_TASKS.set((*ENCLOSING_TASKS.get(), state.task_id))
        try:
            await drive.run()
        finally:
            with suppress(ValueError):  # collected in another context, since its loop was closed under it
                ENCLOSING_TASKS.reset(inside)
        return drive

    async def _stop_child(self, call: CallState, why: str) -> TaskState | None:
        from treadle.drivers.children import stop_child

        return await stop_child(self, call, why)

    def _entrance(self, owned: OwnedTask, options: RunOptions) -> ThreadAdmission | None:
        """Return the way of a task into its thread, None if it is there already."""
        if owned.entered or owned.state.covers:
            return None  # it is there already; or it summarises and keeps nobody waiting
        state, writer = owned.state, owned.writer

        async def ask(how: OnBusyThread) -> QueuePosition | None:
            await writer.durable()
            committed = await self.desk.commit(Commit(state.task_id, writer.epoch, enter=how))
            return committed.place

        def record(event: e.Event) -> None:
            writer.record(event)
            writer.flush()

        async def read_history(version: int) -> None:
            await self.desk.begin_with_history(state, state.thread, version)

        ways = AdmissionHooks(ask, record, read_history, self._interrupt_holder, self.look_after)
        return ThreadAdmission(self.desk.line, state, options.on_busy_thread or "enqueue", owned.place, ways)

    async def _interrupt_holder(self, task_id: str) -> None:
        row = await self.row_or_none(task_id)
        if row is not None and self.desk.is_driven(row):
            with suppress(TaskNotFound):
                await self.command(
                    task_id, "interrupt", {"reason": "another task was to begin in its thread"}
                )

    async def look_after(self, task_id: str) -> None:
        """See to it that a task which nobody drives here any more does not keep its thread."""
        if not self.desk.is_owned(task_id):
            await self.owning.given_back(task_id)

    def introduce(self, owned: OwnedTask, agent: Agent[Any], context: Any, options: RunOptions) -> None:
        """Record what this agent is, where it differs from what the task knows."""
        state, record = owned.state, owned.writer.record
        changed = bool(state.fingerprint) and state.fingerprint != agent.fingerprint
        if changed:
            if options.on_version_change == "refuse":
                message = (
                    f"task {state.task_id} began with version {state.fingerprint} of agent {agent.name!r} and this is "
                    f"version {agent.fingerprint}; options say on_version_change='refuse'"
                )
                raise VersionRefused(message, task_id=state.task_id)
            _check_kind_of_worker(state, agent)
            record(e.VersionChanged(agent.fingerprint, state.fingerprint))
        if state.instructions is not None and not changed:
            return
        told = agent.instructions
        if not isinstance(told, str):
            told = told(RunContext(state.task_id, state.thread, state.input, context))
            if not isinstance(told, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"Agent {agent.name!r}: instructions must return text, got {told!r}")
        elif (beyond := flaw(told)) is not None:
            raise ConfigurationError(
                f"Agent {agent.name!r}: instructions cannot be stored: they are {beyond}"
            )
        elif not told and state.instructions is None:
            return
        if (beyond := flaw(told)) is not None:
            raise ConfigurationError(
                f"Agent {agent.name!r}: instructions cannot be stored: they are {beyond}"
            )
        if told != state.instructions:
            record(e.InstructionsSet(told))

    # ---------------------------------------------------------------------------------- between drives

    def check_alone(self, task_id: str, parent: str | None) -> None:
        """Raise `ChildTask` for a task that goes on with another."""
        if parent is not None:
            raise ChildTask(
                f"task {task_id} is a child of task {parent} and goes on with it, never alone: resume, undo or fork "
                "that one; to try another path from here, fork this one",
                task_id=task_id,
                parent=parent,
            )

    async def reopen(self, owned: OwnedTask, reason: str, by: str | None = None) -> None:
        """Take up an ended task in a new attempt; its words leave its thread in the same transaction.

        Raises `AlreadyFinalized` when newer words follow its own, and `ChildTask`.
        """
        state = owned.state
        self.check_alone(state.task_id, state.parent)
        for item in await self.store.inbox(state.task_id):
            owned.writer.dismiss(item.item_id)  # it was meant for the attempt that has ended
        change = ThreadChange("remove", state.thread) if state.thread_version else None
        event = e.TaskReopened(state.attempt + 1, reason, by)
        await owned.writer.commit_alone(event, "running", thread=change, release=False)

    async def hear(self, owned: OwnedTask, items: Sequence[InboxItem]) -> None:
        """Take items from a task's inbox before it is driven, those of them that are still there."""
        unread = {item.item_id for item in await self.store.inbox(owned.state.task_id)}
        for item in items:
            if item.item_id in unread:
                owned.writer.record(as_event(owned.state, item), item.item_id)

    def go_on(self, owned: OwnedTask, by: str | None = None) -> None:
        """Lift a pause or an interrupt."""
        state = owned.state
        if state.pausing or state.interrupting:
            owned.writer.record(e.Resumed(by))

    def kept_options(self, state: TaskState, options: RunOptions | None) -> Json:
        """Return what a fork keeps of options: its parent's, with what is given now over them."""
        if arguments.options(options) is None:
            return state.options
        assert options is not None
        document: dict[str, Any] = dict(to_json(options.over(from_json(state.options))) or {})
        if was_raised(state.options):
            document["raised"] = True
        return document or None

    def set_options(self, owned: OwnedTask, options: RunOptions | None) -> None:
        """Record options given with a resume: they come before those stored, also where they loosen them."""
        if options is None:
            return
        stored = from_json(owned.state.options)
        merged = options.over(stored)
        document = dict(to_json(merged) or {})
        if options.limits is not None:
            document["limits"] = (to_json(options) or {})["limits"]
        if options.limits is not None or was_raised(owned.state.options):
            document["raised"] = True
        if document != (owned.state.options or {}):
            owned.writer.record(e.OptionsChanged(document or None))

    # -------------------------------------------------------------------------------------- commands

    async def command(self, task_id: str, kind: str, data: dict[str, Json]) -> str:
        """Put a command into a task's inbox and return its id; carried out here and now if the task has no driver."""
        item_id = new_id()
        await self.store.post(task_id, InboxItem(item_id, kind, data, self.parts.clock()))
        try:
            await self.attend(task_id)
        except TaskTooNew as refusal:
            posted = f"{refusal}. The {kind} is in the task's inbox, where its next driver finds it"
            raise TaskTooNew(posted, task_id=task_id, needs=refusal.needs, knows=refusal.knows) from None
        return item_id

    async def tell_parents(self, row: TaskRow) -> None:
        """Let the tasks above a child hear that it may go on, or has ended: they are to go on with it."""
        while row.parent is not None:
            above = await self.row_or_none(row.parent)
            if above is None or above.state in END_STATES:
                return
            call = (await self.desk.load(row.task_id)).state.parent_call
            await self.command(row.parent, CHILD_ITEM, {"call": call})
            row = above

    async def paused_below(self, task_id: str) -> set[tuple[str, int]]:
        """Return the tasks below a task that are paused or interrupted, each with its epoch."""
        found: set[tuple[str, int]] = set()
        for call in (await self.desk.load(task_id)).state.open_children():
            row = await self.row_or_none(str(call.child))
            if row is not None and row.state not in END_STATES:
                if row.driver is None and row.state in ("paused", "interrupted"):
                    found.add((row.task_id, row.epoch))
                found |= await self.paused_below(row.task_id)
        return found

    async def attend(self, task_id: str) -> None:
        """Have a task's inbox read: by its driver, else here and now."""
        if self.desk.read_inbox_soon(task_id):
            return
        try:
            async with self.owning.own(task_id) as owned:
                await self.drive(owned, "attend", None, None)
        except (TaskBusy, Fenced):
            # Its driver, in this process or another, finds the command in the inbox.
            self.desk.read_inbox_soon(task_id)

    async def carried_out(self, task_id: str, item_id: str) -> None:
        """Return once a command was carried out and nobody drives the task, or the task has ended."""
        row = await self.stopped(task_id)
        while row.state not in END_STATES and await self.is_unread(task_id, item_id):
            # It arrived just when the driver had given the task back and was about to leave.
            await self.attend(task_id)
            row = await self.stopped(task_id)

    async def is_unread(self, task_id: str, item_id: str) -> bool:
        """Whether an item still lies in a task's inbox."""
        return any(item.item_id == item_id for item in await self.store.inbox(task_id))

    async def answer(self, task_id: str, item_id: str, *, after: int = 0) -> e.Event | None:
        """Return the event, one `after` that number, that an inbox item became, once it was read.

        None if nobody is there to read it, or if it came too late to be an event: after the end.
        """
        watcher = self.desk.channels.subscribe(task_id, deltas=False)
        try:
            while True:
                watcher.skip()
                waits = await self.is_unread(task_id, item_id)
                if not waits or not self.desk.is_driven(await self.row(task_id)):
                    break
                await watcher.wait(self.desk.patience(task_id))
        finally:
            self.desk.channels.unsubscribe(task_id, watcher)
        records = await self.store.read(task_id, after=after)
        for _, found in unfold(task_id, records, after=after, previous=None if after else b""):
            for event in found:
                if getattr(event, "inbox", None) == item_id:
                    return event
        return None

    async def stopped(self, task_id: str, *, or_left: str | None = None) -> TaskRow:
        """Return a task's row once nobody drives it; with `or_left`, also once it is not in that state any more."""
        watcher = self.desk.channels.subscribe(task_id, deltas=False)
        try:
            while True:
                watcher.skip()
                if or_left is not None or not self.desk.is_owned(task_id):
                    row = await self.row(task_id)
                    if not self.desk.is_driven(row) or (or_left is not None and row.state != or_left):
                        return row
                await watcher.wait(self.desk.patience(task_id))
        finally:
            self.desk.channels.unsubscribe(task_id, watcher)

    async def succeeded(self, owned: OwnedTask, refusal: Fenced) -> TaskRow:
        """Return the row of a task that was taken over from its owner, once nobody drives it; else raise `refusal`."""
        task_id = owned.state.task_id
        if (await self.row(task_id)).epoch == owned.writer.epoch:
            raise refusal
        return await self.stopped(task_id)

    async def row_or_none(self, task_id: str) -> TaskRow | None:
        """Return a task's row, None if there is no such task."""
        try:
            return await self.store.row(task_id)
        except TaskNotFound:
            return None

    async def row(self, task_id: str) -> TaskRow:
        """Return a task's row; raises `TaskNotFound`, which says so if the id is that of a thread."""
        await self.store.open()
        try:
            return await self.store.row(task_id)
        except TaskNotFound:
            version, members = await self.store.thread(task_id)
            if version or await self.store.rows(TaskFilter(thread_id=task_id, limit=1)):
                last = f"; its last task is {members[-1].task_id}" if members else ""
                raise TaskNotFound(f"{task_id} is a thread, not a task{last}") from None
            raise TaskNotFound(f"no task {task_id!r} in {self.store.url}") from None


def _check_kind_of_worker(state: TaskState, agent: Agent[Any]) -> None:
    """Raise `VersionRefused` if a task has steps that this agent's worker could not go on from."""
    runs_functions = agent.custom_worker is not None and agent.custom_worker.runs_functions
    has_functions = state.graph is not None
    if runs_functions != has_functions and (has_functions or state.steps or state.step is not None):
        theirs, ours = ("are", "does not run") if has_functions else ("are not", "runs")
        message = (
            f"task {state.task_id}: its steps {theirs} functions, and the worker of agent {agent.name!r} {ours} such; "
            "go on with the agent it began with, or begin a new task in its thread"
        )
        raise VersionRefused(message, task_id=state.task_id)
