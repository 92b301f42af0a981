"""Snapshots of tasks, their summaries in lists, and their totals."""

from __future__ import annotations

from dataclasses import field, replace
from decimal import Decimal
from functools import partial
from typing import Any, Generic
from urllib.parse import quote

from treadle.core.data import frozen
from treadle.core.display import Displayed, Link, Table, View, Word, one_line
from treadle.core.events import ForkChange
from treadle.core.messages import Content, Json
from treadle.core.spending import as_dollars
from treadle.core.state import TaskState
from treadle.core.unknown_names import explains_arguments, explains_names
from treadle.policy.limits import Limits
from treadle.ports import Driver, OutputT_co, TaskFigures, TaskRow, TaskSums
from treadle.results.displays import if_repeated, labels_text, moment, parts_text
from treadle.results.states import StateWord, state_at_rest, state_of_row, state_text
from treadle.results.usage import TaskUsage, figures_of, spending_facts, usage_of


@explains_names("Task", subscript=True)
@frozen
@explains_arguments
class Task(Displayed, Generic[OutputT_co]):
    """A snapshot of a task; ask again for a newer one. `driven` is true if a process was at work on it.

    A task that is `running` and not `driven` is between steps. It goes on with its next step, or a `resume`. `tenant`
    owns the task. `head` is the number of its last event and `updated` its time. Times are microseconds since 1970,
    UTC. `driver` is the process that owns the task. `pending` is the number of requests that wait for a person, its
    caller or a ticket, without those of its children. `outcome` is the beginning of its answer or its error. `options`
    are the options that it was created with or resumed with, if they were set. `limits` are the limits that apply. If
    this process does not know the agent, they leave out the agent's own. `model` is the model that was asked last, and
    `fork_changes` are those of a fork after the events that it shares. `shared_steps` of its steps are shared, and
    `undos` counts the undos in its events.
    """

    task_id: str
    agent: str
    thread_id: str
    state: StateWord
    driven: bool
    created: int
    attempt: int
    steps: int
    input: tuple[Content, ...]
    forked_from: str | None
    forked_at: int | None
    parent: str | None
    labels: dict[str, str]
    head: int
    extra_state: Json = None
    usage: TaskUsage = field(default_factory=TaskUsage)
    tenant: str = ""
    updated: int = 0
    driver: Driver | None = None
    pending: int = 0
    outcome: str = ""
    options: Json = None
    limits: Limits | None = None
    model: str = ""
    fork_changes: tuple[ForkChange, ...] = ()
    shared_steps: int = 0
    undos: int = 0

    @property
    def state_text(self) -> str:
        """The state for people to read: `between steps` if it is `running` and no process drives it."""
        return state_text(self.state, driven=self.driven)

    def __str__(self) -> str:
        return self.task_id

    def _view(self) -> View:
        return View(
            title="Task",
            name=self.task_id,
            state=self.state_text,
            facts=(
                ("agent", self.agent),
                ("driven", self.driven),
                ("steps", self.steps),
                ("attempt", if_repeated(self.attempt)),
                ("created", moment(self.created)),
                ("thread", self.thread_id),
                ("tenant", self.tenant or None),
                ("forked from", self.forked_from),
                ("parent", self.parent),
                ("labels", labels_text(self.labels)),
                *spending_facts(self.usage),
            ),
            text=one_line(parts_text(self.input), 400),
            values=(("extra state", self.extra_state),),
        )


@frozen
class TaskTotals:
    """The number of tasks, by state, and their spending.

    `driven` counts the tasks that a process drives now. `cost` is in US dollars, of the tasks whose cost is known.
    `unpriced` is the number of the other tasks. The spending of children counts once, with their parent.
    """

    tasks: int
    states: dict[str, int]
    driven: int
    tokens: int
    cost: Decimal
    unpriced: int


@frozen
class TaskSummary(Displayed):
    """A task in a list. Times are in microseconds since 1970, UTC; `state` and `driven` are as in `Task`.

    The fields after `parent` are None or empty if they are not known. Tokens and `cost`, in US dollars, include
    children. `updated` is the time of the last event. `input` and `outcome` are cut after their first characters. The
    outcome is the answer or the error. While a task is driven, these fields may be up to two seconds old. `driver` is
    the process that owns the task. `forked_at` is the last event that it shares with the task it was forked from, and
    `fork_changes` are its changes after that. `model` is the model that was asked last. `shared_steps` and `undos` are
    as in `Task`.

    `pending` is the number of requests that wait for a person, its caller or a ticket, children included. While the
    task is driven, it is None instead of 0. `tenant` owns the task. `deleted` is true only in `changes()`, for a
    deleted task. The other fields are then those of the last time it was yielded. If it was never yielded, only its id
    and tenant are known.
    """

    task_id: str
    agent: str
    thread_id: str
    state: StateWord
    driven: bool
    created: int
    forked_from: str | None
    labels: dict[str, str]
    parent: str | None = None
    steps: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    updated: int | None = None
    input: str = ""
    outcome: str = ""
    driver: Driver | None = None
    forked_at: int | None = None
    pending: int | None = None
    tenant: str = ""
    deleted: bool = False
    model: str = ""
    fork_changes: tuple[ForkChange, ...] = ()
    shared_steps: int = 0
    undos: int = 0

    @property
    def state_text(self) -> str:
        """The state for people to read: `between steps` if it is `running` and no process drives it, or `deleted`."""
        return "deleted" if self.deleted else state_text(self.state, driven=self.driven)

    def _view(self) -> View:
        facts = (
            ("agent", self.agent),
            ("driven", self.driven),
            ("created", moment(self.created)),
            ("thread", self.thread_id),
            ("tenant", self.tenant or None),
            ("forked from", self.forked_from),
            ("parent", self.parent),
            ("labels", labels_text(self.labels)),
        )
        return View(title="TaskSummary", name=self.task_id, state=self.state_text, facts=facts)


def tasks_table(title: str, tasks: tuple[TaskSummary, ...], server: str | None = None) -> Table:
    """Return tasks as a table; the URL of their server makes links to its page."""
    columns = ("task", "agent", "state", "driven", "created", "thread", "labels")
    return Table(title, columns, tasks, partial(_task_row, server))


def _task_row(server: str | None, task: TaskSummary) -> tuple[Any, ...]:
    task_id = task.task_id if server is None else Link(task.task_id, page_address(server, task.task_id))
    driven = "yes" if task.driven else ""
    state, created = Word(task.state_text), moment(task.created)
    return task_id, task.agent, state, driven, created, task.thread_id, labels_text(task.labels)


def page_address(server: str, task_id: str) -> str:
    """Return the address of a task in the inspector of the server at a URL."""
    return f"{server}/#/t/{quote(task_id, safe='')}"


def summary(row: TaskRow) -> TaskSummary:
    """Return the public form of a row."""
    driven = row.driver is not None and row.driver.alive
    return TaskSummary(
        row.task_id,
        row.agent,
        row.thread_id,
        state_of_row(row),
        driven,
        row.created,
        row.base,
        row.labels,
        row.parent,
        driver=row.driver,
        forked_at=row.base_seq if row.base is not None else None,
        tenant=row.tenant,
        **_figures(row.figures),
    )


def _figures(figures: TaskFigures | None) -> dict[str, Any]:
    if figures is None:
        return {}
    cost = None if figures.cost is None else as_dollars(figures.cost)
    names = ("steps", "input_tokens", "output_tokens", "updated", "input", "outcome", "pending")
    names += ("model", "fork_changes", "shared_steps", "undos")
    return {"cost": cost, **{name: getattr(figures, name) for name in names}}


def totals(sums: dict[str, TaskSums]) -> TaskTotals:
    """Return the totals for the sums of a store."""
    total = TaskSums()
    for part in sums.values():
        total.add(part)
    states = {state: part.tasks for state, part in sorted(sums.items())}
    return TaskTotals(total.tasks, states, total.driven, total.tokens, as_dollars(total.cost), total.unpriced)


def state_value(state: TaskState) -> Json:
    """Return a copy of the `extra_state` of a task; None if it has none."""
    return state.extra_state.value() if state.extra_state is not None else None


def snapshot(state: TaskState, row: TaskRow, limits: Limits) -> Task[Any]:
    """Return a snapshot of a task."""
    driven = row.driver is not None and row.driver.alive
    task = _task(state, state_of_row(row), driven, row.created, row.labels, row.tenant, limits)
    return replace(task, driver=row.driver)


def past_snapshot(state: TaskState, row: TaskRow, limits: Limits) -> Task[Any]:
    """Return a snapshot of a task as of an earlier event."""
    return _task(state, state_at_rest(state), False, row.created, row.labels, row.tenant, limits)


def driven_snapshot(state: TaskState, labels: dict[str, str], tenant: str, limits: Limits) -> Task[Any]:
    """Return a snapshot of a task that this process is about to drive."""
    return _task(state, state_at_rest(state), True, state.created, dict(labels), tenant, limits)


def _task(
    state: TaskState,
    display_state: StateWord,
    driven: bool,
    created: int,
    labels: dict[str, str],
    tenant: str,
    limits: Limits,
) -> Task[Any]:
    figures = figures_of(state)
    return Task(
        state.task_id,
        state.agent,
        state.thread,
        display_state,
        driven,
        created,
        state.attempt,
        len(state.steps),
        state.input,
        state.forked_from,
        state.fork_seq or None,
        state.parent,
        labels,
        state.seq,
        state_value(state),
        usage_of(state),
        tenant,
        figures.updated,
        pending=figures.pending or 0,
        outcome=figures.outcome,
        options=state.options,
        limits=limits,
        model=state.model,
        fork_changes=figures.fork_changes,
        shared_steps=figures.shared_steps,
        undos=figures.undos,
    )
