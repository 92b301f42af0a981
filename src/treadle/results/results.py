"""The public results: results, snapshots of tasks and steps, reports. They are read-only and made from the state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, cast

from treadle.core import events as e
from treadle.core import origins
from treadle.core.calls_in_text import text_calls_warning
from treadle.core.checks import Check
from treadle.core.children import SpentBy, by_agent
from treadle.core.data import frozen, set_field
from treadle.core.display import Displayed, Table, View, Word, money, one_line, seconds
from treadle.core.ids import approval_id, undo_id
from treadle.core.messages import Content, File, Image, Json, Message, Messages, Text, ToolResult
from treadle.core.observation import as_text
from treadle.core.questions import Question
from treadle.core.refused_uses import refuses
from treadle.core.rules.handoffs import agent_of
from treadle.core.spending import as_dollars
from treadle.core.state import TaskState, TicketExpiry, Timer
from treadle.core.steps import CallState, FailedChild, Sleep, StepState
from treadle.core.tracebacks import cause_of
from treadle.core.unknown_names import explains_arguments, explains_names
from treadle.errors import (
    GuardrailStopped,
    TaskCancelled,
    TaskEndedBadly,
    TaskFailed,
    TaskInterrupted,
    TaskUnfinished,
)
from treadle.policy.budget import own_spending
from treadle.ports import BETWEEN_STEPS, Driver, OutputT_co, TaskFigures, TaskRow, TaskSums
from treadle.results.artifacts import Artifact, artifacts_of, sources_of
from treadle.results.caller_tools import names_of

if TYPE_CHECKING:
    from treadle.agents.output import OutputType

_NO_TASKS: Final[Mapping[str, TaskState]] = {}

StateWord = Literal[
    "created",
    "running",
    "answered",
    "completed",
    "degraded",
    "failed",
    "cancelled",
    "paused",
    "waiting",
    "interrupted",
]


@frozen
class DamagedTurn:
    """A member of a thread that cannot be read; its messages are left out.

    Args:
        task_id: the task.
        seq: the first event of its journal that cannot be read.
        reason: the problem with that event.
    """

    task_id: str
    seq: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@refuses(call="write `result.usage`, without brackets")
@explains_names("TaskUsage", subscript=True)
@frozen
class TaskUsage(Displayed):
    """The spending of a task, over all its attempts and branches.

    `cached_tokens` and `cache_write_tokens` are part of the input, `reasoning_tokens` of the output. `estimated` is
    true if a provider reported no usage. `cost` is in US dollars, None if some of it is not known: `unpriced` names the
    models without a price. `per_agent` has the usage of each agent that took part.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    estimated: bool = False
    per_agent: dict[str, TaskUsage] = field(default_factory=dict[str, "TaskUsage"])
    cache_write_tokens: int = 0
    cost: Decimal | None = None
    unpriced: tuple[str, ...] = ()

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def _view(self) -> View:
        facts = (
            ("tokens", self.total_tokens),
            ("input", self.input_tokens),
            ("output", self.output_tokens),
            ("cached", self.cached_tokens),
            ("reasoning", self.reasoning_tokens),
            ("model calls", self.model_calls),
            ("tool calls", self.tool_calls),
            ("cost", money(self.cost)),
            ("estimated", self.estimated),
        )
        columns = ("agent", "tokens", "model calls", "tool calls", "cost")
        agents = tuple(self.per_agent.items()) if len(self.per_agent) > 1 else ()
        tables = (Table("agents", columns, agents, _agent_row),) if agents else ()
        return View(title="TaskUsage", facts=facts, tables=tables)


def _usage(
    spent: StepState | TaskState | SpentBy,
    model_calls: int,
    tool_calls: int,
    per_agent: dict[str, TaskUsage] | None = None,
) -> TaskUsage:
    """Return the usage of a step or a task."""
    tokens = spent.usage
    return TaskUsage(
        tokens.input_tokens,
        tokens.output_tokens,
        tokens.cached_tokens,
        tokens.reasoning_tokens,
        model_calls,
        tool_calls,
        tokens.estimated,
        cache_write_tokens=tokens.cache_write_tokens,
        cost=None if spent.unpriced else as_dollars(spent.cost),
        unpriced=spent.unpriced,
        per_agent=per_agent or {},
    )


def usage_of(state: TaskState) -> TaskUsage:
    """Return the usage of a task with all tasks below it, and of each agent that took part.

    For a child that runs or was killed, the figures are those in its parent's journal, from when it last stopped.
    """
    own_usage = _usage(state, state.model_calls, state.tool_calls)
    if not state.children and not state.versions:
        return _usage(state, state.model_calls, state.tool_calls, {state.agent: own_usage})
    below = [part for parts in state.children.values() for part in parts]
    parts = by_agent([*own_spending(state, state.tool_calls), *below])
    total = parts[0]
    for part in parts[1:]:
        total += part
    usage_by_agent = {part.agent: _usage(part, part.model_calls, part.tool_calls) for part in parts}
    return _usage(total, total.model_calls, total.tool_calls, usage_by_agent)


@explains_names("ToolExecution", subscript=True)
@frozen
class ToolExecution(Displayed):
    """One tool call and its outcome; `latency` in seconds, None if it never started or has not ended.

    `agent` made the call; `depth` is the number of agents above it, and `path` names them. `task_id` is that agent's
    task: `call_id` is unique within it. `rewritten` are the arguments as middleware changed them, and `report` lists
    the other actions of middleware. `host` is where the tool's function ran; None if it ran in the driver's process or
    not at all.
    """

    name: str
    call_id: str
    arguments: dict[str, Json]
    outcome: e.Outcome | None
    output: Json
    error: e.Failure | None
    latency: float | None
    agent: str
    attempt: int = 1
    depth: int = 0
    path: tuple[str, ...] = ()
    display: str | None = None
    task_id: str = ""
    rewritten: dict[str, Json] | None = None
    report: e.CallReport | None = None
    host: str | None = None

    def _view(self) -> View:
        answered_by = self.report.answered_by if self.report is not None else None
        return View(
            title="ToolExecution",
            name=self.name,
            state=self.outcome or "open",
            facts=(
                ("call", self.call_id),
                ("arguments", self.arguments),
                ("rewritten", self.rewritten),
                ("answered_by", answered_by),
                ("host", self.host),
                ("took", seconds(self.latency)),
                ("attempt", _if_repeated(self.attempt)),
            ),
            text=_error_text(self.error) or (output_text(self.output) if self.output is not None else ""),
            values=(("arguments", self.arguments),),
        )


@frozen
class SubagentExecution(Displayed):
    """One call of an agent, which ran as the task `task_id`, and its outcome.

    `outcome` is None until it has ended. `usage` is the spending of its task and all tasks below it, as far as it is
    known here; `latency` in seconds, from its first start to its end.
    """

    name: str
    task_id: str
    call_id: str
    input: str
    outcome: e.Outcome | None
    output: Json
    error: e.Failure | None
    latency: float | None
    usage: TaskUsage
    depth: int = 1
    path: tuple[str, ...] = ()

    def _view(self) -> View:
        return View(
            title="SubagentExecution",
            name=self.name,
            state=self.outcome or "open",
            facts=(("task", self.task_id), ("took", seconds(self.latency)), *_spent(self.usage)),
            values=(("input", self.input), ("output", self.output), ("error", _error_text(self.error))),
        )


UNSETTLED: Final = ("lost", "unresolved")
"""The statuses of calls with unknown outcomes, until they are settled."""

FOR_PEOPLE: Final = ("approval", "question", "settlement")
"""The kinds of `Pending` that a person decides with a verb, on the task or on any task above it."""

OUTSIDE: Final = (*FOR_PEOPLE, "call", "background")
"""The kinds of `Pending` in `list_pending`: also results from the caller of a task and from holders of tickets."""


@explains_names("Pending")
@frozen
class Pending(Displayed):
    """An open request of a task: an approval, an answer, a settlement, a result or a time that it waits for.

    For an `approval`, `arguments` are exactly those that would be executed and `digest` is their digest. `rule` is the
    id of the rule that asks, `reason` its reason, and `preview` the tool's description of the effect. `expires` is when
    the request is denied unanswered, in microseconds since 1970, UTC. `argument` names one that the approver must fill
    in. With `every_call` an approval covers this call alone. With `same` an approval for the task covers only calls in
    which these arguments are the same. `untrusted` are the origins of the untrusted content that the model had read
    when it was asked, such as `tool:read_mail`.
    For a `question`, `text` is the question and `schema` the JSON schema of an answer. If `has_default`, `default` is
    the answer at `expires`. `tool` and `arguments` are empty if a step function asks.
    For a `settlement`, `idempotency_key` is the key of the call: look it up in the service that the tool calls. For a
    `timer`, `due` is when the task may go on, in microseconds since 1970, UTC. For a stopped `subagent`, `request_id`
    is the id of its task; decide its requests there. For a `request` to a model that a policy asks about, `request_id`
    is the id of its step or of its function's request: `resume` sends it, `cancel` does not.
    For a call in the `background`, `request_id` is its id, `expires` when its ticket expires, `details` the tool's
    details of the work, and `progress` the last report.
    For a `call` of a tool that the caller of the task runs (`RunOptions.caller_tools`), `complete` and `fail` bring the
    result: they take `request_id`, or the id of the call.
    `path` are the agents on the way to the one that asks, its own name last. It begins with the agent of the task whose
    `pending` this is, or that was passed to `list_pending`; in a list of all tasks, with that of the root. For a
    `subagent` it ends with the stopped agent, or with the agent below it that makes all of these requests.
    """

    request_id: str
    kind: Literal["settlement", "approval", "question", "timer", "subagent", "request", "background", "call"]
    tool: str
    arguments: dict[str, Json]
    text: str
    due: int | None = None
    idempotency_key: str | None = None
    task_id: str = ""
    rule: str | None = None
    reason: str = ""
    preview: Json = None
    expires: int | None = None
    digest: str = ""
    schema: Json = None
    default: Json = None
    has_default: bool = False
    argument: str | None = None
    details: Json = None
    progress: Json = None
    every_call: bool = False
    untrusted: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def _view(self) -> View:
        facts = (
            ("tool", self.tool),
            ("path", " > ".join(self.path) if len(self.path) > 1 else None),
            ("due", moment(self.due) if self.due is not None else None),
            ("rule", self.rule),
            ("untrusted", ", ".join(self.untrusted) or None),
            ("same", ", ".join(self.same) or None),
            ("expires", moment(self.expires) if self.expires is not None else None),
        )
        values = (
            ("arguments", self.arguments),
            ("preview", self.preview),
            ("schema", self.schema),
            ("details", self.details),
            ("progress", self.progress),
        )
        return View(
            title="Pending", name=self.request_id, state=self.kind, facts=facts, text=self.text, values=values
        )


@frozen
class StepInfo(Displayed):
    """A step: its id, its index from 1, its input messages, its number of attempts, and its status.

    For a step function, `name` and `given` are its planned name and input, `after` the ids of the steps it waits for.
    `started_at` and `ended_at` are in microseconds since 1970, UTC, or None until then. `agent` is the agent of the
    step, once it has begun.
    """

    step_id: str
    index: int
    input: tuple[Content, ...]
    attempt: int
    status: str = "running"
    name: str = ""
    given: Json = None
    after: tuple[str, ...] = ()
    started_at: int | None = None
    ended_at: int | None = None
    agent: str = ""

    def _view(self) -> View:
        facts = (
            ("name", self.name),
            ("attempt", _if_repeated(self.attempt)),
            ("after", ", ".join(self.after)),
        )
        values = (("input", _texts(self.input)), ("given", self.given))
        return View(title="StepInfo", name=self.step_id, state=self.status, facts=facts, values=values)


@explains_names("TaskStepOutput", subscript=True)
@frozen
class TaskStepOutput(Displayed, Generic[OutputT_co]):
    """The result of one step. `duration` in seconds; `messages` are those that it added to the conversation.

    `output` of the last step is the task's answer, of the agent's output type; for any other step it is JSON data.
    `started_at` and `ended_at` are in microseconds since 1970, UTC.
    """

    task_id: str
    step: StepInfo
    output: OutputT_co | Json
    is_last: bool
    state: StateWord
    error: e.Failure | None
    pending: tuple[Pending, ...]
    next_steps: tuple[StepInfo, ...]
    messages: tuple[Message, ...]
    tool_executions: tuple[ToolExecution, ...]
    usage: TaskUsage
    duration: float

    @property
    def cost(self) -> Decimal | None:
        """The cost of the step in US dollars; None if some of it is not known."""
        return self.usage.cost

    @property
    def started_at(self) -> int | None:
        """When the newest attempt began."""
        return self.step.started_at

    @property
    def ended_at(self) -> int | None:
        """When it ended; None if it has not."""
        return self.step.ended_at

    def __str__(self) -> str:
        if self.output is not None:
            return output_text(self.output)
        calls = ", ".join(f"{call.name} {call.outcome or 'open'}" for call in self.tool_executions)
        return f"{self.step.step_id} {self.step.status}{': ' if calls else ''}{calls}"

    def _view(self) -> View:
        return View(
            title="TaskStepOutput",
            name=self.step.step_id,
            state=self.step.status,
            facts=(
                ("name", self.step.name),
                ("task", self.task_id),
                ("last", self.is_last),
                ("took", seconds(self.duration)),
                *_spent(self.usage),
                ("next", ", ".join([step.step_id for step in self.next_steps])),
            ),
            text=output_text(self.output) if self.output is not None else _error_text(self.error),
            tables=(_calls_table(self.tool_executions), _pending_table(self.pending)),
            values=(("messages", messages_table(self.messages)),),
        )


def state_text(state: StateWord, *, driven: bool) -> str:
    """Return a task's state for people to read: a `running` task that no process drives is between steps."""
    return BETWEEN_STEPS if state == "running" and not driven else state


@explains_names("Task", subscript=True)
@frozen
@explains_arguments
class Task(Displayed, Generic[OutputT_co]):
    """A snapshot of a task: ask again for a newer one. `driven` is true if a process is at work on it now.

    A task that is `running` and not `driven` is between steps: it goes on with its next step, or a `resume`. `tenant`
    owns the task.
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
                ("attempt", _if_repeated(self.attempt)),
                ("created", moment(self.created)),
                ("thread", self.thread_id),
                ("tenant", self.tenant or None),
                ("forked from", self.forked_from),
                ("parent", self.parent),
                ("labels", _labels(self.labels)),
                *_spent(self.usage),
            ),
            text=one_line(_texts(self.input), 400),
            values=(("extra state", self.extra_state),),
        )


@frozen
class TaskTotals:
    """The number of tasks, by state, and their spending.

    `driven` counts the tasks that a process drives now. `cost` is in US dollars, of the tasks whose cost is known;
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
    """A task in a list; times in microseconds since 1970, UTC; `state` and `driven` as those of `Task`.

    The fields after `parent` are those of when the task was created, stopped or last went on, and None or empty if they
    are not known: steps, tokens and `cost` (US dollars, children included), `updated` (its last event), and the
    beginnings of its `input` and `outcome`. The outcome is its answer or its error. `driver` is the process that owns
    the task. `forked_at` is the last event that it shares with the task it was forked from. `pending` is the number of
    requests that waited for a person, its caller or a ticket when it stopped, children included; None while it is
    driven. `tenant` owns the task. `deleted` is true only in `changes()`: the task is gone, and the other fields are
    those of the last time it was yielded. If it was never yielded, only its id and tenant are known.
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
            ("labels", _labels(self.labels)),
        )
        return View(title="TaskSummary", name=self.task_id, state=self.state_text, facts=facts)


Item_co = TypeVar("Item_co", covariant=True)
Cursor = TypeVar("Cursor")


@refuses(
    len="write `len(page.items)`, or `await runner.count_tasks()` for all tasks; iterate over the page for its items"
)
@explains_names("page", subscript=True)
class Page(Displayed, Generic[Item_co, Cursor]):
    """Some items of a list: `for` iterates over these, `async for` also over those of all later pages.

    For a page of `runner.sync`, a plain `for` also iterates over those of all later pages.
    """

    __slots__ = ("_waits", "turn")

    items: tuple[Item_co, ...]
    cursor: Cursor | None
    turn: Callable[[Cursor], Awaitable[Page[Item_co, Cursor]]]
    """returns the page after a cursor"""

    def followed_by(
        self,
        turn: Callable[[Cursor], Awaitable[Page[Any, Cursor]]] | None = None,
        *,
        waits: Callable[[AsyncIterator[Any]], Iterator[Any]] | None = None,
    ) -> Self:
        """Return this page, with the functions that later pages need; one that is None stays as it is.

        Args:
            turn: returns the page after a cursor.
            waits: makes a plain iterator of an asynchronous one: a plain `for` then iterates over all pages.
        """
        if turn is not None:
            set_field(self, "turn", turn)
        if waits is not None:
            set_field(self, "_waits", waits)
        return self

    def __iter__(self) -> Iterator[Item_co]:
        waits = getattr(self, "_waits", None)
        return iter(self.items) if waits is None else waits(aiter(self))

    async def __aiter__(self) -> AsyncIterator[Item_co]:
        page: Page[Item_co, Cursor] = self
        while True:
            for item in page.items:
                yield item
            if page.cursor is None:
                return
            page = await page.turn(page.cursor)


@frozen
class TaskPage(Page[TaskSummary, str]):
    """Some tasks, newest first; `cursor` asks for the next page, None when there is none.

    `for` iterates over the tasks of this page, `async for` also over those of all later pages.
    """

    items: tuple[TaskSummary, ...]
    cursor: str | None

    def _view(self) -> View:
        table = tasks_table("tasks", self.items)
        return View(title="TaskPage", facts=(("cursor", self.cursor),), tables=(table,))


@frozen
class ThreadSummary:
    """A thread in a list: its version, and how many tasks have messages in it."""

    thread_id: str
    version: int
    turns: int


@frozen
class ThreadPage(Page[ThreadSummary, str]):
    """Some threads, by id; `cursor` asks for the next page, None when there is none.

    `for` iterates over the threads of this page, `async for` also over those of all later pages.
    """

    items: tuple[ThreadSummary, ...]
    cursor: str | None

    def _view(self) -> View:
        columns = ("thread", "version", "tasks")
        table = Table(
            "threads", columns, self.items, lambda each: (each.thread_id, str(each.version), str(each.turns))
        )
        return View(title="ThreadPage", facts=(("cursor", self.cursor),), tables=(table,))


@frozen
class PendingPage(Page[Pending, str]):
    """A page of open requests of tasks; `cursor` asks for the next page, None when there is none.

    `for` iterates over the requests of this page, `async for` also over those of all later pages.
    """

    items: tuple[Pending, ...]
    cursor: str | None

    def _view(self) -> View:
        columns = ("task", "request", "kind", "what waits")
        rows = Table(
            "pending", columns, self.items, lambda each: (each.task_id, each.request_id, each.kind, each.text)
        )
        return View(title="PendingPage", facts=(("cursor", self.cursor),), tables=(rows,))


@explains_names("ThreadMessages")
class ThreadMessages(Displayed, tuple[Message, ...]):
    """The messages of a thread, the oldest first.

    `damaged` lists the tasks of the thread whose journals cannot be read, each with the reason. Their messages are left
    out. It is empty if the thread is complete.
    """

    damaged: tuple[DamagedTurn, ...]

    def __new__(
        cls, messages: Iterable[Message] = (), damaged: tuple[DamagedTurn, ...] = ()
    ) -> ThreadMessages:
        thread = super().__new__(cls, messages)
        thread.damaged = damaged
        return thread

    def _view(self) -> View:
        damaged = [f"{turn.task_id}: {turn.reason}" for turn in self.damaged]
        return View(title="ThreadMessages", tables=(messages_table(self),), values=(("damaged", damaged),))


@frozen
class CompactionReport:
    """The effect of a compaction on a thread; `complete` is false if a summary could not be made.

    `tasks` are those that made summaries, the newest last; `covers` is the thread's version up to which the newest
    summary reaches.
    """

    thread_id: str
    complete: bool
    tasks: tuple[str, ...]
    covers: int
    messages_before: int
    tokens_before: int
    messages_after: int
    tokens_after: int


@frozen
class PruneReport:
    """The deleted threads and tasks, or those that would be deleted; `tasks` include those of the threads."""

    threads: tuple[str, ...]
    tasks: tuple[str, ...]


@frozen
class UndoReport(Displayed):
    """The report of an undo. If a compensation stopped it, `complete` is false and `left` names the remaining calls."""

    task_id: str
    complete: bool
    to: int
    steps: tuple[str, ...]
    calls: tuple[e.UndoneCall, ...]
    problem: str | None = None

    @property
    def left(self) -> tuple[str, ...]:
        """Ids of the calls that are not compensated."""
        return tuple(call.call for call in self.calls if call.verdict in ("not_compensated", "unknown"))

    def _view(self) -> View:
        return View(
            title="UndoReport",
            name=self.task_id,
            state="completed" if self.complete else "waiting",
            facts=(("back to step", str(self.to)), ("undone", ", ".join(self.steps))),
            text=self.problem or "",
            tables=(Table("calls", ("call", "tool", "verdict", "why"), self.calls, _undone_row),),
        )


@frozen
class Difference(Displayed):
    """The first place where two tasks differ; `index` is None if they are the same."""

    a: str
    b: str
    shared_events: int
    index: int | None = None
    step_a: TaskStepOutput | None = None
    step_b: TaskStepOutput | None = None
    field: str | None = None
    value_a: Json = None
    value_b: Json = None

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.field is None

    def _view(self) -> View:
        sides: list[tuple[str, Any]] = [(f"a: {self.a}", self.value_a), (f"b: {self.b}", self.value_b)]
        values = [(name, _texts(value) if self.field == "input" else value) for name, value in sides]
        return View(
            title="Difference",
            name=f"{self.a} and {self.b}",
            state="same" if self.same else "different",
            facts=(("step", self.index), ("field", self.field), ("shared events", self.shared_events)),
            values=() if self.same else tuple(values),
        )


@explains_names("RunResult", subscript=True)
@frozen
class RunResult(Displayed, Generic[OutputT_co]):
    """The state of a task where it stopped, with its answer and its spending.

    `final_text` is the answer as text, never an error message. `output` is the answer, None if there is none, and
    `error` the failure, if any. `degraded_reasons` are the reasons why an answer is only a best effort; `pending` lists
    the open requests of the task. `cost` is in US dollars, None if some of it is not known: `usage.unpriced` names the
    models without a price. `sources` and `artifacts` are those of the present branch, in call order. `tool_executions`
    are the calls of the present branch; the calls of a subagent's task follow the call of the agent.

    `driven` is true if a process was at work on the task. `started_at`, when its first step began, and `ended_at` are
    in microseconds since 1970, UTC, None if that did not happen yet. `duration` is how many seconds the task was
    driven, over all its attempts. `extra_state` is the JSON object that is stored with the task, as its calls left it;
    None if it has none. `agent` is the present agent of the task: the one that answered, if there is an answer.
    `untrusted` holds the first sixteen origins of the untrusted content that the task has read, or that led to it, such
    as `tool:read_mail`. `stop_reason` is why the task was paused or interrupted, if that is known. `warnings` name
    oddities of the answer, for instance that it looks like a tool call that did not run.
    """

    task_id: str
    thread_id: str
    state: StateWord
    final_text: str
    output: OutputT_co | None
    error: e.Failure | None
    degraded_reasons: tuple[str, ...]
    steps: int
    messages: tuple[Message, ...]
    tool_executions: tuple[ToolExecution, ...]
    subagent_executions: tuple[SubagentExecution, ...]
    usage: TaskUsage
    cost: Decimal | None
    pending: tuple[Pending, ...]
    sources: tuple[Json, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    attempt: int = 1
    driven: bool = False
    started_at: int | None = None
    ended_at: int | None = None
    duration: float = 0.0
    extra_state: Json = None
    agent: str = ""
    untrusted: tuple[str, ...] = ()
    stop_reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def state_text(self) -> str:
        """The state for people to read: `between steps` if it is `running` and no process drives it."""
        return state_text(self.state, driven=self.driven)

    def __str__(self) -> str:
        if self.final_text:
            return self.final_text
        reason, verbs = self._reason(), self._next_verbs()
        text = f"{self.state_text}: {reason}" if reason else self.state_text
        return f"{text}. Next: {verbs}" if verbs else text

    def _reason(self) -> str:
        """Return why there is no answer; empty if no reason is known."""
        if self.error is not None:
            return self.error.message
        return "; ".join([item.text for item in self.pending] or self.degraded_reasons) or self.stop_reason

    def _next_verbs(self) -> str:
        """Return the verbs that continue a task without an answer; empty if there are none."""
        if self.error is not None:
            return ""
        if self.driven:
            return "wait: a driver process works on it"
        if self.state == "waiting":
            return " or ".join(dict.fromkeys(_DECIDING_VERBS[item.kind] for item in self.pending))
        return _NEXT_VERBS.get(self.state, "")

    @property
    def answer(self) -> OutputT_co:
        """The answer of the task, of its output type.

        Raises:
            TaskEndedBadly: the task ended without an answer: a `TaskFailed`, `TaskCancelled` or `TaskInterrupted`, as
                `raise_for_state` raises it.
            TaskUnfinished: the task has not answered yet; the message names its requests.
        """
        self.raise_for_state()
        if self.state in ("completed", "answered") or (self.state == "degraded" and self.final_text):
            return cast("OutputT_co", self.output)
        text = f"task {self.task_id} has no answer: it is {self}"
        if self.state == "degraded":
            raise TaskEndedBadly(text, self)
        raise TaskUnfinished(text, task_id=self.task_id, state=self.state)

    def raise_for_state(self) -> RunResult[OutputT_co]:
        """Return this result, or raise `TaskFailed`, `TaskCancelled` or `TaskInterrupted` with it.

        A task that a guardrail stopped raises `GuardrailStopped`, a `TaskFailed`. If an error of the user's own code
        failed the task, the `__cause__` is that error, or else a `StoredTraceback` with its traceback.
        """
        classes = {"failed": TaskFailed, "cancelled": TaskCancelled, "interrupted": TaskInterrupted}
        if self.state in classes:
            reason = f": {self.error.message}" if self.error is not None else ""
            is_refused = self.error is not None and self.error.source == "guardrail"
            error_class = GuardrailStopped if is_refused else classes[self.state]
            error = error_class(f"task {self.task_id} is {self.state}{reason}", self)
            raise error from cause_of(self.error)
        return self

    def _view(self) -> View:
        return View(
            title="RunResult",
            name=self.task_id,
            state=self.state,
            facts=(
                ("steps", self.steps),
                ("attempt", _if_repeated(self.attempt)),
                ("because", ", ".join(self.degraded_reasons)),
                ("warning", "; ".join(self.warnings)),
                *_spent(self.usage),
            ),
            text=self.final_text or _error_text(self.error),
            tables=(
                _calls_table(self.tool_executions),
                Table("subagents", _CALL_COLUMNS, self.subagent_executions, _call_row),
                _pending_table(self.pending),
            ),
            values=(
                ("messages", messages_table(self.messages)),
                ("sources", self.sources),
                ("artifacts", [artifact.name for artifact in self.artifacts]),
            ),
        )


_NEXT_VERBS: Final = {
    "created": "`resume` begins it",
    "running": "`resume` or `run_step` goes on",
    "paused": "`resume` goes on",
    "interrupted": "`resume` goes on",
    "answered": "`resume` ends it",
    "degraded": "`fork` or `undo_step` tries again, with other limits",
}
"""The verbs that continue a task without an answer, by its state."""

_DECIDING_VERBS: Final = {
    "approval": "`approve` or `deny` decides it",
    "question": "`answer` answers it",
    "settlement": "`settle` tells the outcome",
    "timer": "`resume` goes on then",
    "subagent": "decide the requests of the subagent, `list_pending` shows them",
    "request": "`resume` lets the request go out, `cancel` does not",
    "background": "`complete` or `fail` brings the result",
    "call": "`complete` or `fail` brings the result",
}
"""The verbs that decide the requests of a task, by the kind of `Pending`."""


class StepOutputs(Displayed, tuple[TaskStepOutput[OutputT_co], ...], Generic[OutputT_co]):
    """The results of several steps, in order."""

    __slots__ = ()

    def _view(self) -> View:
        facts = (("task", self[0].task_id),) if self else ()
        return View(title="StepOutputs", facts=facts, tables=(steps_table(self),))


# ------------------------------------------------------------------------------ how they show themselves

_CALL_COLUMNS = ("call", "tool", "arguments", "outcome", "result", "took")


def _spent(usage: TaskUsage) -> tuple[tuple[str, Any], ...]:
    return ("tokens", usage.total_tokens), ("cost", money(usage.cost) if usage.model_calls else "")


def _if_repeated(attempt: int) -> int | None:
    """Return the number of an attempt that is not the first."""
    return attempt if attempt > 1 else None


def _labels(labels: dict[str, str]) -> str:
    return ", ".join([f"{name}={value}" for name, value in labels.items()])


def _texts(parts: Iterable[Content]) -> str:
    return " ".join([part.text if isinstance(part, Text) else f"[{type(part).__name__}]" for part in parts])


def output_text(output: Any) -> str:
    """Return an output for people to read: text, JSON, or the `repr` of an object of the output type."""
    try:
        return as_text(output)
    except TypeError:
        return repr(output)


def _error_text(error: e.Failure | None) -> str:
    return f"{error.kind}: {error.message}" if error is not None else ""


def _agent_row(item: tuple[str, TaskUsage]) -> tuple[Any, ...]:
    name, usage = item
    counts = (usage.total_tokens, usage.model_calls, usage.tool_calls)
    return (name, *[f"{count:,}" for count in counts], money(usage.cost))


def _calls_table(calls: tuple[ToolExecution, ...]) -> Table:
    return Table("calls", _CALL_COLUMNS, calls, _call_row)


def _call_row(call: ToolExecution | SubagentExecution) -> tuple[Any, ...]:
    arguments = call.arguments if isinstance(call, ToolExecution) else call.input
    result = _error_text(call.error) or call.output
    return call.call_id, call.name, arguments, Word(call.outcome or "open"), result, seconds(call.latency)


def _undone_row(call: e.UndoneCall) -> tuple[Any, ...]:
    return call.call, call.tool, Word(call.verdict), call.why


def _pending_table(pending: tuple[Pending, ...]) -> Table:
    return Table("pending", ("waits for", "kind", "tool", "arguments", "because"), pending, _pending_row)


def _pending_row(item: Pending) -> tuple[Any, ...]:
    return item.request_id, Word(item.kind), item.tool, item.arguments, item.text


def messages_table(messages: tuple[Message, ...]) -> Table:
    """Return messages as a table."""
    return Table("messages", ("role", "text", "calls"), messages, _message_row)


def _message_row(message: Message) -> tuple[Any, ...]:
    results = [part.text for part in message.parts if isinstance(part, ToolResult)]
    calls = [f"{call.name}({as_text(call.arguments)})" for call in message.tool_calls]
    written = _texts([part for part in message.parts if isinstance(part, (Text, Image, File))])
    return message.role, " ".join([written, *results]).strip(), "\n".join(calls)


def tasks_table(title: str, tasks: tuple[TaskSummary, ...]) -> Table:
    """Return tasks as a table."""
    columns = ("task", "agent", "state", "driven", "created", "thread", "labels")
    return Table(title, columns, tasks, _task_row)


def _task_row(task: TaskSummary) -> tuple[Any, ...]:
    driven = "yes" if task.driven else ""
    state, created = Word(task.state_text), moment(task.created)
    return task.task_id, task.agent, state, driven, created, task.thread_id, _labels(task.labels)


def steps_table(steps: tuple[TaskStepOutput[Any], ...]) -> Table:
    """Return steps as a table."""
    columns = ("step", "name", "text", "calls", "tokens", "cost", "took")
    return Table("steps", columns, steps, _step_row)


def _step_row(step: TaskStepOutput) -> tuple[Any, ...]:
    calls = _calls_table(step.tool_executions)
    written = " ".join([message.text for message in step.messages if message.role == "assistant"])
    return (
        step.step.step_id,
        step.step.name,
        output_text(step.output) if step.output is not None else _error_text(step.error) or written.strip(),
        replace(calls, title=", ".join([call.name for call in step.tool_executions])),
        f"{step.usage.total_tokens:,}",
        money(step.usage.cost),
        seconds(step.duration),
    )


# -------------------------------------------------------------------------------- made from the state


def state_at_rest(state: TaskState) -> StateWord:
    """Return the state of a task at rest, as callers see it."""
    if state.ended is not None:
        return state.ended
    if state.pausing:
        return "paused"
    if state.interrupting:
        return "interrupted"
    if state.undo is not None or any(True for _ in _unsettled(state)):
        return "waiting"
    if any(not isinstance(timer, TicketExpiry) for timer in state.timers()):
        return "waiting"
    if state.deferred and (state.answered or state.graph is not None):
        return "waiting"
    if state.questions:
        return "waiting"
    if any(True for _ in _stopped_subagents(state)):
        return "waiting"
    if state.answered:
        return "answered"
    return "running" if state.began else "created"


def _unsettled(state: TaskState) -> Iterable[CallState]:
    calls = (call for step in state.under_way() for call in step.open.values())
    return (call for call in calls if call.status in UNSETTLED and call.outcome is None)


def _stopped_subagents(state: TaskState) -> Iterable[CallState]:
    """Return the calls of agents whose tasks have stopped."""
    calls = (call for step in state.under_way() for call in step.open.values())
    return (call for call in calls if call.status == "parked" and call.stopped is not None)


def execution(state: TaskState, call: CallState, agent: str, above: tuple[str, ...] = ()) -> ToolExecution:
    """Return the public form of an agent's call; `above` are the agents above it, the uppermost first."""
    latency = (call.ended - call.started) / 1e6 if call.started and call.ended else None
    return ToolExecution(
        call.name,
        call.id,
        call.arguments,
        call.outcome,
        call.output,
        call.error,
        latency,
        agent,
        call.attempt,
        state.depth,
        (*above, agent),
        call.display,
        state.task_id,
        call.rewritten,
        call.report,
        call.host,
    )


def executions(
    state: TaskState,
    steps: Iterable[StepState],
    below: Mapping[str, TaskState] = _NO_TASKS,
    above: tuple[str, ...] = (),
) -> tuple[ToolExecution, ...]:
    """Return the tool calls of steps in call order, each call of an agent followed by the calls that its task made.

    Args:
        state: of the task.
        steps: of the task.
        below: the tasks below it that are known, by id.
        above: the agents above that of the task.
    """
    calls: list[ToolExecution] = []
    for step in steps:
        agent = step.agent or state.created_for
        for call in step.calls:
            if call.answers:
                continue
            calls.append(execution(state, call, agent, above))
            if below:
                for child in [below[task_id] for task_id in call.tasks if task_id in below]:
                    calls += executions(child, all_steps(child), below, (*above, agent))
    return tuple(calls)


def subagent_executions(state: TaskState, steps: Iterable[StepState]) -> tuple[SubagentExecution, ...]:
    """Return the subagent tasks of some steps, in call order; a call that was tried again has several."""
    subagents: list[SubagentExecution] = []
    for step in steps if state.children else ():
        caller = step.agent or state.created_for
        for call in step.calls:
            subagents += [_failed_subagent(state, call, failed, caller) for failed in call.failed_children]
            if call.child is not None:
                subagents.append(_subagent(state, call, call.child, caller))
    return tuple(subagents)


def _failed_subagent(
    state: TaskState, call: CallState, failed: FailedChild, caller: str
) -> SubagentExecution:
    """Return a subagent task that failed before its call was tried again."""
    outcome = "timeout" if failed.error is not None and failed.error.kind == "timeout" else "error"
    subagent = _subagent(state, call, failed.task, caller)
    return replace(subagent, outcome=outcome, output=None, error=failed.error, latency=None)


def _subagent(state: TaskState, call: CallState, task_id: str, caller: str) -> SubagentExecution:
    spent = state.children.get(task_id, ())
    usage_by_agent = {part.agent: _usage(part, part.model_calls, part.tool_calls) for part in spent}
    total = sum(spent[1:], spent[0]) if spent else SpentBy(call.name)
    usage = _usage(total, total.model_calls, total.tool_calls, usage_by_agent)
    latency = (call.ended - call.started) / 1e6 if call.started and call.ended else None
    name = spent[0].agent if spent else call.name
    return SubagentExecution(
        name,
        task_id,
        call.id,
        str(call.arguments.get("input", "")),
        call.outcome,
        call.output,
        call.error,
        latency,
        usage,
        state.depth + 1,
        (caller, name),
    )


def all_steps(state: TaskState) -> list[StepState]:
    """Return the steps of the present branch that have begun, in order."""
    if state.graph is not None:
        return state.graph.in_order([*state.steps, *state.under_way()])
    return [*state.steps, state.step] if state.step is not None else state.steps


def stop_text(name: str, child: TaskState, below: Mapping[str, TaskState] = _NO_TASKS) -> str:
    """Return why the task of an agent's call stopped, or that it can go on, as a message for people."""
    state, task = state_at_rest(child), f"{name} (task {child.task_id})"
    reason = "; ".join(item.text for item in pending_of(child, below)) or child.stop_reason
    if reason or state in ("paused", "interrupted", "waiting"):
        return f"{task} is {state}{f': {reason}' if reason else ''}"
    return f"{task} has {'ended' if child.ended is not None else 'what it waited for'}: `resume` goes on"


def pending_of(state: TaskState, below: Mapping[str, TaskState] = _NO_TASKS) -> tuple[Pending, ...]:
    """Return the open requests of a task: approvals, questions, settlements, timers, subagents, background calls.

    Args:
        state: of the task.
        below: the known tasks below it, by id, whose present requests are used; for others, the recorded ones.
    """
    if state.ended == "completed" and not state.deferred:
        return ()  # all its calls have ended
    pending: list[Pending] = []
    if state.open_approvals and state.undo is None:
        calls = (call for step in state.under_way() for call in step.open.values())
        pending += [_approval(state, call) for call in calls if call.id in state.open_approvals]
        pending += [
            _check(state, check) for check in state.checks.values() if check.id in state.open_approvals
        ]
    if state.questions and state.undo is None and state.ended is None:
        pending += [_question(state, question) for question in state.questions.values()]
    for call in _unsettled(state):
        reason = (
            call.stopped.message if call.stopped is not None else "it was cut off before its end was recorded"
        )
        text = f"{call.name} began and its outcome is not known: {reason}"
        pending.append(_settlement(state, call, call.id, text))
    for call in (
        _stopped_subagents(state) if state.undo is None else ()
    ):  # else the undo ends it, or blocks `resume`
        assert call.stopped is not None, "it rests"
        task_id = str(call.child)
        why = call.stopped.message
        if task_id in below and call.stopped.kind != "error":  # else this error itself blocks the task
            why = stop_text(call.name, below[task_id], below)
        path = _path_to_child(state, call, below)
        pending.append(
            Pending(task_id, "subagent", call.name, call.arguments, why, task_id=state.task_id, path=path)
        )
    if state.undo is not None:
        for call in state.undo.queue:
            if call.undo_status == "lost":
                text = f"the compensation of {call.name} began and its outcome is not known"
                pending.append(_settlement(state, call, undo_id(call.id), text))
    if state.pausing and state.ended is None:
        model_requests = [(step, call) for step, call in state.open_model_calls() if call.permit == "ask"]
        text = state.stop_reason or "a request to a model waits for a person"
        pending += [
            Pending(
                call.id or step.id, "request", "", {}, text, task_id=state.task_id, path=_path(state, step.id)
            )
            for step, call in model_requests
        ]
    if state.ended is None:
        timers = state.timers()
        pending += [_timer(state, timer) for timer in timers if isinstance(timer, (Timer, Sleep))]
    pending += [_in_background(state, call) for call in state.deferred.values()]
    return tuple(pending)


def is_disposable(result: RunResult) -> bool:
    """Return whether `RunOptions(delete_on_finish=True)` deletes a task: it has answered, and nothing continues."""
    return result.state in ("completed", "degraded") and not result.pending


def pending_outside(state: TaskState, above: tuple[str, ...] = ()) -> list[Pending]:
    """Return the requests of a task to people, its caller and the holders of tickets, without the tasks below it.

    Args:
        state: of the task.
        above: the agents above that of the task, the uppermost first.
    """
    items = [item for item in pending_of(state) if item.kind in OUTSIDE]
    return [replace(item, path=(*above, *item.path)) for item in items] if above else items


def caller_of(state: TaskState, call_id: str) -> str:
    """Return the agent whose call of this id a task made."""
    call = state.find_call(call_id)
    return _agent_at(state, call.step) if call is not None else state.created_for


def _agent_at(state: TaskState, step_id: str) -> str:
    """Return the agent that a step belongs to."""
    if state.team is None:
        return state.created_for
    step = next((step for step in all_steps(state) if step.id == step_id), None)
    return agent_of(state, step) if step is not None else state.agent


def _path(state: TaskState, step_id: str) -> tuple[str, ...]:
    return (_agent_at(state, step_id),)


def _path_to_child(state: TaskState, call: CallState, below: Mapping[str, TaskState]) -> tuple[str, ...]:
    """Return the agents down to the stopped one of a call, or to the agent below it that makes all the requests."""
    task_id = str(call.child)
    child = below.get(task_id)
    paths = [item.path for item in pending_of(child, below)] if child is not None else []
    if paths:
        shared = paths[0]
        for path in paths:
            shared = tuple([name for name, other in zip(shared, path, strict=False) if name == other])
    elif child is not None:
        shared = (child.agent,)
    else:
        spent = state.children.get(task_id)
        shared = (spent[0].agent if spent else call.name,)
    return (_agent_at(state, call.step), *shared)


def _in_background(state: TaskState, call: CallState) -> Pending:
    ticket = call.ticket
    assert ticket is not None, "it has one"
    return Pending(
        call.id,
        "background",
        call.name,
        call.arguments,
        f"{call.name} goes on in the background until {moment(ticket.expires)}",
        task_id=state.task_id,
        expires=ticket.expires,
        details=ticket.details,
        progress=ticket.progress,
        path=_path(state, call.step),
    )


def _approval(state: TaskState, call: CallState | Check) -> Pending:
    assert call.permit is not None, "it was asked for"
    request = call.permit.request
    assert request is not None, "it was asked for"
    reason = f": {request.reason}" if request.reason else ""
    return Pending(
        approval_id(call.id, request.number),
        "approval",
        call.name,
        call.arguments,
        f"{call.name} waits for an approval{reason}",
        task_id=state.task_id,
        rule=request.rule,
        reason=request.reason,
        preview=request.preview,
        expires=request.expires,
        digest=request.digest,
        argument=request.argument,
        every_call=request.every_call,
        untrusted=request.untrusted,
        same=request.same,
        path=_path(state, call.step),
    )


def _question(state: TaskState, question: Question) -> Pending:
    event = question.event
    call = state.open_call(event.call) if event.call else None
    is_callers = call is not None and call.name in names_of(state.options)
    return Pending(
        question.request_id,
        "call" if is_callers else "question",
        call.name if call is not None else "",
        call.arguments if call is not None else {},
        event.question,
        task_id=state.task_id,
        reason=event.problem or "",
        expires=event.expires,
        digest=event.digest,
        schema=None if is_callers else event.schema,
        default=event.default,
        has_default=event.has_default,
        path=_path(state, event.step),
    )


def _check(state: TaskState, check: Check) -> Pending:
    """Return the question about content that guardrails check; its arguments are that content."""
    item = _approval(state, check)
    reason = f": {item.reason}" if item.reason else ""
    return replace(item, text=f"the guardrail {item.rule} asks about {check.name}{reason}")


def _settlement(state: TaskState, call: CallState, request_id: str, text: str) -> Pending:
    key = state.key_of(request_id)
    return Pending(
        request_id,
        "settlement",
        call.name,
        call.arguments,
        text,
        idempotency_key=key,
        task_id=state.task_id,
        path=_path(state, call.step),
    )


def _timer(state: TaskState, timer: Timer | Sleep) -> Pending:
    path = _path(state, timer.step)
    if isinstance(timer, Sleep):
        call = state.open_call(timer.call)
        name, arguments = (call.name, call.arguments) if call is not None else ("", {})
        text = f"{name or f'step {timer.step}'} sleeps until {moment(timer.due)}"
        return Pending(
            timer.call or timer.step,
            "timer",
            name,
            arguments,
            text,
            timer.due,
            task_id=state.task_id,
            path=path,
        )
    text = f"the model is asked again at {moment(timer.due)}: {timer.tries.why}"
    return Pending(
        timer.call or timer.step, "timer", "", {}, text, timer.due, task_id=state.task_id, path=path
    )


def moment(time: int) -> str:
    """Return a time in microseconds since 1970, UTC, as readable text."""
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def step_info(state: TaskState, step: StepState) -> StepInfo:
    """Return the description of a step."""
    times = (step.started or None, step.ended or None)
    info = StepInfo(
        step.id,
        step.index,
        step.input,
        step.attempt,
        step.status,
        started_at=times[0],
        ended_at=times[1],
        agent=agent_of(state, step),
    )
    node = state.graph.nodes.get(step.id) if state.graph is not None else None
    if node is None:  # it is not planned yet
        return info
    return replace(info, name=node.plan.name, given=node.plan.input, after=node.after)


def step_output(
    state: TaskState,
    step: StepState,
    display_state: StateWord,
    upcoming: tuple[StepInfo, ...],
    typed: OutputType[Any] | None = None,
) -> TaskStepOutput[Any]:
    """Return the output of a step with its calls, messages and usage.

    With the type of the task's output, the output of the last step is an instance of that type.
    """
    end = step.checkpoint.messages if step.checkpoint is not None else len(state.messages)
    newest = not state.steps or step.index >= state.steps[-1].index
    node = state.graph.nodes.get(step.id) if state.graph is not None else None
    messages = state.messages[step.first_message : end] if node is None else node.messages
    return TaskStepOutput(
        state.task_id,
        step_info(state, step),
        step.output if typed is None or not step.last else typed.load(step.output),
        step.last or (newest and state.ended is not None),
        display_state,
        step.error or (state.error if newest and node is None else None),
        pending_of(state) if newest else (),
        upcoming,
        Messages(messages),
        executions(state, [step]),
        _usage(
            step,
            step.model_call.attempt if node is None else node.answers,
            sum(not call.answers for call in step.calls),
        ),
        max(0, (step.ended or state.time) - step.started) / 1e6,
    )


def state_of_row(row: TaskRow) -> StateWord:
    """Return a task's state by its row: a driver that crashed leaves it interrupted."""
    return cast("StateWord", row.word)


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


def snapshot(state: TaskState, row: TaskRow) -> Task[Any]:
    """Return a snapshot of a task."""
    driven = row.driver is not None and row.driver.alive
    return _task(state, state_of_row(row), driven, row.created, row.labels, row.tenant)


def past_snapshot(state: TaskState, row: TaskRow) -> Task[Any]:
    """Return a snapshot of a task as of an earlier event."""
    return _task(state, state_at_rest(state), False, row.created, row.labels, row.tenant)


def driven_snapshot(state: TaskState, labels: dict[str, str], tenant: str) -> Task[Any]:
    """Return a snapshot of a task that this process owns and is about to drive."""
    return _task(state, state_at_rest(state), True, state.created, dict(labels), tenant)


def _task(
    state: TaskState,
    display_state: StateWord,
    driven: bool,
    created: int,
    labels: dict[str, str],
    tenant: str,
) -> Task[Any]:
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
    )


def run_result(
    state: TaskState,
    display_state: StateWord,
    typed: OutputType[Any] | None,
    below: Mapping[str, TaskState] = _NO_TASKS,
    *,
    driven: bool = False,
    calls: tuple[ToolExecution, ...] | None = None,
) -> RunResult[Any]:
    """Return the result of a task.

    Args:
        state: of the task.
        display_state: its state, as callers see it.
        typed: the type of its output, if that is known: the output is then an instance of it.
        below: the tasks below it that are known, by id.
        driven: whether a process is at work on it.
        calls: its executions, if the caller has them.
    """
    steps = all_steps(state)
    has_answer = state.ended in ("completed", "degraded") or (state.answered and state.ended is None)
    output = state.output if has_answer else None
    if typed is not None and has_answer:
        output = typed.load(output)
    reasons = state.end_reasons if state.ended is not None else tuple(state.reasons)
    usage = usage_of(state)
    return RunResult(
        state.task_id,
        state.thread,
        display_state,
        state.output_text if has_answer else "",
        output,
        state.error,
        reasons,
        len(state.steps),
        Messages(state.messages if state.forked_from is not None else state.messages[state.own_from :]),
        executions(state, steps, below) if calls is None else calls,
        subagent_executions(state, steps),
        usage,
        usage.cost,
        pending_of(state, below),
        sources_of(steps),
        artifacts_of(steps),
        state.attempt,
        driven,
        _started_at(state, steps),
        state.end_time if state.ended is not None else None,
        state.driven / 1e6,
        state_value(state) if state.extra_state is not None else None,
        state.agent,
        origins.of_task(state),
        _stop_reason(state, display_state),
        (text_calls_warning(steps[-1].text_calls),) if steps and steps[-1].text_calls else (),
    )


def _stop_reason(state: TaskState, display_state: StateWord) -> str:
    """Return why a task was paused or interrupted; empty if it was not, or no reason is known."""
    if display_state not in ("paused", "interrupted"):
        return ""
    return state.stop_reason or state.limit_detail or ""


def _started_at(state: TaskState, steps: Iterable[StepState]) -> int | None:
    """Return when the task's own first step began; a fork may continue a step of its parent."""
    if not state.began and state.step is None and state.graph is None:
        return None
    own = [step.started for step in steps if step.started >= state.created]
    return min(own, default=state.created if state.began else None)
