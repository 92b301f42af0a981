"""Undo with compensation, forks, and the first difference between two tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, overload

from treadle.agents.agent import Agent
from treadle.core import codec
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.events import END_STATES
from treadle.core.journal import check_format, check_known, unfold
from treadle.core.messages import Json
from treadle.core.state import TaskState
from treadle.drivers import fork_point
from treadle.drivers.arguments import parts_of
from treadle.drivers.commit import commit
from treadle.drivers.continuing import lift_stop, options_of_fork, reopen
from treadle.drivers.random_ids import new_id
from treadle.engine import undo_plan
from treadle.engine.journal_writer import encode_record
from treadle.engine.options import RunOptions
from treadle.engine.results import Difference, Task, UndoReport
from treadle.errors import ChildTask, TaskBusy, TaskFinished, TaskStateError
from treadle.ports import Commit, ContextT, NewTask, OutputT, TaskRow
from treadle.runner.verbs import verb
from treadle.runner.views import Input, Ref, ViewVerbs, id_of


@frozen
class _UndoRequest:
    """What a caller wants undone; see `UndoForkVerbs.undo_step`."""

    to: int | str | None
    step: int | str | None
    force: bool
    by: str | None

    def plan(self, state: TaskState) -> undo_plan.UndoPlan:
        """Return what to record for it."""
        return undo_plan.plan(state, self.to, step=self.step, force=self.force, by=self.by)

    def document(self) -> dict[str, Json]:
        """Return it as the data of a command."""
        return {"to": self.to, "step": self.step, "force": self.force, "by": self.by}


class UndoForkVerbs(ViewVerbs):
    """The verbs that undo steps, and fork and compare tasks."""

    @verb
    async def undo_step(
        self,
        task: Ref,
        *,
        to: int | str | None = None,
        step: int | str | None = None,
        force: bool = False,
        agent: Agent[ContextT, Any] | None = None,
        context: ContextT | None = None,
        by: str | None = None,
    ) -> UndoReport:
        """Take back the last step, or another, and all that came of it: compensate calls, newest first, then rewind.

        A task that is being driven, here or elsewhere, is undone by its driver: it lets the calls in flight end,
        carries the undo out, and releases the task.

        Args:
            task: the task, or its id.
            to: index (from 1) or id of the last step to keep; 0 for none.
            step: index or id of the step to take back, with what came of it: its siblings stay.
            force: rewind also what cannot be compensated, and say so.
            agent: the task's agent, if compensations run and this runner was not given it.
            context: handed to compensations.
            by: the name of the caller, for the record.

        Raises:
            IrreversibleStep: a step holds effectful calls without `undo=`.
            StepNotFound: there is no such step, or none to take back.
            TaskFinished: the task was cancelled.
            AlreadyFinalized: newer messages follow the task's in its thread.
            ChildTask: the task is a child, and a step of its parent has its answer: undo that step first.
        """
        task_id = id_of(task)
        request = _UndoRequest(to, step, force, by)
        while True:
            row = await self._cache.row(task_id)
            awaited_by = await self._awaited_by(row)
            if row.state == "cancelled":
                raise _cancelled(task_id)
            if not self._owned.is_driven(row):
                if row.state in END_STATES and awaited_by is not None:
                    # Its parent is about to read its result: that has to wait.
                    async with self._ownership.acquire(awaited_by):
                        await self._awaited_by(row)
                        return await self._undo_at_rest(row, request, agent, context)
                with suppress(TaskBusy):  # another driver was faster
                    return await self._undo_at_rest(row, request, agent, context)
            report = await self._undo_by_its_driver(row, request)
            if report is not None:
                return report

    async def _awaited_by(self, row: TaskRow) -> str | None:
        """Return the parent that waits for a child; None for a task without one, or with one that has given it up.

        A parent gives a child up when it undoes the step of the call, and when it tries the call again. Raises
        `ChildTask` if the parent has the child's result, which an undo would make untrue.
        """
        if row.parent is None:
            return None
        called = (await self._cache.load(row.task_id, row)).state.parent_call
        call = (await self._cache.load(row.parent)).state.find_call(str(called))
        if call is None or call.child != row.task_id:
            return None
        if call.status == "ended":
            raise ChildTask(
                f"task {row.task_id} is a child of task {row.parent}, whose step {call.step} has its result: undo that "
                f"step of task {row.parent} first; to try another path from here, fork this one",
                task_id=row.task_id,
                parent=row.parent,
            )
        return row.parent

    async def _undo_at_rest(
        self, row: TaskRow, request: _UndoRequest, agent: Agent[Any] | None, context: Any
    ) -> UndoReport:
        task_id = row.task_id
        async with self._ownership.acquire(task_id) as owned:
            state = owned.state
            if state.ended == "cancelled":  # just before it was acquired here
                raise _cancelled(task_id)
            plan = request.plan(state)
            code = None
            if plan.needs_agent:
                registered = self._agents.of(row.agent, agent, task_id)
                code = self._agents.with_task(state, registered, agent)
            if code is not None:
                context = await self._driver.contexts.of_drive(owned, code, context, needed=False)
            if state.ended is not None:
                await reopen(self._store, owned, "undo", request.by, alone=False)
            lift_stop(owned, request.by)
            owned.writer.record(plan.event)
            await self._driver.drive(owned, "undo", code, context)
        report = undo_plan.report(state, plan.event)
        if not report.complete and owned.state.ended == "cancelled":
            raise _cancelled(task_id)
        return report

    async def _undo_by_its_driver(self, row: TaskRow, request: _UndoRequest) -> UndoReport | None:
        """Have a task's driver undo; None if it has left, or lacks the code of a compensation."""
        task_id = row.task_id
        item_id = await self._commands.send(task_id, "undo", request.document(), row=row)
        answer = await self._commands.answer(task_id, item_id, after=row.head)
        if isinstance(answer, e.CommandRejected):
            before = await fork_point.state_at(self._store, task_id, answer.seq - 1)
            if before.cancelling:
                raise _cancelled(task_id)
            request.plan(before)  # raises the error that explains the rejection best
            raise TaskStateError(f"task {task_id}: {answer.reason}", task_id=task_id)
        await self._commands.carried_out(task_id, item_id)
        answer = answer or await self._commands.answer(task_id, item_id, after=row.head)
        if not isinstance(answer, e.UndoRequested):
            return None
        report = undo_plan.report(await self._state(task_id), answer)
        return report if report.complete or report.problem is not None else None

    @overload
    async def fork(
        self,
        task: Ref,
        *,
        agent: Agent[Any, OutputT],
        at: str | int | None = ...,
        input: Input | None = ...,
        replace: dict[str, Json] | None = ...,
        thread_id: str | None = ...,
        options: RunOptions | None = ...,
    ) -> Task[OutputT]: ...
    @overload
    async def fork(
        self,
        task: Ref[OutputT],
        *,
        agent: None = ...,
        at: str | int | None = ...,
        input: Input | None = ...,
        replace: dict[str, Json] | None = ...,
        thread_id: str | None = ...,
        options: RunOptions | None = ...,
    ) -> Task[OutputT]: ...
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
    ) -> Task[Any]:
        """Create a task that shares another's journal up to a point and runs nothing of it again.

        Args:
            task: the task to fork, or its id; it is not touched.
            at: a step's id (just after it) or an event's sequence number; by default the last completed step, or, of a
                fork that has completed none, how it was made.
            agent: another agent, for another model or prompt.
            input: a user's message to go on with.
            replace: other results for calls of one step, by call id; the fork begins at that step's end.
            thread_id: the thread the fork belongs to; a new one by default.
            options: other options.

        Raises:
            ForkPointBusy: a call is begun and not ended at that point, or goes on in the background.
            TaskTooNew: a newer version of Treadle wrote what this one does not know into the task's journal.
            StepNotFound, CallNotFound: there is no such place.
        """
        task_id = id_of(task)
        row = await self._cache.row(task_id)
        check_format(task_id, row.format)
        state = (await self._cache.load(task_id)).state
        check_known(state)
        replaced = replace or {}
        point = await fork_point.fork_point(self._store, state, at, replaced)
        seq = point.seq
        if isinstance(at, int) or state.tickets:
            await fork_point.check_rest(self._store, task_id, seq)
        if agent is not None:
            self._agents.register(agent)
        name = agent.name if agent is not None else row.agent
        # After handoffs, the fork goes on with the agent that the task was with at that point.
        same = "" if state.versions else state.fingerprint
        fingerprint = agent.fingerprint if agent is not None else same
        thread = thread_id or new_id()
        kept = options_of_fork(state, options)
        first: list[e.Event] = [e.TaskForked(task_id, name, thread, fingerprint, kept)]
        first += point.then
        for call_id, value in replaced.items():
            call = state.find_call(call_id)
            first.append(e.ResultReplaced(call_id, value, call.output if call is not None else None))
        if input is not None:
            first.append(e.InputReceived(self._load_parts(parts_of(input))))
        fork_id = await self._write_fork(row, seq, thread, name, first)
        return await self.get_task(fork_id)

    async def _write_fork(self, row: TaskRow, seq: int, thread: str, agent: str, first: list[e.Event]) -> str:
        """Write a fork's row and first record: nothing of the parent's journal is copied or folded."""
        cut = (await self._store.read(row.task_id, after=seq - 1, upto=seq))[-1]
        ((_, shared),) = unfold(row.task_id, [cut], after=seq - 1, previous=None)
        now = max(shared[-1].time, self._clock())  # the clock may have been set back since
        new = NewTask(new_id(), agent, thread, now, base=row.task_id, base_seq=seq, labels=row.labels)
        for offset, event in enumerate(first, 1):
            event.seq, event.time = seq + offset, now
        record = encode_record(first, 1, codec.branch_digest(cut.digest, seq))
        await commit(self._store, Commit(new.task_id, 1, record, new, "created", release=True))
        return new.task_id

    @verb
    async def diff(self, a: Ref, b: Ref) -> Difference:
        """Return the first step in which two tasks differ, with both values."""
        return fork_point.difference(await self._state(a), await self._state(b))


def _cancelled(task_id: str) -> TaskFinished:
    return TaskFinished(f"task {task_id} is cancelled, for good: fork it", task_id=task_id, state="cancelled")
