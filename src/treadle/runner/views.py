"""Read tasks, steps and threads, without driving a task or needing its code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Final, Literal, TypeAlias

from treadle.core.events import END_STATES
from treadle.core.graph import Graph
from treadle.core.ids import planned_step_id, step_id
from treadle.core.messages import Content, File
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.drivers import arguments
from treadle.drivers.driver import Dependencies, TaskDriver
from treadle.drivers.fork_point import no_event
from treadle.drivers.tenant_drivers import TenantDrivers
from treadle.engine.time_slice import in_slices
from treadle.errors import (
    JournalCorrupt,
    StepNotFound,
    TaskBusy,
    TaskFinished,
    TaskNotFound,
    TaskTooNew,
    ThreadNotFound,
)
from treadle.ports import JournalStore, OutputT, TaskFilter, TaskRow
from treadle.results.artifacts import artifact_named
from treadle.results.calls import ToolExecution, executions
from treadle.results.pages import TaskPage
from treadle.results.read_results import Lineage, UsageReport, usage_report
from treadle.results.run_result import RunResult, run_result
from treadle.results.states import StateWord, state_at_rest, state_of_row
from treadle.results.step_outputs import StepOutputs, TaskStepOutput, step_output
from treadle.results.steps import StepInfo, all_steps, step_info
from treadle.results.tasks import Task, TaskSummary, TaskTotals, past_snapshot, snapshot, summary, totals
from treadle.results.threads import ThreadMessages
from treadle.results.usage import figures_of, folded
from treadle.runner import audit
from treadle.runner.scope import Scope
from treadle.runner.verbs import verb

Input = str | Content | Sequence[str | Content]
Ref: TypeAlias = str | Task[OutputT] | TaskSummary
"""A task, as a snapshot or in a list, or its id."""

Role = Literal["user", "observation", "system"]
States = str | Sequence[str] | None
Moment = int | datetime | None
"""A datetime, or microseconds since 1970, UTC; None for no bound."""


LONG: Final = 200
"""Number of steps from which a task's result is computed in slices."""

STEPS_AT_ONCE: Final = 10
"""Number of steps whose executions are computed between two checks of the time."""


def id_of(task: Ref) -> str:
    """Return the id of a task, given as an object or as its id."""
    return task if isinstance(task, str) else task.task_id


class ViewVerbs:
    """The verbs that read, and the parts of the driver that every group of verbs uses."""

    def __init__(self, parts: Dependencies) -> None:
        self.scope: Scope | None = None
        """the common properties of all calls, if this runner was created by `scoped`"""

        self._clock = parts.clock
        self._load_parts = parts.load_parts
        self._memory = parts.memory
        self._options = parts.options
        self._drivers = TenantDrivers(parts)
        self._use(self._drivers.first)

    def _use(self, driver: TaskDriver) -> None:
        """Work on the tasks of a driver."""
        self._driver = driver
        self._store = driver.store
        self._cache = driver.cache
        self._owned = driver.owned
        self._ownership = driver.ownership
        self._agents = driver.agents
        self._creator = driver.creator
        self._commands = driver.commands
        self._stopper = driver.stopper

    @property
    def store(self) -> JournalStore:
        """The store of the journals."""
        return self._store

    @verb
    async def result(self, task: Ref[OutputT], *, at: int | None = None) -> RunResult[OutputT]:
        """Return the current or an earlier state of a task from its journal, without driving it.

        Args:
            task: the task, or its id.
            at: the sequence number of an event; the state is that just after it. Executions in the tasks of called
                agents are then left out.

        Raises:
            TaskNotFound: there is no such task.
            StepNotFound: it has no event `at`.
        """
        task_id = id_of(task)
        row = await self._cache.row(task_id)
        if at is not None:
            past = await self._state_at(row, at)
            typed, calls = self._agents.output_type_of(past), await _executions(past, {})
            return run_result(past, state_at_rest(past), typed, calls=calls)
        driven = row.driver is not None and row.driver.alive
        async with self._cache.reading(task_id, row) as state:
            return await self._result_of(state, state_of_row(row), driven=driven)

    async def _result_of(self, state: TaskState, state_word: StateWord, *, driven: bool = False) -> RunResult:
        below: dict[str, TaskState] = {}
        await self._load_below(state, below)
        typed, calls = self._agents.output_type_of(state), await _executions(state, below)
        return run_result(state, state_word, typed, below, driven=driven, calls=calls)

    async def _load_below(self, state: TaskState, below: dict[str, TaskState]) -> None:
        """Add the states of the tasks of called agents and of those below them; leave out unreadable ones."""
        if not state.children:
            return
        steps = all_steps(state)
        for child in [task for step in steps for call in step.calls for task in call.tasks]:
            with suppress(TaskNotFound, JournalCorrupt, TaskTooNew):
                below[child] = (await self._cache.load(child)).state
                await self._load_below(below[child], below)

    async def _tree(self, task_id: str, *, all_below: bool = False) -> AsyncIterator[TaskState]:
        """Yield the state of a task, then those of the unfinished tasks below it, or of all."""
        row = await self._cache.row(task_id)
        state = (await self._cache.load(task_id, row)).state
        yield state
        children = list(state.children) if all_below else [str(call.child) for call in state.open_children()]
        for child_id in children:
            child = await self._cache.row_or_none(child_id)
            if child is not None and (all_below or child.state not in END_STATES):
                async for below in self._tree(child_id, all_below=all_below):
                    yield below

    @verb
    async def get_task(self, task: Ref[OutputT], *, at: int | None = None) -> Task[OutputT]:
        """Return a snapshot of a task, current or earlier.

        Args:
            task: the task, or its id.
            at: the sequence number of an event: the snapshot shows the task just after it.

        Raises:
            TaskNotFound: there is no such task.
            StepNotFound: it has no event `at`.
        """
        task_id = id_of(task)
        row = await self._cache.row(task_id)
        if at is not None:
            past = await self._state_at(row, at)
            return past_snapshot(past, row, self._agents.limits_of(past))
        async with self._cache.reading(task_id, row) as state:
            return snapshot(state, row, self._agents.limits_of(state))

    @verb
    async def list_tasks(
        self,
        *,
        state: States = None,
        agent: str | None = None,
        thread_id: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        since: Moment = None,
        until: Moment = None,
        labels: dict[str, str] | None = None,
        search: str | None = None,
        roots: bool = False,
        updated_since: Moment = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of the tasks that match all these fields, newest first.

        `for` iterates over the tasks of the page, `async for` over those of later pages too. With `runner.sync` a plain
        `for` iterates over all pages.

        Args:
            state: a state, or several; `between steps` is `running` without a driver.
            agent: the name of the agent.
            thread_id: the thread.
            parent: the id of the task whose children are listed.
            forked_from: the id of the task whose forks are listed.
            since: created then or later: a datetime, or microseconds since 1970, UTC.
            until: created before that.
            labels: labels that a task has, all of them.
            search: text in the first 500 characters of the input, the answer or the error, in upper or lower case.
            roots: only tasks that are not children of others.
            updated_since: created, stopped or resumed then or later, or driven now; a datetime, or microseconds since
                1970, UTC.
            limit: the maximum number of tasks of a page, 1 to 1,000.
            cursor: the `cursor` of the previous page.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        arguments.page("list_tasks", limit, cursor)
        task_filter = TaskFilter(
            _states(state), agent, thread_id, parent, forked_from, _microseconds(since), _microseconds(until)
        )
        task_filter.labels, task_filter.limit, task_filter.cursor = labels, limit, cursor
        task_filter.roots, task_filter.updated_since = roots, _microseconds(updated_since)
        task_filter.search = None if search is None else folded(search)
        return await self._task_page(task_filter)

    async def _task_page(self, task_filter: TaskFilter) -> TaskPage:
        await self._cache.open()
        # One row more than requested tells whether there is a next page.
        rows = await self._store.rows(replace(task_filter, limit=task_filter.limit + 1))
        more = rows[task_filter.limit - 1].cursor if len(rows) > task_filter.limit else None
        rows = rows[: task_filter.limit]
        if task_filter.search is not None:
            rows = [
                row for row in rows if row.figures is not None or await self._says(row, task_filter.search)
            ]
        page = TaskPage(tuple([summary(row) for row in rows]), more)
        return page.followed_by(lambda after: self._task_page(replace(task_filter, cursor=after)))

    async def _says(self, row: TaskRow, search: str) -> bool:
        """Whether a search finds a task whose row has no text to search."""
        try:
            state = (await self._cache.load(row.task_id, row)).state
        except JournalCorrupt:
            return False
        return search in figures_of(state).text

    @verb
    async def count_tasks(
        self,
        *,
        state: States = None,
        agent: str | None = None,
        thread_id: str | None = None,
        parent: str | None = None,
        forked_from: str | None = None,
        since: Moment = None,
        until: Moment = None,
        labels: dict[str, str] | None = None,
        search: str | None = None,
        roots: bool = False,
        updated_since: Moment = None,
    ) -> TaskTotals:
        """Return the number of matching tasks by state, and their spending; the arguments are those of `list_tasks`.

        The spending of driven tasks may be up to two seconds old. A search leaves out tasks whose last driver stored no
        text to search, as early versions did.
        """
        await self._cache.open()
        task_filter = TaskFilter(
            _states(state), agent, thread_id, parent, forked_from, _microseconds(since), _microseconds(until)
        )
        task_filter.labels, task_filter.search = labels, None if search is None else folded(search)
        task_filter.roots, task_filter.updated_since = roots, _microseconds(updated_since)
        return totals(await self._store.sums(task_filter))

    @verb
    async def usage(
        self,
        *,
        since: Moment = None,
        until: Moment = None,
        by: str = "agent",
        agent: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> UsageReport:
        """Return the spending of tasks, in sums by agent, day, model or label.

        The spending of driven tasks may be up to two seconds old. A task that asked several models counts for the last.

        Args:
            since: only tasks created then or later; a datetime, or microseconds since 1970, UTC.
            until: only tasks created before that.
            by: `agent`, `day` (of their creation, UTC), `model`, or `label:NAME`.
            agent: only tasks of the agent of this name.
            labels: only tasks that have all of these labels.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        await self._cache.open()
        task_filter = TaskFilter(agent=agent, since=_microseconds(since), until=_microseconds(until))
        task_filter.labels = labels
        return usage_report(by, await self._store.usage(task_filter, by))

    @verb
    async def get_lineage(self, task: Ref, *, limit: int = 100) -> Lineage:
        """Return the relatives of a task: its parent, its children, and its forks.

        Args:
            task: the task, or its id.
            limit: the maximum number of children and of forks of the first page, 1 to 1,000.

        Raises:
            TaskNotFound: there is no such task.
        """
        arguments.page("get_lineage", limit, None)
        row = await self._cache.row(id_of(task))
        above = [
            await self._cache.row_or_none(task_id) if task_id is not None else None
            for task_id in (row.parent, row.base)
        ]
        parent, base = [summary(each) if each is not None else None for each in above]
        children = await self._task_page(TaskFilter(parent=row.task_id, limit=limit))
        forks = await self._task_page(TaskFilter(base=row.task_id, limit=limit))
        return Lineage(summary(row), parent, base, children, forks)

    async def _state_at(self, row: TaskRow, at: int) -> TaskState:
        """Return the state of a task just after an event."""
        if not 1 <= at <= row.head:
            raise no_event(row.task_id, row.head, at)
        return await self._cache.state_at(row.task_id, at)

    async def _state(self, task: Ref) -> TaskState:
        row = await self._cache.row(id_of(task))
        return (await self._cache.load(row.task_id, row)).state

    @verb
    async def get_upcoming_steps(self, task: Ref) -> tuple[StepInfo, ...]:
        """Return the steps that would run next."""
        return upcoming_steps(await self._state(task))

    @verb
    async def get_completed_steps(self, task: Ref[OutputT]) -> StepOutputs[OutputT]:
        """Return the output of each completed step of the current branch, in order."""
        row = await self._cache.row(id_of(task))
        async with self._cache.reading(row.task_id, row) as state:
            state_word, typed = state_at_rest(state), self._agents.output_type_of(state)
            each = (step_output(state, step, state_word, (), typed) for step in state.steps)
            return StepOutputs(await in_slices(each))

    @verb
    async def get_step(self, task: Ref[OutputT], step: str | int) -> TaskStepOutput[OutputT]:
        """Return the output of a step of the current branch, by id or index from 1; raise `StepNotFound`."""
        state = await self._state(task)
        for each in all_steps(state):
            if step in (each.id, each.index):
                typed = self._agents.output_type_of(state)
                return step_output(state, each, state_at_rest(state), (), typed)
        raise StepNotFound(f"task {state.task_id} has no step {step!r} on its present branch")

    @verb
    async def get_artifact(self, task: Ref, artifact_id: str) -> File:
        """Return an artifact of the current branch, with its bytes in `data` or with its `url`.

        Raises `ArtifactNotFound`. `RunResult.artifacts` has the ids.
        """
        state = await self._state(task)
        return artifact_named(all_steps(state), artifact_id, state.task_id)

    @verb
    async def get_thread(self, thread_id: str) -> ThreadMessages:
        """Return the messages of a thread, oldest first; empty if no task in it was finalized.

        A task with an unreadable journal is left out and named in `damaged` of the result. Text that a model wrote
        after reading untrusted content is labelled, and stays untrusted after an import.

        Raises:
            ThreadNotFound: the id belongs to a task.
        """
        await self._cache.open()
        thread = await self._cache.history.labelled(thread_id)
        if not thread.messages and not thread.damaged:
            await self._check_no_task(thread_id)
        return ThreadMessages(thread.messages, thread.damaged)

    async def _check_no_task(self, thread_id: str) -> None:
        """Raise `ThreadNotFound` if an id belongs to a task in another thread."""
        try:
            row = await self._store.row(thread_id)
        except TaskNotFound:
            return
        if row.thread_id != thread_id:
            raise ThreadNotFound(f"{thread_id} is a task, not a thread; its thread is {row.thread_id}")

    @verb
    async def delete_task(self, task: Ref, *, by: str | None = None) -> None:
        """Delete a task with its children; a prefix that other forks share is kept.

        Its messages stay in its thread, even if it was the last task there: `delete_thread` deletes them.

        Args:
            task: the task, or its id.
            by: the name of the caller, for the log `treadle.audit`.

        Raises:
            TaskBusy: it is driven, or is a child that its parent still needs.
        """
        task_id = id_of(task)
        await self._check_not_awaited(await self._cache.row(task_id))
        await self._ownership.release_again(task_id)
        await self._store.delete(task_id)
        self._cache.forget(task_id)
        audit.tell("delete_task", by, self.scope, task_id=task_id)

    async def _check_not_awaited(self, row: TaskRow) -> None:
        """Raise `TaskBusy` for a child that its parent still needs: without the child, the call would begin anew."""
        if row.parent is None or await self._cache.row_or_none(row.parent) is None:
            return
        state = (await self._cache.load(row.parent)).state
        if state.ended is None and any(call.child == row.task_id for call in state.open_children()):
            whose = f"task {row.task_id} is a child of task {row.parent}"
            message = f"{whose}, which waits for it: delete or cancel that one"
            raise TaskBusy(message, task_id=row.task_id)

    async def _existing(self, task: Ref) -> str:
        return (await self._cache.row(id_of(task))).task_id


def driver_of(verbs: ViewVerbs) -> TaskDriver:
    """Return the driver of a runner's tasks: for handles, and for commands that watch drives."""
    return verbs._driver  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  callers of verbs do not need it


async def _executions(state: TaskState, below: dict[str, TaskState]) -> tuple[ToolExecution, ...] | None:
    """Return the executions of a long task, computed in slices; None for a short one."""
    if len(state.steps) < LONG:
        return None
    steps = all_steps(state)
    starts = range(0, len(steps), STEPS_AT_ONCE)
    parts = (executions(state, steps[start : start + STEPS_AT_ONCE], below) for start in starts)
    return tuple(chain.from_iterable(await in_slices(parts)))


def drivers_of(verbs: ViewVerbs) -> list[TaskDriver]:
    """Return the drivers of a runner's tasks, of each tenant that it works on now."""
    return verbs._drivers.all()  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001  as above


def _states(state: States) -> tuple[str, ...] | None:
    return (state,) if isinstance(state, str) else None if state is None else tuple(state)


def _microseconds(moment: Moment) -> int | None:
    return round(moment.timestamp() * 1e6) if isinstance(moment, datetime) else moment


# --------------------------------------------------------------------------------- the next step


def upcoming_steps(state: TaskState) -> tuple[StepInfo, ...]:
    """Return the steps that would run next, with their input."""
    if state.answered or (state.ended is not None and state.ended != "failed"):
        return ()
    if state.graph is not None:
        return _upcoming(state, state.graph)
    step = state.step
    if step is None:
        step = next_step(state)
        return (StepInfo(step.id, step.index, unread_input(state), 1, "next"),)
    info = step_info(state, step)
    return (replace(info, input=unread_input(state)) if step.unasked else info,)


def _upcoming(state: TaskState, graph: Graph) -> tuple[StepInfo, ...]:
    """Return the steps that run, have failed or are planned, in order; those that may run now come first."""
    under_way = [step for step in state.under_way() if step.id not in graph.unneeded]
    begun_steps = [step_info(state, step) for step in graph.in_order(under_way)]
    planned = [node for node in graph.nodes.values() if node.status == "planned"]
    planned = [*graph.ready, *sorted(planned, key=lambda node: node.path)]
    planned = [node for node in planned if node.id not in graph.unneeded]
    unread = unread_input(state)
    if unread and not begun_steps and not planned:  # the graph begins anew
        step = next_step(state)
        return (StepInfo(step.id, step.index, unread, 1, "next"),)
    waiting = [
        StepInfo(
            node.id,
            node.index,
            unread if node.status == "ready" else (),
            1,
            "next" if node.status == "ready" else "blocked",
            node.plan.name,
            node.plan.input,
            node.after,
        )
        for node in planned
    ]
    return (*begun_steps, *waiting)


def unread_input(state: TaskState) -> tuple[Content, ...]:
    """Return the content that the next step will read."""
    read = state.step.input if state.step is not None and state.step.unasked else ()
    return (*read, *(part for received in state.unread for part in received.parts))


def next_step(state: TaskState) -> StepState:
    """Return the step that has not begun yet."""
    if state.graph is not None:
        graph = state.graph
        node = next((node for node in graph.ready if node.id not in graph.unneeded), None)
        if node is not None:
            return StepState(node.id, node.index)
        return StepState(planned_step_id(state.branch, (graph.top + 1,)), graph.highest + 1)
    index = state.steps[-1].index + 1 if state.steps else 1
    return StepState(step_id(state.branch, index), index, first_message=len(state.messages))


def finished(state: TaskState, why: str) -> TaskFinished:
    """Return the error for a verb that is called after a task's answer or end."""
    go_on = {"completed": "; undo a step or fork it to go on", "cancelled": "; fork it to go on"}
    go_on["degraded"] = go_on["completed"]
    return TaskFinished(
        f"task {state.task_id} {why}{go_on.get(state.ended or '', '')}",
        task_id=state.task_id,
        state=state_at_rest(state),
    )
