"""`TaskRunner`: every verb on tasks, over ports alone. The public `Runner` only decides which adapters it gets.

Every verb that drives goes one way: own the task, record what the caller said, drive it to the verb's goal, give it
back, and tell from its state what happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from treadle.agents.agent import Agent
from treadle.agents.function_calling import step_id
from treadle.core import codec
from treadle.core import events as e
from treadle.core.events import END_STATES
from treadle.core.messages import Content, Json, Message
from treadle.core.state import StepState, TaskState
from treadle.core.tools import Happened, NotHappened
from treadle.errors import (
    AlreadyDecided,
    CallNotFound,
    ConfigurationError,
    StepFailed,
    StepNotFound,
    TaskConflict,
    TaskFinished,
    TaskParked,
    TaskUnfinished,
)
from treadle.ports import Commit, JournalStore, NewTask, TaskExists, TaskFilter, TaskRow
from treadle.runner import forking, given, results, undoing
from treadle.runner.bridge import BRIDGE
from treadle.runner.desk import Desk, Owned
from treadle.runner.driving import Driving, NewRun, Parts, new_id
from treadle.runner.given import parts_of
from treadle.runner.handle import RunHandle
from treadle.runner.loop import Drive
from treadle.runner.options import RunOptions
from treadle.runner.results import (
    Difference,
    RunResult,
    StepInfo,
    Task,
    TaskPage,
    TaskStepOutput,
    UndoReport,
)
from treadle.runner.stream import EventStream, StepStream
from treadle.runner.verbs import verb
from treadle.runner.writer import encode_record

Input = str | Content | Sequence[str | Content]
Ref = str | Task
"""A task, or its id."""

Role = Literal["user", "observation", "system"]


def id_of(task: Ref) -> str:
    """Return the id of a task named by itself or by its id."""
    return task.task_id if isinstance(task, Task) else task


class TaskRunner:
    """Creates, drives, controls and inspects tasks. Holds no state of a run; safe under any concurrency."""

    def __init__(self, parts: Parts) -> None:
        self._driving = Driving(parts)
        self._store = parts.store
        self._held: set[asyncio.Future[Any]] = set()

    @property
    def desk(self) -> Desk:
        """Where this runner's open tasks lie."""
        return self._driving.desk

    def hold(self, work: asyncio.Future[Any]) -> None:
        """Keep work in the background from being collected; what it raised is told to whoever asks the handle."""
        self._held.add(work)
        work.add_done_callback(self._held.discard)

    async def at_rest(self, task_id: str) -> bool:
        """Whether nobody drives the task."""
        if task_id in self.desk.owned:
            return False
        return not self.desk.is_driven(await self._driving.row(task_id))

    async def stopped(self, task_id: str) -> RunResult:
        """Return how a task stands once nobody drives it."""
        await self._driving.stopped(task_id)
        return await self.result(task_id)

    @property
    def store(self) -> JournalStore:
        """Where journals live."""
        return self._store

    async def aclose(self) -> None:
        """Write what is queued and close the store; tasks still driven here are interrupted and can be resumed."""
        desk = self._driving.desk
        for owned in list(desk.owned.values()):
            if owned.drive is not None:
                await owned.drive.stop("the runner was closed")
        desk.close()
        await self._store.close()

    # ---------------------------------------------------------------------------- running to an end

    @verb
    async def run(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunResult:
        """Run an agent on an input until the task stops, and return how it stands then.

        Args:
            agent: what to run.
            input: text or content parts.
            thread_id: the conversation to go on with; a new one by default.
            task_id: an id of your own. A known one never runs twice: created or interrupted, it is driven on; ended,
                paused or waiting, its stored result is returned; driven elsewhere, its end is awaited.
            options: how to run; what it leaves open is taken from the runner's.
            context: handed to tools and instructions; never stored, never shown to a model.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options)
        return await self._run(new, context)

    def run_sync(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunResult:
        """Run like `run`, without asyncio; works also inside a running event loop."""
        return BRIDGE.run(
            self.run(agent, input, thread_id=thread_id, task_id=task_id, options=options, context=context)
        )

    async def _run(self, new: NewRun, context: Any) -> RunResult:
        owned = await self._create_or_none(new)
        if owned is None:
            return await self._run_known(new, context)
        return await self._drive_to_end(owned, new.agent, context)

    async def _create_or_none(self, new: NewRun, *, drives: bool = True) -> Owned | None:
        """Return a new task, or None when the caller's task id is known already."""
        if new.task_id is not None and await self._known(new) is not None:
            return None
        try:
            return await self._driving.create(new, drives=drives)
        except TaskExists:
            await self._known(new)
            return None

    async def _drive_to_end(self, owned: Owned, agent: Agent[Any], context: Any) -> RunResult:
        async with self._driving.giving_back(owned):
            await self._driving.drive(owned, "end", agent, context)
        return results.run_result(owned.state, results.resting_word(owned.state))

    async def _known(self, new: NewRun) -> TaskRow | None:
        """Return the row of a task that exists, after checking that it is the same task."""
        task_id = new.task_id
        if not isinstance(task_id, str) or not task_id or len(task_id) > 200:
            raise ConfigurationError(f"task_id must be text of 1 to 200 characters, got {task_id!r}")
        await self._store.open()
        row = await self._driving.row_or_none(task_id)
        if row is None:
            return None
        state = (await self._driving.desk.load(task_id)).state
        fits = {
            "agent": row.agent == new.agent.name,
            "input": state.input == self._driving.parts.load_parts(new.input),
            "thread": new.thread_id is None or row.thread_id == new.thread_id,
        }
        for field, same in fits.items():
            if not same:
                message = f"task {task_id} exists with another {field}; give another task_id, or none"
                raise TaskConflict(message, task_id=task_id, field=field)
        return row

    async def _run_known(self, new: NewRun, context: Any) -> RunResult:
        task_id = str(new.task_id)
        row = await self._driving.row(task_id)
        if results.word_of(row) in ("created", "interrupted", "running", "answered"):
            return await self.resume(task_id, agent=new.agent, options=new.options, context=context)
        return await self.result(task_id)

    def run_stream(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> EventStream:
        """Run like `run`, with the events on the way: `async with ... as stream: async for event in stream`.

        Leaving the block early interrupts the task; afterwards `stream.result` is what `run` would have returned.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id or new_id(), options)

        async def work() -> RunResult:
            if task_id is not None:
                return await self._run(new, context)
            # The id was made here, so nobody else can know it.
            owned = await self._driving.create(
                NewRun(agent, new.input, thread_id, None, options), new.task_id
            )
            return await self._drive_to_end(owned, agent, context)

        async def standing() -> RunResult:
            return await self.result(str(new.task_id))

        return EventStream(self._driving.desk, str(new.task_id), work, standing)

    @verb
    async def start(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> RunHandle:
        """Start a task and return a handle at once; it is driven in this event loop and ends with it."""
        new = NewRun(agent, parts_of(input), thread_id, task_id, options)
        owned = await self._create_or_none(new)
        if owned is None:
            handle = RunHandle(self, str(task_id))
            handle.drive_with(self._run_known(new, context))
            return handle
        handle = RunHandle(self, owned.state.task_id)
        handle.drive_with(self._drive_to_end(owned, agent, context))
        await owned.writer.durable()
        return handle

    def handle(self, task: Ref) -> RunHandle:
        """Return a handle on a task, wherever it is driven."""
        return RunHandle(self, id_of(task))

    @verb
    async def resume(
        self,
        task: Ref,
        *,
        agent: Agent[Any] | None = None,
        context: Any = None,
        options: RunOptions | None = None,
        by: str | None = None,
    ) -> RunResult:
        """Drive a task from where it stands to its next stop, and return how it stands then.

        A completed or cancelled task, and a degraded one without new options, is left as it is. One driven elsewhere
        is waited for.

        Raises:
            AgentUnknown: this runner was not given the task's agent.
            UndoUnfinished: an undo has begun and not ended.
        """
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        if self.desk.is_driven(row):
            await self._driving.stopped(task_id)
            return await self.result(task_id)
        if row.state in ("completed", "cancelled") or (row.state == "degraded" and options is None):
            return await self.result(task_id)
        given.options(options)
        known = self._driving.agent_for(row.agent, agent, task_id)
        async with self._driving.own_outside_undo(task_id) as owned:
            state = owned.state
            if state.ended is not None:
                await self._driving.reopen(owned, "resume", by)
            self._driving.set_options(owned, options)
            self._driving.go_on(owned, by)
            known = agent or self._driving.version_for(state, known)
            await self._driving.drive(owned, "end", known, context)
        return results.run_result(state, results.resting_word(state))

    @verb
    async def result(self, task: Ref) -> RunResult:
        """Return how a task stands now, from its journal, without driving it."""
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        loaded = await self._driving.desk.load(task_id)
        return results.run_result(loaded.state, results.word_of(row))

    # -------------------------------------------------------------------------------------- stepping

    @verb
    async def create_task(
        self,
        agent: Agent[Any],
        input: Input,
        *,
        thread_id: str | None = None,
        task_id: str | None = None,
        extra_state: Json = None,
        options: RunOptions | None = None,
        context: Any = None,
    ) -> Task:
        """Create a task without running anything; the same task id with the same arguments gives the same task.

        Args:
            agent: what is to run.
            input: text or content parts.
            thread_id: the conversation to go on with; a new one by default.
            task_id: an id of your own.
            extra_state: JSON data of yours, kept with the task.
            options: how to run.
            context: never stored; when given, instructions that are a function are worked out with it now.

        Raises:
            TaskConflict: the task id is known with another agent, input or thread.
        """
        new = NewRun(agent, parts_of(input), thread_id, task_id, options, extra_state)
        owned = await self._create_or_none(new, drives=False)
        if owned is None:
            return await self.get_task(str(task_id))
        async with self._driving.giving_back(owned):
            if context is not None:
                self._driving.introduce(owned, agent, context, self._driving.options_of(owned.state))
            await owned.writer.durable()
        return await self.get_task(owned.state.task_id)

    @verb
    async def run_step(
        self,
        task: Ref,
        *,
        input: Input | None = None,
        step: str | None = None,
        agent: Agent[Any] | None = None,
        context: Any = None,
    ) -> TaskStepOutput:
        """Run exactly one step and return what it did.

        Args:
            task: the task, or its id.
            input: a person's words, put before the step's model call.
            step: id of the step to run; it must be the next one.
            agent: the task's agent, if this runner was not given it.
            context: handed to tools; never stored.

        Raises:
            StepFailed: the step failed and the policy says fail; the next `run_step` takes it up again.
            TaskParked: the task is paused, or waits for something.
            TaskFinished: the task has answered (finalize it) or ended.
        """
        return await self._step(id_of(task), input, step, agent, context)

    async def _step(
        self, task_id: str, given: Input | None, step: str | None, agent: Agent[Any] | None, context: Any
    ) -> TaskStepOutput:
        parts = parts_of(given) if given is not None else ()
        row = await self._driving.row(task_id)
        known = self._driving.agent_for(row.agent, agent, task_id)
        async with self._driving.own_outside_undo(task_id) as owned:
            await self._ready_for_a_step(owned, bool(parts), step)
            if parts:
                owned.writer.record(e.InputReceived(self._driving.parts.load_parts(parts)))
            known = agent or self._driving.version_for(owned.state, known)
            drive = await self._driving.drive(owned, "step", known, context)
        return _outcome_of_step(owned.state, drive)

    async def _ready_for_a_step(self, owned: Owned, has_input: bool, step: str | None) -> None:
        state = owned.state
        if step is not None and step not in [info.step_id for info in _upcoming(state)]:
            raise StepNotFound(f"task {state.task_id}: {step!r} is not the next step")
        if state.ended is not None and state.ended != "failed":
            raise _finished(state, f"is {state.ended}")
        if state.answered and not has_input:
            raise _finished(state, "has answered; call finalize, or give input to go on")
        if state.pausing:
            raise _parked(state, "paused")
        if state.ended is not None:
            await self._driving.reopen(owned, "run_step")
        self._driving.go_on(owned)

    def stream_step(
        self,
        task: Ref,
        *,
        input: Input | None = None,
        agent: Agent[Any] | None = None,
        context: Any = None,
    ) -> StepStream:
        """Run one step like `run_step`, with its events on the way; `stream.output` is what `run_step` returns."""
        task_id = id_of(task)
        return StepStream(
            self._driving.desk, task_id, lambda: self._step(task_id, input, None, agent, context)
        )

    @verb
    async def run_ready_steps(self, task: Ref, *, context: Any = None) -> list[TaskStepOutput]:
        """Run every step that is ready and return what each did; a task of this worker has one at a time."""
        return [await self._step(id_of(task), None, None, None, context)]

    @verb
    async def finalize(self, task: Ref) -> RunResult:
        """End a task that has answered: its thread gets its words in the same transaction. Idempotent.

        Raises:
            TaskUnfinished: the task has not answered.
        """
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        if row.state in ("completed", "degraded"):
            return await self.result(task_id)
        async with self._driving.own_outside_undo(task_id) as owned:
            state = owned.state
            if not state.answered or state.ended is not None:
                word = results.resting_word(state)
                message = f"task {task_id} is {word} and has no answer to finalize; step or resume it"
                raise TaskUnfinished(message, task_id=task_id, state=word)
            await self._driving.drive(owned, "finalize", None, None)
        return results.run_result(state, results.resting_word(state))

    # ----------------------------------------------------------------------------------------- views

    @verb
    async def get_task(self, task: Ref) -> Task:
        """Return a snapshot of a task; raises `TaskNotFound`."""
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        return results.snapshot((await self._driving.desk.load(task_id)).state, row)

    @verb
    async def list_tasks(
        self,
        *,
        state: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        since: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return tasks, newest first, that match all given fields; `since` in microseconds since 1970, UTC."""
        texts = {"agent": agent, "thread_id": thread_id, "parent": parent, "forked_from": forked_from}
        given.page(state, limit, since, cursor=cursor, **texts)
        await self._store.open()
        # One more than asked for tells whether there is a next page.
        wanted = TaskFilter(state, agent, thread_id, parent, forked_from, since, limit + 1, cursor)
        rows = await self._store.rows(wanted)
        more = rows[limit - 1].task_id if len(rows) > limit else None
        return TaskPage(tuple(results.summary(row) for row in rows[:limit]), more)

    async def _state(self, task: Ref) -> TaskState:
        await self._driving.row(id_of(task))
        return (await self._driving.desk.load(id_of(task))).state

    @verb
    async def get_upcoming_steps(self, task: Ref) -> tuple[StepInfo, ...]:
        """Return the steps that would run next."""
        return _upcoming(await self._state(task))

    @verb
    async def get_completed_steps(self, task: Ref) -> tuple[TaskStepOutput, ...]:
        """Return what each completed step of the present branch did, in order."""
        state = await self._state(task)
        word = results.resting_word(state)
        return tuple([results.step_output(state, step, word, ()) for step in state.steps])

    @verb
    async def get_step(self, task: Ref, step: str | int) -> TaskStepOutput:
        """Return what a step of the present branch did, by id or index from 1; raises `StepNotFound`."""
        state = await self._state(task)
        for found in results.all_steps(state):
            if step in (found.id, found.index):
                return results.step_output(state, found, results.resting_word(state), ())
        raise StepNotFound(f"task {state.task_id} has no step {step!r} on its present branch")

    @verb
    async def get_thread(self, thread_id: str) -> tuple[Message, ...]:
        """Return the words of a thread, oldest first; nothing if no task in it was finalized."""
        await self._store.open()
        return tuple(await self._driving.desk.thread_messages(thread_id))

    @verb
    async def verify(self, task: Ref) -> int:
        """Read a task's whole journal anew, check its chain and its sense, and return the number of its events.

        Raises:
            JournalCorrupt: a record was changed, lost or cut.
        """
        task_id = id_of(task)
        await self._driving.row(task_id)
        self._driving.desk.forget(task_id)
        return (await self._driving.desk.load(task_id)).state.seq

    @verb
    async def delete_task(self, task: Ref) -> None:
        """Delete a task with its children; a prefix that living forks share stays. Raises `TaskBusy` if driven."""
        task_id = id_of(task)
        await self._driving.row(task_id)
        await self._store.delete(task_id)
        self._driving.desk.forget(task_id)

    # -------------------------------------------------------------------------------------- feedback

    @verb
    async def send(self, task: Ref, message: Input, *, role: Role = "user", by: str | None = None) -> None:
        """Put words before a task's next model call, also while it runs; durable when this returns.

        Args:
            task: the task, or its id.
            message: text or content parts.
            role: `user`, `system`, or `observation`: framed as data from outside, not as anybody's wish.
            by: who says so.

        Raises:
            TaskFinished: the task is completed, degraded or cancelled.
        """
        if role not in ("user", "observation", "system"):
            raise ConfigurationError(f"send: role must be 'user', 'observation' or 'system', got {role!r}")
        parts = self._driving.parts.load_parts(parts_of(message))
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        if row.state in END_STATES and row.state != "failed":
            raise TaskFinished(
                f"task {task_id} is {row.state}; fork it to go on", task_id=task_id, state=row.state
            )
        data: dict[str, Json] = {"parts": [codec.encode_part(part) for part in parts], "by": by}
        data["role"] = "user" if role == "observation" else role
        data["observation"] = role == "observation"
        if row.state == "failed":
            async with self._driving.own(task_id) as owned:
                await self._driving.reopen(owned, "send", by)
        item_id = await self._driving.command(task_id, "send", data)
        row = await self._driving.row(task_id)
        if row.state in END_STATES and not await self._driving.heard(task_id, item_id):
            message = f"task {task_id} ended ({row.state}) before it could read this"
            raise TaskFinished(message, task_id=task_id, state=row.state)

    @verb
    async def edit_step(self, task: Ref, input: Input, *, by: str | None = None) -> StepInfo:
        """Replace the words that the next step will read; both versions are kept. Returns the step."""
        parts = self._driving.parts.load_parts(parts_of(input))
        async with self._driving.own_outside_undo(await self._existing(task)) as owned:
            state = owned.state
            if state.ended is not None and state.ended != "failed":
                raise _finished(state, f"is {state.ended}")
            if state.ended is not None:
                await self._driving.reopen(owned, "edit_step", by)
            if state.answered:
                raise _finished(state, "has answered; undo its last step, or give input to go on")
            owned.writer.record(e.InputEdited(parts, _words_to_read(state), by))
        return _upcoming(state)[0]

    @verb
    async def edit_call(
        self, task: Ref, call_id: str, arguments: dict[str, Json], *, by: str | None = None
    ) -> None:
        """Change the arguments of a call that has not begun; both versions are kept."""
        if not isinstance(arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"edit_call: arguments must be a dict, got {arguments!r}")
        async with self._driving.own_outside_undo(await self._existing(task)) as owned:
            state = owned.state
            if state.ended is not None and state.ended != "failed":
                raise _finished(state, f"is {state.ended}")
            call = state.step.open.get(call_id) if state.step is not None else None
            if call is None or call.status != "proposed":
                raise CallNotFound(f"task {state.task_id} has no call {call_id!r} that has not begun")
            owned.writer.record(e.CallEdited(call.step, call_id, arguments, call.arguments, by))

    @verb
    async def skip_step(self, task: Ref, *, by: str | None = None) -> None:
        """Give up a failed step, on record; the task goes on with the next one.

        Raises:
            StepNotFound: the task's next step has not failed.
        """
        async with self._driving.own(await self._existing(task)) as owned:
            state = owned.state
            if state.step is None or state.step.status != "failed":
                raise StepNotFound(f"task {state.task_id} has no failed step to skip")
            if state.ended is not None:
                await self._driving.reopen(owned, "skip_step", by)
            owned.writer.record(e.StepSkipped(state.step.id, by))

    async def _existing(self, task: Ref) -> str:
        return (await self._driving.row(id_of(task))).task_id

    # --------------------------------------------------------------------------------------- control

    @verb
    async def pause(self, task: Ref, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """Let running calls end and start nothing new; returns when the task is paused, or has ended before."""
        return await self._control(task, "pause", reason, by)

    @verb
    async def interrupt(self, task: Ref, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """Stop what runs now; the task can be resumed. Returns when it has stopped."""
        return await self._control(task, "interrupt", reason, by)

    @verb
    async def cancel(self, task: Ref, *, reason: str | None = None, by: str | None = None) -> RunResult:
        """End a task for good; returns when its last effect has ended. Does nothing to a task that has ended."""
        return await self._control(task, "cancel", reason, by)

    async def _control(self, task: Ref, kind: str, reason: str | None, by: str | None) -> RunResult:
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        if row.state not in END_STATES:
            item_id = await self._driving.command(task_id, kind, {"reason": reason, "by": by})
            await self._driving.carried_out(task_id, item_id)
        return await self.result(task_id)

    @verb
    async def settle(
        self, task: Ref, request_id: str, verdict: Happened | NotHappened, *, by: str | None = None
    ) -> None:
        """Say whether a call whose outcome is unknown took effect; the task goes on when it is next driven.

        Args:
            task: the task, or its id.
            request_id: as `pending` names it.
            verdict: `Happened(output)`, or `NotHappened()`: then the call starts (again).
            by: who says so.

        Raises:
            CallNotFound: nothing is to be settled under this id.
            AlreadyDecided: it was settled differently.
        """
        if not isinstance(verdict, (Happened, NotHappened)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"settle: verdict must be Happened(...) or NotHappened(), got {verdict!r}"
            )
        state = await self._state(task)
        if request_id not in [pending.request_id for pending in results.pending_of(state)]:
            call = state.find_call(request_id.removesuffix("-undo"))
            if call is None:
                raise CallNotFound(f"task {state.task_id} has nothing to settle under {request_id!r}")
            if isinstance(verdict, Happened) and (call.outcome == "ok" and call.output == verdict.output):
                return
            message = (
                f"task {state.task_id}: call {request_id} is settled; it is {call.outcome or call.status}"
            )
            raise AlreadyDecided(message, task_id=state.task_id)
        happened = isinstance(verdict, Happened)
        data: dict[str, Json] = {
            "request_id": request_id,
            "verdict": "happened" if happened else "not_happened",
        }
        data["output"], data["by"] = verdict.output if isinstance(verdict, Happened) else None, by
        await self._driving.command(state.task_id, "settle", data)

    # ---------------------------------------------------------------------------------- undo and fork

    @verb
    async def undo_step(
        self,
        task: Ref,
        *,
        to: int | str | None = None,
        force: bool = False,
        agent: Agent[Any] | None = None,
        context: Any = None,
        by: str | None = None,
    ) -> UndoReport:
        """Take back the last step, or all after `to`: compensate its calls, newest first, then rewind.

        Args:
            task: the task, or its id.
            to: index (from 1) or id of the last step to keep; 0 for none.
            force: rewind also what cannot be compensated, and say so.
            agent: the task's agent, if compensations run and this runner was not given it.
            context: handed to compensations.
            by: who says so.

        Raises:
            IrreversibleStep: a step holds effectful calls without `undo=`.
            StepNotFound: there is no such step, or none to take back.
            TaskFinished: the task was cancelled.
            AlreadyFinalized: newer words follow the task's in its thread.
        """
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        if row.state == "cancelled":
            raise TaskFinished(
                f"task {task_id} is cancelled, for good: fork it", task_id=task_id, state="cancelled"
            )
        async with self._driving.own(task_id) as owned:
            state = owned.state
            plan = undoing.plan(state, to, force=force, by=by)
            known = None
            if plan.needs_agent:
                known = self._driving.agent_for(row.agent, agent, task_id)
                known = agent or self._driving.version_for(state, known)
            if state.ended is not None:
                await self._driving.reopen(owned, "undo", by)
            self._driving.go_on(owned, by)
            owned.writer.record(plan.event)
            await self._driving.drive(owned, "undo", known, context)
        return undoing.report(state, plan.event)

    @verb
    async def fork(
        self,
        task: Ref,
        *,
        at: str | int | None = None,
        agent: Agent[Any] | None = None,
        input: Input | None = None,
        replace: dict[str, Json] | None = None,
        thread_id: str | None = None,
        options: RunOptions | None = None,
    ) -> Task:
        """Create a task that shares another's journal up to a point and runs nothing of it again.

        Args:
            task: the task to fork, or its id; it is not touched.
            at: a step's id (just after it) or an event's sequence number; by default the last completed step.
            agent: another agent, for another model or prompt.
            input: a user's words to go on with.
            replace: other results for calls of one step, by call id; the fork begins at that step's end.
            thread_id: the thread the fork belongs to; a new one by default.
            options: other options.

        Raises:
            ForkPointBusy: a call is begun and not ended at that point.
            StepNotFound, CallNotFound: there is no such place.
        """
        task_id = id_of(task)
        row = await self._driving.row(task_id)
        state = (await self._driving.desk.load(task_id)).state
        replaced = given.replacements(replace)
        seq = forking.fork_point(state, at, replaced)
        if thread_id is not None:
            given.thread(thread_id)
        if isinstance(at, int):
            await forking.check_rest(self._store, task_id, seq)
        if agent is not None:
            self._driving.know(agent)
        name = agent.name if agent is not None else row.agent
        fingerprint = agent.fingerprint if agent is not None else state.fingerprint
        thread = thread_id or new_id()
        kept = self._driving.kept_options(state, options)
        first: list[e.Event] = [e.TaskForked(task_id, name, thread, fingerprint, kept)]
        for call_id, value in replaced.items():
            call = state.find_call(call_id)
            first.append(e.ResultReplaced(call_id, value, call.output if call is not None else None))
        if input is not None:
            first.append(e.InputReceived(self._driving.parts.load_parts(parts_of(input))))
        fork_id = await self._write_fork(row, seq, thread, name, first)
        return await self.get_task(fork_id)

    async def _write_fork(self, row: TaskRow, seq: int, thread: str, agent: str, first: list[e.Event]) -> str:
        """Write a fork's row and first record: nothing of the parent's journal is copied or folded."""
        cut = (await self._store.read(row.task_id, after=seq - 1, upto=seq))[-1]
        now = self._driving.parts.clock()
        new = NewTask(new_id(), agent, thread, now, base=row.task_id, base_seq=seq, labels=row.labels)
        for offset, event in enumerate(first, 1):
            event.seq, event.time = seq + offset, now
        record = encode_record(first, 1, codec.branch_digest(cut.digest, seq))
        await self._driving.desk.commit(Commit(new.task_id, 1, record, new, "created", release=True))
        return new.task_id

    @verb
    async def diff(self, a: Ref, b: Ref) -> Difference:
        """Return the first step in which two tasks differ, with both values."""
        return forking.difference(await self._state(a), await self._state(b))


# --------------------------------------------------------------------------------------------- outcomes


def _outcome_of_step(state: TaskState, drive: Drive) -> TaskStepOutput:
    """Return what a drive of one step came to, or raise what kept it from completing."""
    word = results.resting_word(state)
    if drive.step_done is not None:
        return results.step_output(state, drive.step_done, word, _upcoming(state))
    step = state.step or _next_step(state)
    output = results.step_output(state, step, word, ())
    if step.status == "failed" and state.ended == "failed":
        why = state.error.message if state.error is not None else "no reason was given"
        message = f"task {state.task_id}, step {step.id} failed: {why}"
        raise StepFailed(message, task_id=state.task_id, output=output, error=state.error)
    if state.ended is not None:
        return output
    raise _parked(state, word)


def _upcoming(state: TaskState) -> tuple[StepInfo, ...]:
    if state.answered or (state.ended is not None and state.ended != "failed"):
        return ()
    step = state.step
    if step is None:
        step = _next_step(state)
        return (StepInfo(step.id, step.index, _words_to_read(state), 1, "next"),)
    info = results.step_info(step)
    return (replace(info, input=_words_to_read(state)) if step.unasked else info,)


def _words_to_read(state: TaskState) -> tuple[Content, ...]:
    """Return the words that the next request will be about."""
    read = state.step.input if state.step is not None and state.step.unasked else ()
    return (*read, *(part for received in state.unread for part in received.parts))


def _next_step(state: TaskState) -> StepState:
    """Return the step that has not begun yet."""
    index = state.steps[-1].index + 1 if state.steps else 1
    return StepState(step_id(state.branch, index), index, first_message=len(state.messages))


def _finished(state: TaskState, why: str) -> TaskFinished:
    return TaskFinished(
        f"task {state.task_id} {why}", task_id=state.task_id, state=results.resting_word(state)
    )


def _parked(state: TaskState, word: str) -> TaskParked:
    pending = results.pending_of(state)
    what = "; ".join(item.text for item in pending) or state.stop_reason or "call resume to go on"
    return TaskParked(
        f"task {state.task_id} is {word}: {what}", task_id=state.task_id, state=word, pending=pending
    )
