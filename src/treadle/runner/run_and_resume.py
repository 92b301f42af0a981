"""Running a task to its next stop: a new task, a known one, and one that another driver left.

Every verb that drives goes one way: acquire the task, record what the caller asked for, drive it to the verb's goal,
release it, and return what its state says.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.events import END_STATES
from treadle.core.messages import Json
from treadle.drivers.agent_version import check_version
from treadle.drivers.arguments import parts_of
from treadle.drivers.continuing import change_options, check_not_a_child, lift_stop, reopen, take_from_inbox
from treadle.drivers.new_task import NewRun
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.random_ids import new_id
from treadle.drivers.terminal import check_interaction
from treadle.engine import results
from treadle.engine.options import RunOptions, from_json
from treadle.engine.results import RunResult
from treadle.engine.thread_queue import ENCLOSING_TASKS
from treadle.errors import Fenced, TaskBusy
from treadle.ports import ContextT, InboxItem, OutputT, TaskRow
from treadle.runner.bridge import BRIDGE
from treadle.runner.create_and_step import StepVerbs
from treadle.runner.stream import EventStream
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, id_of

UNFINISHED: Final = frozenset({"created", "running", "answered"})
"""States of tasks at rest that nothing keeps from going on."""


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
    ) -> RunResult[OutputT]:
        """Run an agent on an input until the task stops, and return how it stands then.

        Args:
            agent: what to run.
            input: text or content parts.
            thread_id: the conversation to go on with; a new one by default.
            task_id: an id of your own. A known one never runs twice: created or interrupted, it is driven on; ended,
                paused or waiting, its stored result is returned; driven elsewhere, its next stop is awaited, and it is
                driven on here if that driver crashes or is shut down.
            extra_state: JSON data by name, kept with the task: `ctx.state` of its tools, steps and instructions, which
                may change it. A known task keeps what it has.
            options: how to run; what it leaves open is taken from the runner's.
            context: handed to tools and instructions; never stored, never shown to a model.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state)
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
    ) -> RunResult[OutputT]:
        """Run like `run`, without asyncio; works also inside a running event loop."""
        work = self.run(
            agent,
            input,
            thread_id=thread_id,
            task_id=task_id,
            extra_state=extra_state,
            options=options,
            context=context,
        )
        return BRIDGE.run(work)

    async def _run(self, new: NewRun, context: Any) -> RunResult[Any]:
        owned = await self._create_or_none(new, context)
        if owned is None:
            return await self._run_existing(new, context)
        return await self._drive_to_end(owned, new.agent, context)

    async def _drive_to_end(
        self, owned: OwnedTask, agent: Agent[Any], context: Any, *, detached: bool = False
    ) -> RunResult[Any]:
        if detached:
            ENCLOSING_TASKS.set(())  # the caller does not wait for it
        try:
            try:  # no context manager: every run comes this way
                context = await self._driver.contexts.of_drive(owned, agent, context)
                await self._driver.drive(owned, "end", agent, context)
            finally:
                await self._ownership.release(owned)
        except Fenced as refusal:
            row = await self._commands.stopped_elsewhere(owned, refusal)
            if await self._is_to_be_driven_on(row):
                return await self._drive_on(row.task_id, agent, context, again=False)
            return await self.result(row.task_id)
        return await self._result_of(owned.state, results.resting_word(owned.state))

    async def _run_existing(self, new: NewRun, context: Any, *, detached: bool = False) -> RunResult[Any]:
        if detached:
            ENCLOSING_TASKS.set(())
        task_id = str(new.task_id)
        row = await self._cache.row(task_id)
        if results.word_of(row) in (*UNFINISHED, "interrupted"):
            return await self._drive_on(task_id, new.agent, context, new.options, again=False)
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
        raw: bool = False,
    ) -> EventStream[OutputT]:
        """Run like `run`, with the events on the way: `async with ... as stream: async for event in stream`.

        With `raw`, also what the model's provider sends, as it sends it. Leaving the block early interrupts the task;
        afterwards `stream.result` is what `run` would have returned.
        """
        unused_id = new_id() if task_id is None else task_id
        new = NewRun(agent, parts_of(input), thread_id, unused_id, options, extra_state)

        async def work() -> RunResult[Any]:
            if task_id is not None:
                return await self._run(new, context)
            # The id was made here, so no other task can have it.
            self._driver.contexts.check_given(agent, context)
            owned = await self._creator.create(
                NewRun(agent, new.input, thread_id, None, options, extra_state), new.task_id
            )
            return await self._drive_to_end(owned, agent, context)

        async def standing() -> RunResult[Any]:
            return await self.result(str(new.task_id))

        return EventStream(
            self._owned,
            str(new.task_id),
            work,
            standing,
            lambda name: self._agents.typed_of(agent) if name is None else self._agents.typed_named(name),
            raw=raw,
        )

    @verb
    async def resume(
        self,
        task: Ref[OutputT],
        *,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        options: RunOptions | None = None,
        by: str | None = None,
    ) -> RunResult[OutputT]:
        """Drive a task from where it stands to its next stop, and return how it stands then.

        A pause or an interrupt that was recorded before is taken back, also one that no driver has read yet. A
        completed or cancelled task, and a degraded one without new options, is left as it is. For a task driven
        elsewhere it waits, and drives the task on here if that driver crashes or is shut down.

        Raises:
            AgentUnknown: this runner was not given the task's agent.
            ChildTask: the task is a child: it goes on with its parent.
            UndoUnfinished: an undo has begun and not ended.
        """
        task_id = id_of(task)
        await self._cache.row(task_id)
        before = [item for item in await self._store.inbox(task_id) if item.kind in ("pause", "interrupt")]
        return await self._drive_on(task_id, agent, context, options, by, before)

    async def _drive_on(
        self,
        task_id: str,
        agent: Agent[Any] | None,
        context: Any,
        options: RunOptions | None = None,
        by: str | None = None,
        before: Sequence[InboxItem] = (),
        *,
        again: bool = True,
    ) -> RunResult[Any]:
        """Drive a task to its next stop; the stops in `before` are recorded first, and lifted.

        With `again`, a task that has ended may be taken up in a new attempt, and one that is paused goes on.
        """
        while True:
            row = await self._cache.row(task_id)
            if self._owned.is_driven(row):
                is_here = self._owned.is_owned(task_id)
                paused = await self._commands.paused_below(task_id) if again else set[tuple[str, int]]()
                row = await self._resumed_elsewhere(task_id, by)
                if not await self._is_to_be_driven_on(row, is_here=is_here, paused=paused):
                    return await self.result(task_id)
            if _stays(row.state, options, again=again):
                return await self.result(task_id)
            check_not_a_child(task_id, row.parent)
            registered = self._agents.of(row.agent, agent, task_id)
            owned = None
            try:
                async with self._ownership.acquire_outside_undo(task_id, enter=True) as owned:
                    if _stays(owned.state.ended, options, again=again) or (owned.state.pausing and not again):
                        # It ended or was paused just before it was acquired here.
                        return await self._result_of(owned.state, results.resting_word(owned.state))
                    return await self._resume(owned, registered, agent, context, options, by, before)
            except Fenced as refusal:
                if owned is None:
                    continue
                row = await self._commands.stopped_elsewhere(owned, refusal)
                if not await self._is_to_be_driven_on(row):
                    return await self.result(task_id)
            except TaskBusy:
                now = await self._cache.row(task_id)
                if now.epoch == row.epoch and not self._owned.is_driven(now):
                    raise
                # Another driver was faster, and may have owned it for a moment only.

    async def _is_to_be_driven_on(
        self, row: TaskRow, *, is_here: bool = False, paused: Set[tuple[str, int]] = frozenset()
    ) -> bool:
        """Whether a task that another caller drove is to be driven on by the caller that waited for it.

        It is, when that driver crashed, was shut down, took one step only, or left mail unread. So it is when it
        stopped for children that were `paused`, with these epochs, before the caller came: a resume lifts that.
        """
        if row.state in END_STATES:
            return False
        if row.driver is not None or row.state in UNFINISHED or await self._store.inbox(row.task_id):
            return True
        if row.state == "interrupted" and not is_here:  # a runner that shuts down drives nothing on
            return (await self._cache.load(row.task_id, row)).state.shutdown
        return bool(paused) and not paused.isdisjoint(await self._commands.paused_below(row.task_id))

    async def _resumed_elsewhere(self, task_id: str, by: str | None) -> TaskRow:
        """Return the row of a task once its driver stops; a stop that was requested before is lifted."""
        state = (await self._cache.load(task_id)).state
        kinds = [item.kind for item in await self._store.inbox(task_id)]
        if state.pausing or state.interrupting or "pause" in kinds or "interrupt" in kinds:
            await self._commands.send(task_id, "resume", {"by": by})
        return await self._commands.stopped(task_id)

    async def _resume(
        self,
        owned: OwnedTask,
        registered: Agent[Any],
        agent: Agent[Any] | None,
        context: Any,
        options: RunOptions | None,
        by: str | None,
        before: Sequence[InboxItem],
    ) -> RunResult[Any]:
        state = owned.state
        code = self._agents.with_task(state, registered, agent)
        await self._agents.check_prices(code, state, options)
        stored = from_json(state.options)
        effective = stored if options is None else options.over(stored)
        check_version(state, code, effective)
        check_interaction(effective)
        context = await self._driver.contexts.of_drive(owned, code, context)
        if before and state.ended is None:
            await take_from_inbox(self._store, owned, before)
        if state.ended is not None:
            await reopen(self._store, owned, "resume", by)
        change_options(owned, options)
        lift_stop(owned, by)
        await self._driver.drive(owned, "end", code, context)
        return await self._result_of(state, results.resting_word(state))


def _stays(state: str | None, options: RunOptions | None, *, again: bool) -> bool:
    """Whether a task in this state has ended and is left as it is."""
    if state == "degraded" and again:
        return options is None
    return state in END_STATES if not again else state in ("completed", "cancelled")
