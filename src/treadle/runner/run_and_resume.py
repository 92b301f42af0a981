"""Run a task to its next stop: a new task, a known one, or one that another driver left.

All verbs do the same: acquire the task, record the caller's request, drive the task, release it, and return its state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.events import END_STATES
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.drivers.agent_version import check_version, record_agent
from treadle.drivers.arguments import parts_of
from treadle.drivers.continuing import change_options, check_not_a_child, reopen, take_from_inbox
from treadle.drivers.new_task import NewRun
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.ownership import check_unmoved
from treadle.drivers.random_ids import new_id
from treadle.drivers.terminal import check_interaction
from treadle.engine.observers import Listeners
from treadle.engine.options import RunOptions, from_json
from treadle.engine.thread_queue import ENCLOSING_TASKS
from treadle.errors import ConfigurationError, Fenced, TaskBusy, TaskNotFound
from treadle.ports import AT_ONCE, ContextT, InboxItem, Observers, OutputT, TaskFilter, TaskRow
from treadle.results.run_result import RunResult, is_disposable
from treadle.results.states import state_at_rest, state_of_row
from treadle.results.tasks import Task
from treadle.runner.bridge import BRIDGE
from treadle.runner.control import READ_SOON
from treadle.runner.create_and_step import StepVerbs
from treadle.runner.stream import EventStream
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, id_of

UNFINISHED: Final = frozenset({"created", "running", "answered"})
"""States of stopped tasks that may go on at once."""


class RunVerbs(StepVerbs):
    """The verbs that drive a task to its next stop."""

    @verb
    async def run(
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
        """Run an agent on an input until the task stops, and return its state.

        Args:
            agent: the agent to run.
            input: text or content parts.
            thread_id: the conversation to continue; a new one by default.
            task_id: an id of your own. A known task never runs twice. If it was only created or was interrupted, it is
                driven on. If it has ended, is paused or waits, its stored result is returned. If another driver has
                it, its next stop is awaited. If that driver crashes or shuts down, the task is driven on here.
            extra_state: JSON data by name, stored with the task. Its tools, steps and instructions read and change it
                as `ctx.state`. A known task keeps its own.
            options: the options of the run; fields left open are those of the runner.
            context: passed to tools and instructions; never stored, never shown to a model.
            observers: receive the events of this task and the tasks below it while this call drives it, like those of
                `Runner(observers=)`. A later drive does not know them.
            by: the name of the caller, for the record.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state, by=by)
        if not observers:
            return await self._run(new, context)
        with self._driver.observing("run", observers) as new.observers:
            return await self._run(new, context)

    @on_instances
    def run_sync(
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
        """Run like `run`, without asyncio; it also works inside a running event loop."""
        work = self.run(
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
        return BRIDGE.run(work)

    async def _run(self, new: NewRun, context: Any) -> RunResult[Any]:
        owned = await self._create_or_none(new, context)
        if owned is None:
            return await self._run_existing(new, context)
        result = await self._drive_to_end(owned, new.agent, context)
        return await self._delivered(owned.state, result)

    async def _delivered(self, state: TaskState, result: RunResult[Any]) -> RunResult[Any]:
        """Return the result of a task that was driven here; delete the task if its options request that."""
        if state.options and state.options.get("delete_on_finish"):
            await self._delete_finished(result)
        return result

    async def _delete_finished(self, result: RunResult[Any]) -> None:
        """Delete a task that has answered, unless a fork, a call in the background or another driver needs it."""
        task_id = result.task_id
        if not is_disposable(result):
            return
        if await self._store.rows(TaskFilter(base=task_id, limit=1)):
            return
        with suppress(TaskBusy, TaskNotFound):
            await self.delete_task(task_id)

    async def _drive_to_end(
        self, owned: OwnedTask, agent: Agent[Any], context: Any, *, detached: bool = False
    ) -> RunResult[Any]:
        if detached:
            ENCLOSING_TASKS.set(())  # the caller does not wait for it
        try:
            try:  # no context manager, since every run passes here
                context = await self._driver.contexts.of_drive(owned, agent, context)
                await self._driver.drive(owned, "end", agent, context)
            finally:
                await self._ownership.release(owned)
        except Fenced as refusal:
            row = await self._commands.stopped_elsewhere(owned, refusal)
            if await self._is_to_be_driven_on(row):
                how = _Resume(again=False, delivers=False, observers=owned.observers)
                return await self._drive_on(row.task_id, agent, context, how)
            return await self.result(row.task_id)
        return await self._result_of(owned.state, state_at_rest(owned.state))

    async def _run_existing(
        self, new: NewRun, context: Any, *, detached: bool = False, delivers: bool = True
    ) -> RunResult[Any]:
        if detached:
            ENCLOSING_TASKS.set(())
        task_id = str(new.task_id)
        row = await self._cache.row(task_id)
        if state_of_row(row) in (*UNFINISHED, "interrupted"):
            # Under a ceiling they are never None; if they replaced those of the task, they might raise its limits.
            keeps_its_own = self.scope is not None and self.scope.ceiling is not None
            options = None if keeps_its_own else new.options
            delivers = delivers and not detached
            how = _Resume(options, new.by, again=False, delivers=delivers, observers=new.observers)
            return await self._drive_on(task_id, new.agent, context, how)
        return await self.result(task_id)

    @on_instances
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
    ) -> EventStream[OutputT]:
        """Run like `run` and stream the events: `async with ... as stream: async for event in stream`.

        With `raw`, the raw chunks of the model's provider are included. Leaving the block early interrupts the task.
        Afterwards `stream.result` is the return value of `run`.
        """
        unused_id = new_id() if task_id is None else task_id
        new = NewRun(agent, parts_of(input), thread_id, unused_id, options, extra_state, by=by)

        driven: list[TaskState] = []

        async def work() -> RunResult[Any]:
            with self._driver.observing("run_stream", observers) as new.observers:
                owned = await self._created(new, context, is_unused=task_id is None)
                if owned is None:
                    return await self._run_existing(new, context, delivers=False)
                driven.append(owned.state)
                return await self._drive_to_end(owned, agent, context)

        async def delivered(result: RunResult[Any]) -> None:
            for state in driven:
                await self._delivered(state, result)

        async def standing() -> RunResult[Any]:
            return await self.result(str(new.task_id))

        return EventStream(
            self._owned,
            str(new.task_id),
            work,
            standing,
            lambda name: self._agents.typed_of(agent) if name is None else self._agents.typed_named(name),
            delivered,
            raw=raw,
        )

    async def _created(self, new: NewRun, context: Any, *, is_unused: bool) -> OwnedTask | None:
        """Return a new task, or None if its id is known; without lookup if `is_unused`."""
        if not is_unused:
            return await self._create_or_none(new, context)
        self._driver.contexts.check_for_new_task(new.agent, context)
        return await self._creator.create(replace(new, task_id=None), new.task_id)

    @verb
    async def submit(
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
        """Create a task for an adopting driver in any process, and return it at once; it does not run here.

        Args:
            agent: the agent to run; the adopting driver must have an agent of this name.
            input: text or content parts.
            thread_id: the conversation to continue; a new one by default.
            task_id: an id of your own. A known task never runs twice: if it has not run yet it will be driven,
                otherwise it is left unchanged.
            extra_state: JSON data by name, stored with the task. Its tools, steps and instructions read and change it
                as `ctx.state`. A known task keeps its own.
            options: the options of the run; fields left open are those of this runner.
            context: passed to an instructions function, which is called now; never stored.
            by: the name of the caller, for the record.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state, by=by)
        owned = await self._create_or_none(new, context, drives=False)
        if owned is None:
            return await self._submit_existing(new)
        async with self._ownership.releasing(owned):
            if context is not None:
                await record_agent(
                    owned, agent, context, from_json(owned.state.options), self._driver.vault
                )  # if the function raises, the drive calls it again, and fails the task then
            await owned.writer.durable()
            owned.wanted = AT_ONCE
        return await self.get_task(owned.state.task_id)

    async def _submit_existing(self, new: NewRun) -> Task[Any]:
        task_id = str(new.task_id)
        row = await self._cache.row(task_id)
        # A task that ran is left unchanged: the request may be old, and a person may have stopped the task since.
        if row.display_state == "created" and not row.due_at:
            await self._hand_on(task_id, _Resume(by=new.by, again=False))
        return await self.get_task(task_id)

    @verb
    async def resume(
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
        """Drive a task to its next stop, and return its state.

        An earlier pause or interrupt is lifted, also one that no driver has read yet. A completed or cancelled task is
        left unchanged, and so is a degraded one without new options. If another driver has the task, `resume` waits for
        it. If that driver crashes or shuts down, the task is driven on here.

        Args:
            task: the task, or its id.
            agent: the task's agent, if this runner was not given it.
            context: passed to tools and instructions; never stored.
            observers: as in `run`; observers of earlier drives receive nothing.
            options: other options, such as raised limits.
            drive: False leaves the driving to an adopting driver in any process. The task is returned at once, and this
                runner needs no agent.
            expect: the last event that the caller saw, `Task.head`. The task goes on only if it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat waits for the run that the first one began, and
                does not resume a task that was stopped since.

        Raises:
            AgentUnknown: this runner was not given the task's agent.
            ChildTask: the task is a child, which goes on with its parent.
            TaskBusy: with `drive=False`, other options were given for a task that is being driven.
            TaskMoved: the task's journal does not end with the event in `expect`.
            UndoUnfinished: an undo has begun and not ended.
        """
        task_id = id_of(task)
        if not drive and (agent is not None or context is not None or observers):
            raise ConfigurationError(
                "resume: agent=, context= and observers= are for the process that drives the task, and with "
                "drive=False that is another: leave them out"
            )

        async def go_on() -> RunResult[Any]:
            row = await self._cache.row(task_id)
            check_unmoved(task_id, row.head, expect)
            before = [
                item for item in await self._store.inbox(task_id) if item.kind in ("pause", "interrupt")
            ]
            how = _Resume(options, by, before, expect, command_id, observers=listeners)
            return await (
                self._drive_on(task_id, agent, context, how) if drive else self._hand_on(task_id, how)
            )

        async def went_on(event: e.Event) -> RunResult[Any]:
            if drive and await self._is_to_be_driven_on(await self._commands.stopped(task_id)):
                how = _Resume(again=False, observers=listeners)
                return await self._drive_on(task_id, agent, context, how)
            return await self.result(task_id)

        with self._driver.observing("resume", observers) as listeners:
            return await self._commands.once(task_id, command_id, (e.Resumed,), go_on, went_on)

    async def _hand_on(self, task_id: str, how: _Resume) -> RunResult[Any]:
        """Leave a task to an adopting driver, and return its current state."""
        while True:
            row = await self._cache.row(task_id)
            check_unmoved(task_id, row.head, how.expect)
            if how.leaves(row.state):
                return await self.result(task_id)
            check_not_a_child(task_id, row.parent)
            if self._owned.is_driven(row):
                if how.options is not None:
                    message = f"task {task_id} is being driven: give other options once it has stopped"
                    raise TaskBusy(message, task_id=task_id, state="running")
                # Its driver may be about to leave it, as after a single step.
                if await self._ask_driver(row, how, {"by": how.by, "wanted": True}):
                    return await self.result(task_id)
                continue
            try:
                async with self._ownership.acquire(task_id, expect=how.expect, outside_undo=True) as owned:
                    if not how.leaves(owned.state.ended, pausing=owned.state.pausing):
                        if how.options is not None:
                            self._agents.check_caller_tools(owned.state.agent, how.options)
                        await self._record_resume(owned, how)
                        owned.wanted = AT_ONCE
                return await self.result(task_id)
            except TaskBusy:
                if not await self._was_faster(row):
                    raise

    async def _ask_driver(self, row: TaskRow, how: _Resume, data: dict[str, Json]) -> bool:
        """Ask the driver of a task to record that it goes on; return False if the driver left.

        Raises `TaskMoved` if the driver left and the task has moved.
        """
        task_id, expect = row.task_id, how.expect
        if expect is not None:
            data["expect"] = expect
        item_id = await self._commands.send(task_id, "resume", data, command_id=how.command_id)
        if expect is None:
            return True
        try:
            async with asyncio.timeout(READ_SOON):
                answer = await self._commands.answer(task_id, item_id, after=expect)
        except TimeoutError:
            return True  # the item is durable: the driver will read it
        if isinstance(answer, e.CommandRejected):
            check_unmoved(task_id, answer.seq - 1, expect)
        return answer is not None

    async def _drive_on(
        self,
        task_id: str,
        agent: Agent[Any] | None,
        context: Any,
        how: _Resume,
    ) -> RunResult[Any]:
        """Drive a task to its next stop."""
        while True:
            row = await self._cache.row(task_id)
            check_unmoved(task_id, row.head, how.expect)
            if self._owned.is_driven(row):
                is_here = self._owned.is_owned(task_id)
                paused = await self._commands.paused_below(task_id) if how.again else set[tuple[str, int]]()
                if not await self._resumed_elsewhere(row, how):
                    continue
                how = replace(how, expect=None)  # from here on its driver moves it
                ended_at = row.head if row.state in END_STATES else None
                row = await self._commands.stopped(task_id)
                # If an ended task has no new event, its driver was about to release it.
                if row.head != ended_at and not await self._is_to_be_driven_on(
                    row, is_here=is_here, paused=paused
                ):
                    return await self.result(task_id)
            if how.leaves(row.state):
                return await self.result(task_id)
            check_not_a_child(task_id, row.parent)
            registered = self._agents.of(row.agent, agent, task_id)
            owned = None
            try:
                async with self._ownership.acquire(
                    task_id, enter=True, expect=how.expect, observers=how.observers, outside_undo=True
                ) as owned:
                    if how.leaves(owned.state.ended, pausing=owned.state.pausing):
                        # It ended or was paused just before it was acquired here.
                        return await self._result_of(owned.state, state_at_rest(owned.state))
                    result = await self._resume(owned, registered, agent, context, how)
                return await self._delivered(owned.state, result) if how.delivers else result
            except Fenced as refusal:
                if owned is None:
                    continue
                how = replace(how, expect=None)
                row = await self._commands.stopped_elsewhere(owned, refusal)
                if not await self._is_to_be_driven_on(row):
                    return await self.result(task_id)
            except TaskBusy:
                if not await self._was_faster(row):
                    raise

    async def _was_faster(self, row: TaskRow) -> bool:
        """Whether another driver has owned a task since its row was read, even for a moment."""
        now = await self._cache.row(row.task_id)
        return now.epoch != row.epoch or self._owned.is_driven(now)

    async def _is_to_be_driven_on(
        self, row: TaskRow, *, is_here: bool = False, paused: Set[tuple[str, int]] = frozenset()
    ) -> bool:
        """Whether a caller that waited for a task of another driver must drive it on.

        It must if the other driver crashed, was shut down, took one step only, or left inbox items unread. It also
        must if the task waits for children that were `paused` in these epochs when the caller came: a resume lifts
        their pause.
        """
        if row.state in END_STATES:
            return False
        if row.driver is not None or row.state in UNFINISHED or await self._store.inbox(row.task_id):
            return True
        if row.state == "interrupted" and not is_here:  # a runner that shuts down does not drive on
            return (await self._cache.load(row.task_id, row)).state.shutdown
        return bool(paused) and not paused.isdisjoint(await self._commands.paused_below(row.task_id))

    async def _resumed_elsewhere(self, row: TaskRow, how: _Resume) -> bool:
        """Ask the driver of a task to lift a requested stop; return False as `_ask_driver` does."""
        state = (await self._cache.load(row.task_id)).state
        kinds = [item.kind for item in await self._store.inbox(row.task_id)]
        is_stopped = state.pausing or state.interrupting or "pause" in kinds or "interrupt" in kinds
        if not is_stopped and how.command_id is None:
            return True
        return await self._ask_driver(row, how, {"by": how.by})

    async def _resume(
        self,
        owned: OwnedTask,
        registered: Agent[Any],
        agent: Agent[Any] | None,
        context: Any,
        how: _Resume,
    ) -> RunResult[Any]:
        state, options = owned.state, how.options
        code = self._agents.with_task(state, registered, agent)
        await self._agents.check_prices(code, state, options)
        stored = from_json(state.options)
        effective = stored if options is None else options.over(stored)
        check_version(state, code, effective)
        check_interaction(effective)
        if options is not None:
            self._agents.check_caller_tools(code, options)
        context = await self._driver.contexts.of_drive(owned, code, context)
        await self._record_resume(owned, how)
        await self._driver.drive(owned, "end", code, context)
        return await self._result_of(state, state_at_rest(state))

    async def _record_resume(self, owned: OwnedTask, how: _Resume) -> None:
        """Record that a task goes on with the given options and without a stop; if it has ended, in another attempt."""
        inbox = await self._commands.note(owned, how.command_id, sent_as="resume")
        is_new_attempt = owned.state.ended is not None
        if is_new_attempt:
            await reopen(self._store, owned, "resume", how.by)
        elif how.before:
            await take_from_inbox(self._store, owned, how.before)
        is_stopped = owned.state.pausing or owned.state.interrupting
        change_options(owned, how.options)
        if is_stopped or inbox is not None or (how.by is not None and not is_new_attempt):
            owned.writer.record(e.Resumed(how.by, inbox), inbox)


@frozen
class _Resume:
    """How to resume a task.

    Args:
        options: other options.
        by: the name of the caller.
        before: stops in its inbox that are recorded first, and lifted.
        expect: the required last event of its journal, for a task that has stopped.
        command_id: the id of the command, if the caller gave one.
        again: whether a task that has ended may be reopened, and one that is paused goes on.
        delivers: whether the caller gets the result at once, after which the task may be deleted.
        observers: the caller's observers.
    """

    options: RunOptions | None = None
    by: str | None = None
    before: Sequence[InboxItem] = ()
    expect: int | None = None
    command_id: str | None = None
    again: bool = True
    delivers: bool = True
    observers: Listeners | None = None

    def leaves(self, state: str | None, *, pausing: bool = False) -> bool:
        """Whether a task in this state is left unchanged, since it has ended or is pausing."""
        if not self.again:
            return pausing or state in END_STATES
        if state == "degraded":
            return self.options is None
        return state in ("completed", "cancelled")
