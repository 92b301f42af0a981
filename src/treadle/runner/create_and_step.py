"""Creating tasks and running them step by step."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.drivers.agent_version import check_version, record_agent
from treadle.drivers.arguments import parts_of
from treadle.drivers.commands import CarriedOut
from treadle.drivers.continuing import check_not_a_child, lift_stop, reopen
from treadle.drivers.new_task import NewRun
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.ownership import check_unmoved
from treadle.engine import results
from treadle.engine.drive import DriveLoop
from treadle.engine.options import RunOptions, from_json
from treadle.engine.results import RunResult, StepOutputs, Task, TaskStepOutput
from treadle.errors import (
    StepFailed,
    StepNotFound,
    TaskBusy,
    TaskConflict,
    TaskParked,
    TaskUnfinished,
)
from treadle.ports import ContextT, OutputT, TaskExists, TaskRow
from treadle.runner.stream import StepStream
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, ViewVerbs, finished, id_of, next_step, upcoming_steps

if TYPE_CHECKING:
    from treadle.agents.output import OutputType


class StepVerbs(ViewVerbs):
    """The verbs that make a task, run one step of it, and finalize it."""

    @verb
    async def create_task(
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
        """Create a task without running anything; the same task id with the same arguments gives the same task.

        Args:
            agent: what is to run.
            input: text or content parts.
            thread_id: the conversation to go on with; a new one by default.
            task_id: an id of your own.
            extra_state: JSON data by name, kept with the task: `ctx.state` of its tools, steps and instructions, which
                may change it. A known task keeps what it has.
            options: how to run.
            context: never stored; instructions that are a function are called with it now.
            by: the name of the caller, for the record.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state, by=by)
        owned = await self._create_or_none(new, context, drives=False)
        if owned is None:
            return await self.get_task(str(task_id))
        async with self._ownership.releasing(owned):
            if context is not None:
                await record_agent(owned, agent, context, from_json(owned.state.options))
            await owned.writer.durable()
        return await self.get_task(owned.state.task_id)

    @verb
    async def run_step(
        self,
        task: Ref[OutputT],
        *,
        input: Input | None = None,
        step: str | None = None,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        expect: int | None = None,
        by: str | None = None,
    ) -> TaskStepOutput[OutputT]:
        """Run exactly one step and return what it did.

        Args:
            task: the task, or its id.
            input: a person's message, added before the step's model call.
            step: id of the step to run; it must be one that is ready: see `get_upcoming_steps`.
            agent: the task's agent, if this runner was not given it.
            context: handed to tools; never stored.
            expect: the last event that the caller saw, `Task.head`: the step runs only if it still is the last.
            by: the name of the caller, for the record: with the input, and where the step takes up a task again.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            StepFailed: the step failed and the policy says fail; the next `run_step` takes it up again.
            TaskParked: the task is paused, or waits for something.
            TaskFinished: the task has answered (finalize it) or ended.
        """
        return await self._step(id_of(task), input, step, agent, context, expect=expect, by=by)

    async def _step(
        self,
        task_id: str,
        input: Input | None,
        step: str | None,
        agent: Agent[Any] | None,
        context: Any,
        only: frozenset[str] | None = None,
        *,
        expect: int | None = None,
        by: str | None = None,
    ) -> TaskStepOutput[Any]:
        parts = parts_of(input) if input is not None else ()
        row = await self._cache.row(task_id)
        check_not_a_child(task_id, row.parent)
        registered = self._agents.of(row.agent, agent, task_id)
        async with self._ownership.acquire_outside_undo(task_id, enter=True, expect=expect) as owned:
            code = self._agents.with_task(owned.state, registered, agent)
            if owned.state.ended in (None, "failed"):
                await self._agents.check_prices(code, owned.state)
                check_version(owned.state, code, from_json(owned.state.options))
                context = await self._driver.contexts.of_drive(owned, code, context)
            await self._ready_for_a_step(owned, bool(parts), step, by)
            if parts:
                owned.writer.record(e.InputReceived(self._load_parts(parts), by=by))
            if code.function_worker is not None and only is None:
                next_steps = [step] if step is not None else _may_run(owned.state)[:1]
                only = frozenset(next_steps) or None
            drive = await self._driver.drive(owned, "step", code, context, only)
        return _outcome_of_step(owned.state, drive, only, code.typed)

    async def _ready_for_a_step(
        self, owned: OwnedTask, has_input: bool, step: str | None, by: str | None
    ) -> None:
        state = owned.state
        if step is not None and step not in _may_run(state):
            raise StepNotFound(f"task {state.task_id}: {step!r} is not the next step")
        if state.ended is not None and state.ended != "failed":
            raise finished(state, f"is {state.ended}")
        if state.answered and not has_input:
            raise finished(state, "has answered; call finalize, or give input to go on")
        if state.pausing:
            raise _parked(state, "paused")
        if state.ended is not None:
            await reopen(self._store, owned, "run_step", by)
        lift_stop(owned, by)

    @on_instances
    def stream_step(
        self,
        task: Ref[OutputT],
        *,
        input: Input | None = None,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        expect: int | None = None,
        by: str | None = None,
        raw: bool = False,
    ) -> StepStream[OutputT]:
        """Run one step like `run_step`, with its events on the way; `stream.output` is what `run_step` returns."""
        task_id = id_of(task)
        return StepStream(
            self._owned,
            task_id,
            lambda: self._step(task_id, input, None, agent, context, expect=expect, by=by),
            raw=raw,
        )

    @verb
    async def run_ready_steps(
        self, task: Ref[OutputT], *, context: Any = None, expect: int | None = None, by: str | None = None
    ) -> StepOutputs[OutputT]:
        """Run every step that is ready, beside each other, and return what each did, in order.

        Only where steps are functions can it be more than one. A step that they make ready does not begin, and one that
        was taken back meanwhile is left out.

        Args:
            task: the task, or its id.
            context: handed to tools; never stored.
            expect: the last event that the caller saw, `Task.head`: the steps run only if it still is the last.
            by: the name of the caller, for the record.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
        """
        task_id = id_of(task)
        state = await self._state(task_id)
        ready = _may_run(state)
        if len(ready) < 2:
            return StepOutputs([await self._step(task_id, None, None, None, context, expect=expect, by=by)])
        with suppress(StepFailed, TaskParked):  # each of their outputs says how it stands
            await self._step(task_id, None, None, None, context, frozenset(ready), expect=expect, by=by)
        state = await self._state(task_id)
        word, steps = results.resting_word(state), {step.id: step for step in results.all_steps(state)}
        typed = self._agents.output_type_of(state)
        outputs = [
            results.step_output(state, steps[step], word, (), typed) for step in ready if step in steps
        ]
        return StepOutputs(outputs)

    @verb
    async def finalize(
        self,
        task: Ref[OutputT],
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """End a task that has answered: its messages are added to its thread in the same transaction. Idempotent.

        Args:
            task: the task, or its id.
            expect: the last event that the caller saw, `Task.head`: the task ends only if it still is the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters: the same one again does not end a task that went on
                since.

        Raises:
            TaskUnfinished: the task has not answered.
            TaskMoved: the task's journal does not end with the event in `expect`.
        """
        task_id = id_of(task)

        async def finalized(event: e.Event) -> RunResult[Any]:
            return await self.result(task_id)

        return await self._commands.once(
            task_id,
            command_id,
            (e.AnswerFinalized,),
            lambda: self._finalize(task_id, expect, by, command_id),
            finalized,
        )

    async def _finalize(
        self, task_id: str, expect: int | None, by: str | None, command_id: str | None
    ) -> RunResult[Any]:
        while True:
            row = await self._cache.row(task_id)
            if row.state in ("completed", "degraded"):
                check_unmoved(task_id, row.head, expect)
                return await self.result(task_id)
            try:
                return await self._finalize_at_rest(task_id, expect, by, command_id)
            except TaskBusy:
                # The first sending of this command may be under way, but only at a task that has answered.
                if command_id is None or not (await self._state(task_id)).answered:
                    raise
            await self._commands.stopped(task_id)

    async def _finalize_at_rest(
        self, task_id: str, expect: int | None, by: str | None, command_id: str | None
    ) -> RunResult[Any]:
        async with self._ownership.acquire_outside_undo(task_id, expect=expect) as owned:
            state = owned.state
            if state.ended in ("completed", "degraded"):  # just before it was acquired here
                return await self._result_of(state, state.ended)
            if not state.answered or state.ended is not None:
                word = results.resting_word(state)
                message = f"task {task_id} is {word} and has no answer to finalize; step or resume it"
                raise TaskUnfinished(message, task_id=task_id, state=word)
            agent, context = self._agents.reviewer_of(state), None
            if agent is not None:
                context = await self._driver.contexts.of_drive(owned, agent, None, needed=False)
            try:
                inbox = await self._commands.note(owned, command_id)
                if by is not None or inbox is not None:
                    owned.writer.record(e.AnswerFinalized(by=by, inbox=inbox), inbox)
            except CarriedOut as before:
                if before.event.seq < state.steps[-1].ended_seq:
                    raise  # it was about an earlier answer
            await self._driver.drive(owned, "finalize", agent, context)
        return await self._result_of(state, results.resting_word(state))

    async def _create_or_none(self, new: NewRun, context: Any, *, drives: bool = True) -> OwnedTask | None:
        """Return a new task, or None when a task of the caller's id exists.

        One that is to be driven, or that has instructions to work out, is not made for a context of the wrong type.
        """
        while new.task_id is None or await self._existing_row(new) is None:
            if drives or context is not None:
                self._driver.contexts.check_given(new.agent, context)
            try:
                return await self._creator.create(new, drives=drives)
            except TaskExists:
                if self._owned.is_owned(str(new.task_id)):
                    await asyncio.sleep(0.001)  # another thread is about to write it
                elif await self._existing_row(new) is None:
                    message = (
                        f"task id {new.task_id} belonged to a task that was deleted, and its thread or its forks keep "
                        "what it said; take another id, or none (delete_thread deletes what a thread keeps)"
                    )
                    raise TaskConflict(message, task_id=str(new.task_id), field="task_id") from None
        return None

    async def _existing_row(self, new: NewRun) -> TaskRow | None:
        """Return the row of the task of that id, None if there is none; raises `TaskConflict` for another task."""
        task_id = str(new.task_id)
        await self._cache.open()
        row = await self._cache.row_or_none(task_id)
        if row is None:
            return None
        state = (await self._cache.load(task_id)).state
        fits = {
            "agent": row.agent == new.agent.name,
            "input": state.input == self._load_parts(new.input),
            "thread": new.thread_id is None or row.thread_id == new.thread_id,
        }
        for field, same in fits.items():
            if not same:
                message = f"task {task_id} exists with another {field}; give another task_id, or none"
                raise TaskConflict(message, task_id=task_id, field=field)
        return row


def _may_run(state: TaskState) -> list[str]:
    """Return the ids of the steps that may run now, in order."""
    return [info.step_id for info in upcoming_steps(state) if info.status != "blocked"]


def _outcome_of_step(
    state: TaskState, drive: DriveLoop, only: frozenset[str] | None, typed: OutputType[Any] | None
) -> TaskStepOutput[Any]:
    """Return what a drive of one step came to, or raise what kept it from completing."""
    word = results.resting_word(state)
    if drive.step_done is not None:
        return results.step_output(state, drive.step_done, word, upcoming_steps(state), typed)
    begun = [step for step in state.under_way() if only is None or step.id in only]
    step = begun[0] if begun else next_step(state)
    output = results.step_output(state, step, word, (), typed)
    if step.status == "failed" and state.ended == "failed":
        why = state.error.message if state.error is not None else "no reason was given"
        message = f"task {state.task_id}, step {step.id} failed: {why}"
        raise StepFailed(message, task_id=state.task_id, output=output, error=state.error)
    if state.ended is not None:
        return output
    raise _parked(state, word)


def _parked(state: TaskState, word: str) -> TaskParked:
    pending = results.pending_of(state)
    what = "; ".join(item.text for item in pending) or state.stop_reason or "call resume to go on"
    return TaskParked(
        f"task {state.task_id} is {word}: {what}", task_id=state.task_id, state=word, pending=pending
    )
