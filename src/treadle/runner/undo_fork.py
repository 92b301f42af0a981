"""Undo steps with compensation, and find the first difference between two tasks."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from dataclasses import replace as with_fields
from typing import Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.events import END_STATES
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json, may_leave_thread
from treadle.core.state import TaskState
from treadle.drivers import fork_point
from treadle.drivers.commands import CarriedOut, of_another
from treadle.drivers.continuing import lift_stop, reopen
from treadle.drivers.owned_tasks import OwnedTask
from treadle.drivers.ownership import check_unmoved
from treadle.engine import undo_plan
from treadle.engine.undo_plan import harmless_children
from treadle.errors import (
    AlreadyFinalized,
    ChildTask,
    ConfigurationError,
    NotFound,
    TaskBusy,
    TaskFinished,
    TaskNotFound,
    TaskStateError,
)
from treadle.ports import ContextT, TaskRow
from treadle.results.reports import Difference, UndoReport
from treadle.runner.forking import ForkVerbs
from treadle.runner.verbs import verb
from treadle.runner.views import Ref, id_of


@frozen
class _UndoRequest:
    """A caller's request for an undo; see `UndoForkVerbs.undo_step`."""

    to: int | str | None
    step: int | str | None
    force: bool
    by: str | None
    expect: int | None
    command_id: str | None

    def plan(self, state: TaskState, harmless: Container[str] = ()) -> undo_plan.UndoPlan:
        return undo_plan.plan(state, self.to, step=self.step, force=self.force, by=self.by, harmless=harmless)

    def document(self) -> dict[str, Json]:
        """Return the data of the command."""
        data: dict[str, Json] = {"to": self.to, "step": self.step, "force": self.force, "by": self.by}
        return data if self.expect is None else {**data, "expect": self.expect}


class UndoForkVerbs(ForkVerbs):
    """The verbs that undo steps, fork tasks and compare them."""

    @verb
    async def undo_step(
        self,
        task: Ref,
        *,
        to: int | str | None = None,
        step: int | str | None = None,
        force: bool = False,
        dry_run: bool = False,
        agent: Agent[ContextT, Any] | None = None,
        context: ContextT | None = None,
        expect: int | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> UndoReport:
        """Undo the last step, or another, with all its dependents: compensate calls, newest first, then rewind.

        If a driver has the task, here or elsewhere, it waits for the calls in flight, carries the undo out, and
        releases the task.

        Args:
            task: the task, or its id.
            to: index (from 1) or id of the last step to keep; 0 for none.
            step: index or id of the step to take back, with its dependents; its siblings stay.
            force: rewind also calls that cannot be compensated, and record them.
            dry_run: change nothing, and report the effects of the undo. `complete` means that only a failing
                compensation could stop it; else `problem` names the obstacle.
            agent: the task's agent, if compensations run and this runner was not given it.
            context: passed to compensations.
            expect: the last event that the caller saw, `Task.head`. Nothing is undone unless it is still the last.
            by: the name of the caller, for the record.
            command_id: an id of your own, 1 to 200 characters. A repeat undoes nothing.

        Raises:
            TaskMoved: the task's journal does not end with the event in `expect`.
            IrreversibleStep: a step holds effectful calls without `undo=`.
            StepNotFound: there is no such step, or none to take back.
            TaskFinished: the task was cancelled.
            AlreadyFinalized: newer messages follow the task's in its thread.
            ChildTask: the task is a child, and a step of its parent has its answer: undo that step first.
        """
        task_id = id_of(task)
        if dry_run:
            return await self._forecast(task_id, to, step, force, expect)
        request = _UndoRequest(to, step, force, by, expect, command_id)

        async def undone(event: e.Event) -> UndoReport:
            assert isinstance(event, e.UndoRequested), "no other kind is asked for"
            if not await self._is_of(task_id, request, event):
                raise of_another(task_id, command_id, event)
            await self._commands.stopped(task_id)
            return await self._report_of(task_id, event)

        return await self._commands.once(
            task_id,
            command_id,
            (e.UndoRequested,),
            lambda: self._undo(task_id, request, agent, context),
            undone,
        )

    async def _forecast(
        self, task_id: str, to: int | str | None, step: int | str | None, force: bool, expect: int | None
    ) -> UndoReport:
        """Return the report of a dry run; raise the errors of `undo_step`."""
        row = await self._cache.row(task_id)
        state = (await self._cache.load(task_id, row)).state
        check_unmoved(task_id, state.seq, expect)
        if state.ended is not None:
            await self._awaited_by(row)
        if state.ended == "cancelled":
            raise _cancelled(task_id)
        driven, harmless = self._owned.is_driven(row), await harmless_children(self._store, state)
        report = undo_plan.forecast(state, to, force=force, driven=driven, step=step, harmless=harmless)
        if report.complete and state.thread_version:  # an undo checks its own problems first
            _, members = await self._store.thread(state.thread)
            at = next((at for at, each in enumerate(members) if each.task_id == task_id), len(members))
            later = [each.covers for each in members[at + 1 :]]
            if not may_leave_thread(state.thread_version, state.covers, later):
                raise AlreadyFinalized(
                    f"newer messages follow those of task {task_id} in thread {state.thread!r}: fork it instead",
                    task_id=task_id,
                )
        return report

    async def _undo(
        self, task_id: str, request: _UndoRequest, agent: Agent[Any] | None, context: Any
    ) -> UndoReport:
        while True:
            row = await self._cache.row(task_id)
            awaited_by = await self._awaited_by(row)
            if row.state == "cancelled":
                raise _cancelled(task_id)
            if not self._owned.is_driven(row):
                if row.state in END_STATES and awaited_by is not None:
                    # Its parent is about to read its result, which must wait.
                    async with self._ownership.acquire(awaited_by):
                        await self._awaited_by(row)
                        return await self._undo_at_rest(row, request, agent, context)
                with suppress(TaskBusy):  # another driver was faster
                    return await self._undo_at_rest(row, request, agent, context)
            report = await self._undo_by_its_driver(row, request)
            if report is not None:
                return report
            if (await self._state(task_id)).undo is not None:
                request = with_fields(request, expect=None)  # its driver has begun the undo

    async def _awaited_by(self, row: TaskRow) -> str | None:
        """Return the parent that waits for a child; None without one, or if the parent has given the child up.

        A parent gives a child up if it undoes the step of the call or tries the call again. Raises `ChildTask` if the
        parent has the child's result, which an undo would contradict.
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
                f"step of task {row.parent} first, or fork this task",
                task_id=row.task_id,
                parent=row.parent,
            )
        return row.parent

    async def _undo_at_rest(
        self, row: TaskRow, request: _UndoRequest, agent: Agent[Any] | None, context: Any
    ) -> UndoReport:
        task_id = row.task_id
        async with self._ownership.acquire(task_id, expect=request.expect) as owned:
            state = owned.state
            if state.ended == "cancelled":  # just before it was acquired here
                raise _cancelled(task_id)
            inbox = await self._note(owned, request)
            plan = request.plan(state, await harmless_children(self._store, state))
            plan.event.inbox = inbox
            code = None
            if plan.needs_agent:
                registered = self._agents.of(row.agent, agent, task_id)
                code = self._agents.with_task(state, registered, agent)
            if code is not None:
                context = await self._driver.contexts.of_drive(owned, code, context, needed=False)
            if state.ended is not None:
                await reopen(self._store, owned, "undo", request.by, alone=False)
            lift_stop(owned, request.by)
            owned.writer.record(plan.event, inbox)
            await self._driver.drive(owned, "undo", code, context)
        report = undo_plan.report(state, plan.event)
        if not report.complete and owned.state.ended == "cancelled":
            raise _cancelled(task_id)
        return report

    async def _note(self, owned: OwnedTask, request: _UndoRequest) -> str | None:
        """Remember the id of an undo's command; raise `CarriedOut` if the undo was completed before."""
        try:
            return await self._commands.note(owned, request.command_id, sent_as="undo")
        except CarriedOut:
            if owned.state.undo is None:
                raise
            return None  # it has begun, and goes on

    async def _is_of(self, task_id: str, request: _UndoRequest, event: e.UndoRequested) -> bool:
        """Whether a repeated request asks for the undo that an event began; it may add force."""
        before = await fork_point.state_at(self._store, task_id, event.seq - 1)
        try:
            plan = with_fields(request, force=True).plan(before)
        except (ConfigurationError, NotFound, TaskStateError):
            return False
        return (plan.event.to, plan.event.steps) == (event.to, event.steps)

    async def _report_of(self, task_id: str, request: e.UndoRequested) -> UndoReport:
        """Return the report of an undo that may have ended earlier."""
        state = await self._state(task_id)
        records = await self._store.read(task_id, after=request.seq)
        for _, event in events_with_epochs(task_id, records, after=request.seq, previous=None):
            if isinstance(event, e.Rewound):
                state = await self._cache.state_at(task_id, event.seq)
                break
        return undo_plan.report(state, request)

    async def _undo_by_its_driver(self, row: TaskRow, request: _UndoRequest) -> UndoReport | None:
        """Ask a task's driver to carry the undo out; None if it has left or lacks the code of a compensation."""
        task_id = row.task_id
        try:
            item_id = await self._commands.send(
                task_id, "undo", request.document(), row=row, command_id=request.command_id
            )
        except CarriedOut:
            await self._commands.stopped(task_id)
            if (await self._state(task_id)).undo is None:
                raise
            return None  # it has begun, and goes on
        answer = await self._commands.answer(task_id, item_id, after=row.head)
        if isinstance(answer, e.CommandRejected):
            check_unmoved(task_id, answer.seq - 1, request.expect)
            before = await fork_point.state_at(self._store, task_id, answer.seq - 1)
            if before.cancelling:
                raise _cancelled(task_id)
            harmless = await harmless_children(self._store, before)
            request.plan(before, harmless)  # raises the most precise error
            raise TaskStateError(f"task {task_id}: {answer.reason}", task_id=task_id)
        await self._commands.carried_out(task_id, item_id)
        answer = answer or await self._commands.answer(task_id, item_id, after=row.head)
        if not isinstance(answer, e.UndoRequested):
            return None
        report = undo_plan.report(await self._state(task_id), answer)
        return report if report.complete or report.problem is not None else None

    @verb
    async def diff(self, a: Ref, b: Ref) -> Difference:
        """Return the differences between two tasks: the first one with both versions, and those of all steps by name.

        Args:
            a: a task, or its id.
            b: the task to compare it with, or its id.

        Raises:
            TaskNotFound: there is no such task.
        """
        first, second = await self._state(a), await self._state(b)
        chains = [await self._origins(state) for state in (first, second)]
        return fork_point.difference(first, second, fork_point.shared_events(*chains))

    async def _origins(self, state: TaskState) -> list[tuple[str, int]]:
        """Return a task and those that it was forked from, the nearest first, each with its events in the task."""
        origins, base, seq = [(state.task_id, state.seq)], state.forked_from, state.fork_seq
        with suppress(TaskNotFound):
            while base is not None:
                origins.append((base, seq))
                row = await self._store.row(base, deleted=True)
                base, seq = row.base, min(seq, row.base_seq)
        return origins


def _cancelled(task_id: str) -> TaskFinished:
    return TaskFinished(f"task {task_id} is cancelled, for good: fork it", task_id=task_id, state="cancelled")
