"""Create tasks and run them step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.core.tracebacks import cause_of
from treadle.drivers.agent_version import check_version, record_agent
from treadle.drivers.arguments import parts_of
from treadle.drivers.commands import CarriedOut, encoded
from treadle.drivers.continuing import check_not_a_child, lift_stop, reopen
from treadle.drivers.new_task import NewRun
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.ownership import check_unmoved
from treadle.engine.drive import DriveLoop
from treadle.engine.observers import Listeners
from treadle.engine.options import RunOptions, from_json
from treadle.errors import (
    StepFailed,
    StepNotFound,
    TaskBusy,
    TaskConflict,
    TaskFinished,
    TaskParked,
    TaskUnfinished,
)
from treadle.ports import ContextT, Observers, OutputT, TaskExists, TaskRow
from treadle.results.pending import pending_of
from treadle.results.run_result import RunResult
from treadle.results.states import state_at_rest
from treadle.results.step_outputs import StepOutputs, TaskStepOutput, step_output
from treadle.results.steps import all_steps
from treadle.results.tasks import Task
from treadle.runner.stream import StepStream
from treadle.runner.verbs import on_instances, verb
from treadle.runner.views import Input, Ref, ViewVerbs, finished, id_of, next_step, upcoming_steps

if TYPE_CHECKING:
    from treadle.agents.output import OutputType


class StepVerbs(ViewVerbs):
    """The verbs that create a task, run one step of it, and finalize it."""

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
        """Create a task without running it; the same id with the same arguments returns the same task.

        Args:
            agent: the agent to run.
            input: text or content parts.
            thread_id: the conversation to continue; a new one by default.
            task_id: an id of your own.
            extra_state: JSON data by name, stored with the task: `ctx.state` of its tools, steps and instructions,
                which may change it. A known task keeps its own.
            options: the options of the run.
            context: never stored; an instructions function is called with it now.
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
                await record_agent(
                    owned, agent, context, from_json(owned.state.options), self._driver.vault
                )  # if the function raises, the drive calls it again, and fails the task then
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
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> TaskStepOutput[OutputT]:
        """Run one step and return its output.

        Args:
            task: the task, or its id.
            input: a person's message, added before the step's model call.
            step: id of the step to run, which must be ready; see `get_upcoming_steps`.
            agent: the task's agent, if this runner was not given it.
            context: passed to tools; never stored.
            observers: as in `run`, for this step.
            expect: the last event that the caller saw, `Task.head`. The step runs only if it is still the last.
            by: the name of the caller, recorded with the input, and if the step reopens a task.
            command_id: an id of your own, 1 to 200 characters. A repeat adds no second input and runs no second step.
                It returns the step that ran, or completes the step that a crash cut off.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            StepFailed: the step failed, and the failure policy ends the task; the next `run_step` runs the step again.
            TaskParked: the task is paused, or waits for a decision, an answer or a result.
            TaskFinished: the task has answered (finalize it) or ended.
        """
        request = _StepRequest(id_of(task), input, step, agent, context, expect, by, command_id)
        return await self._step(request, "run_step", observers)

    async def _step(self, request: _StepRequest, verb: str, observers: Observers) -> TaskStepOutput[Any]:
        """Run one step, or return the step of an earlier command with the same id."""
        if not observers:
            return (await self._drive_once(request))()[0]
        with self._driver.observing(verb, observers) as listeners:
            return (await self._drive_once(replace(request, observers=listeners)))()[0]

    async def _drive_once(self, request: _StepRequest) -> _Outcome:
        """Drive the steps of a request, unless a command of its id was carried out before; return their outcome."""
        task_id, command_id = request.task_id, request.command_id
        if command_id is None:
            return await self._drive_steps(request)

        async def drive() -> _Outcome:
            while True:
                try:
                    return await self._drive_steps(request)
                except TaskBusy:
                    if await self._commands.is_left_for_another(task_id, command_id):
                        raise

        async def repeated(event: e.Event) -> _Outcome:
            assert isinstance(event, e.StepRequested), "no other kind is asked for"
            await self._check_same_request(request, event)
            return await self._drive_rest(request, event)

        return await self._commands.once(task_id, command_id, (e.StepRequested,), drive, repeated)

    async def _drive_steps(self, request: _StepRequest) -> _Outcome:
        """Own the task, record the caller's request, and drive the task until the steps have stopped."""
        task_id, by = request.task_id, request.by
        parts = parts_of(request.input) if request.input is not None else ()
        row = await self._cache.row(task_id)
        check_not_a_child(task_id, row.parent)
        registered = self._agents.of(row.agent, request.agent, task_id)
        async with self._ownership.acquire(
            task_id, enter=True, expect=request.expect, observers=request.observers, outside_undo=True
        ) as owned:
            inbox = await self._commands.note(owned, request.command_id)
            code = self._agents.with_task(owned.state, registered, request.agent)
            context = request.context
            if owned.state.ended in (None, "failed"):
                await self._agents.check_prices(code, owned.state)
                check_version(owned.state, code, from_json(owned.state.options))
                context = await self._driver.contexts.of_drive(owned, code, context)
            await self._ready_for_a_step(owned, bool(parts), request.step, by)
            if inbox is not None:
                steps = request.steps_of(owned.state)
                if not steps and request.only is None:
                    steps = (next_step(owned.state).id,)  # the input starts it
                owned.writer.record(e.StepRequested(steps, bool(parts), by, inbox), inbox)
            if parts:  # in the commit of the request
                owned.writer.record(e.InputReceived(self._load_parts(parts), by=by))
            only = request.only
            if code.function_worker is not None and only is None:
                only = frozenset(request.steps_of(owned.state)) or None
            drive = await self._driver.drive(owned, "step", code, context, only)
        return lambda: [_outcome_of_step(owned.state, drive, only, code.typed)]

    async def _check_same_request(self, request: _StepRequest, event: e.StepRequested) -> None:
        """Raise `ConfigurationError` unless a request equals the earlier one with its id."""
        recorded: list[Json] = []
        if event.with_input:
            records = await self._store.read(request.task_id, after=event.seq, upto=event.seq + 1)
            for _, received in events_with_epochs(request.task_id, records, after=event.seq, previous=None):
                if isinstance(received, e.InputReceived) and received.seq == event.seq + 1:
                    recorded = encoded(received.parts)
        sent = [] if request.input is None else encoded(self._load_parts(parts_of(request.input)))
        steps: list[Json] = list(event.steps)
        requested = [request.step] if request.step is not None else steps[: None if request.ready else 1]
        self._commands.check_same(
            request.task_id, request.command_id, event, [steps, recorded], [requested, sent]
        )

    async def _drive_rest(self, request: _StepRequest, event: e.StepRequested) -> _Outcome:
        """Return the outcome of the steps of an earlier request, after running those that a crash cut off."""
        task_id, row = request.task_id, None
        while True:
            state = await self._state(task_id)  # it is cached: later reads of the task change it
            rest = _unfinished(state, event.steps)
            if not rest:
                return partial(_recorded_outcomes, state, event.steps, self._agents.output_type_of(state))
            if row is None or row.head != state.seq:
                row = await self._commands.stopped(task_id)
                continue
            if state.pausing or (state.interrupting and not state.shutdown):
                raise _parked(state, state_at_rest(state))  # it was stopped after the request
            if not set(rest) & set(_may_run(state)):
                raise StepNotFound(f"task {task_id}: {rest[0]!r}, which the command ran, was taken back")
            step = rest[0] if len(event.steps) == 1 else None
            only = frozenset(rest) if step is None else None
            row = None
            with suppress(StepNotFound, TaskBusy, TaskFinished):  # another driver was faster
                return await self._drive_steps(
                    replace(request, input=None, step=step, only=only, expect=None, command_id=None)
                )

    async def _ready_for_a_step(
        self, owned: OwnedTask, has_input: bool, step: str | None, by: str | None
    ) -> None:
        state = owned.state
        if step is not None and step not in (steps := _may_run(state)):
            known = f"; next: {', '.join(map(repr, steps))}" if steps else ""
            raise StepNotFound(f"task {state.task_id}: {step!r} is not the next step{known}")
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
        step: str | None = None,
        agent: Agent[ContextT, OutputT] | None = None,
        context: ContextT | None = None,
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
        raw: bool = False,
    ) -> StepStream[OutputT]:
        """Run one step like `run_step` and stream its events; `stream.output` is the return value of `run_step`.

        A repeat of a step that has ended yields no events.
        """
        task_id = id_of(task)
        request = _StepRequest(task_id, input, step, agent, context, expect, by, command_id)
        return StepStream(
            self._owned, task_id, lambda: self._step(request, "stream_step", observers), raw=raw
        )

    @verb
    async def run_ready_steps(
        self,
        task: Ref[OutputT],
        *,
        context: Any = None,
        observers: Observers = (),
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> StepOutputs[OutputT]:
        """Run all ready steps in parallel, and return their outputs, in order.

        Several steps can be ready only if steps are functions. Steps that become ready meanwhile do not begin. The
        output of a step that is taken back meanwhile is left out.

        Args:
            task: the task, or its id.
            context: passed to tools; never stored.
            observers: as in `run`, for these steps.
            expect: the last event that the caller saw, `Task.head`. The steps run only if it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat runs no other steps, and returns those that
                ran.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
        """
        task_id = id_of(task)
        request = _StepRequest(task_id, None, None, None, context, expect, by, command_id, ready=True)
        ready = await self._ready_steps(request)
        with self._driver.observing("run_ready_steps", observers) as listeners:
            request = replace(request, observers=listeners)
            if len(ready) < 2:
                return StepOutputs((await self._drive_once(request))())
            with suppress(StepFailed, TaskParked):  # each output holds the state of its step
                (await self._drive_once(replace(request, only=frozenset(ready))))()
        if command_id is not None:
            ready = await self._ready_steps(request)  # the steps of the first caller with this id
        state = await self._state(task_id)
        state_word, steps = state_at_rest(state), {step.id: step for step in all_steps(state)}
        typed = self._agents.output_type_of(state)
        outputs = [step_output(state, steps[step], state_word, (), typed) for step in ready if step in steps]
        return StepOutputs(outputs)

    async def _ready_steps(self, request: _StepRequest) -> Sequence[str]:
        """Return the ready steps, or those of an earlier command with the id of the request."""
        ready = _may_run(await self._state(request.task_id))
        if request.command_id is None:
            return ready
        before = await self._commands.event_of(request.task_id, request.command_id)
        return before.steps if isinstance(before, e.StepRequested) else ready

    @verb
    async def finalize(
        self,
        task: Ref[OutputT],
        *,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> RunResult[OutputT]:
        """End a task that has answered, and add its messages to its thread in the same transaction. Idempotent.

        Args:
            task: the task, or its id.
            expect: the last event that the caller saw, `Task.head`. The task ends only if it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat does not end a task that went on since.

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
                # The first request with this id may still be in progress, but only on a task that has answered.
                if command_id is None or not (await self._state(task_id)).answered:
                    raise
            await self._commands.stopped(task_id)

    async def _finalize_at_rest(
        self, task_id: str, expect: int | None, by: str | None, command_id: str | None
    ) -> RunResult[Any]:
        async with self._ownership.acquire(task_id, expect=expect, outside_undo=True) as owned:
            state = owned.state
            if state.ended in ("completed", "degraded"):  # just before it was acquired here
                return await self._result_of(state, state.ended)
            if not state.answered or state.ended is not None:
                state_word = state_at_rest(state)
                message = f"task {task_id} is {state_word} and has no answer to finalize; step or resume it"
                raise TaskUnfinished(message, task_id=task_id, state=state_word)
            agent, context = self._agents.reviewer_of(state), None
            if agent is not None:
                context = await self._driver.contexts.of_drive(owned, agent, None, needed=False)
            try:
                inbox = await self._commands.note(owned, command_id)
                if by is not None or inbox is not None:
                    owned.writer.record(e.AnswerFinalized(by=by, inbox=inbox), inbox)
            except CarriedOut as before:
                if before.event.seq < state.steps[-1].ended_seq:
                    raise  # it belongs to an earlier answer
            await self._driver.drive(owned, "finalize", agent, context)
        return await self._result_of(state, state_at_rest(state))

    async def _create_or_none(self, new: NewRun, context: Any, *, drives: bool = True) -> OwnedTask | None:
        """Return a new task, or None if a task of the caller's id exists.

        If the task will be driven or its instructions are a function, a context of the wrong type creates no task.
        """
        while new.task_id is None or await self._existing_row(new) is None:
            if drives or context is not None:
                self._driver.contexts.check_for_new_task(new.agent, context)
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
        """Return the row of the task of that id, None without one; raise `TaskConflict` for another task."""
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


_Outcome: TypeAlias = Callable[[], list[TaskStepOutput[Any]]]
"""Returns the outputs of steps, or raises the error that prevented a single step."""


@frozen
class _StepRequest:
    """A caller's request to run steps.

    Args:
        task_id: the task.
        input: a message for the step.
        step: the step that the caller named.
        agent: the task's agent, if the runner was not given it.
        context: passed to tools.
        expect: the last event that the caller saw.
        by: the name of the caller.
        command_id: the id of the command, if the caller gave one.
        only: the steps to run in parallel; None for one step.
        ready: whether the caller asked for all ready steps.
        observers: the caller's observers.
    """

    task_id: str
    input: Input | None
    step: str | None
    agent: Agent[Any] | None
    context: Any
    expect: int | None = None
    by: str | None = None
    command_id: str | None = None
    only: frozenset[str] | None = None
    ready: bool = False
    observers: Listeners | None = None

    def steps_of(self, state: TaskState) -> tuple[str, ...]:
        """Return the ids of the steps that the request runs in a task."""
        ready = _may_run(state)
        if self.only is not None:
            return tuple([step for step in ready if step in self.only])
        return tuple([self.step] if self.step is not None else ready[:1])


def _may_run(state: TaskState) -> list[str]:
    """Return the ids of the steps that may run now, in order."""
    return [info.step_id for info in upcoming_steps(state) if info.status != "blocked"]


def _unfinished(state: TaskState, requested: Sequence[str]) -> list[str]:
    """Return those of the requested steps that may still be driven."""
    if state.ended is not None:
        return []
    steps = {step.id: step.status for step in all_steps(state)}
    return [step for step in requested if steps.get(step) not in ("completed", "skipped")]


def _recorded_outcomes(
    state: TaskState, requested: Sequence[str], typed: OutputType[Any] | None
) -> list[TaskStepOutput[Any]]:
    """Return the outputs of steps from the journal; raise `StepFailed` for a single step that failed."""
    steps = {step.id: step for step in all_steps(state)}
    state_word, upcoming = state_at_rest(state), upcoming_steps(state)
    outputs = [
        step_output(state, steps.get(step) or next_step(state), state_word, upcoming, typed)
        for step in requested
    ]
    if len(outputs) == 1 and outputs[0].step.status == "failed" and state.ended == "failed":
        raise _failed(state, outputs[0]) from cause_of(state.error)
    return outputs


def _failed(state: TaskState, output: TaskStepOutput[Any]) -> StepFailed:
    why = state.error.message if state.error is not None else "no reason was given"
    message = f"task {state.task_id}, step {output.step.step_id} failed: {why}"
    return StepFailed(message, task_id=state.task_id, output=output, error=state.error)


def _outcome_of_step(
    state: TaskState, drive: DriveLoop, only: frozenset[str] | None, typed: OutputType[Any] | None
) -> TaskStepOutput[Any]:
    """Return the output of the one driven step, or raise the error that prevented it."""
    state_word = state_at_rest(state)
    if drive.step_done is not None:
        return step_output(state, drive.step_done, state_word, upcoming_steps(state), typed)
    begun_steps = [step for step in state.under_way() if only is None or step.id in only]
    step = begun_steps[0] if begun_steps else next_step(state)
    output = step_output(state, step, state_word, (), typed)
    if step.status == "failed" and state.ended == "failed":
        raise _failed(state, output) from cause_of(state.error)
    if state.ended is not None:
        return output
    raise _parked(state, state_word)


def _parked(state: TaskState, state_word: str) -> TaskParked:
    pending = pending_of(state)
    reason = "; ".join(item.text for item in pending) or state.stop_reason or "call resume to go on"
    return TaskParked(
        f"task {state.task_id} is {state_word}: {reason}",
        task_id=state.task_id,
        state=state_word,
        pending=pending,
    )
