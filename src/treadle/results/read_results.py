"""Results of other reads: pages of events and steps, past requests, lineage, usage."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Generic

from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, money
from treadle.core.events import Event
from treadle.core.messages import Json, Message
from treadle.core.model import ModelSettings
from treadle.core.spending import as_dollars
from treadle.ports import OutputT_co, TaskSums
from treadle.results.displays import messages_table, moment
from treadle.results.pages import Page, TaskPage
from treadle.results.step_outputs import TaskStepOutput, steps_table
from treadle.results.tasks import TaskSummary, tasks_table


@frozen
class EventPage(Page[Event, int]):
    """Some events of a task, in order. `cursor` is the `after` of the next page, None when there is none yet.

    `head` is the sequence number of the task's last event when the page was read. `for` iterates over the events of
    this page, `async for` also over all later pages. A page of certain kinds may have fewer events than the limit, even
    none, and more pages may follow.
    """

    items: tuple[Event, ...]
    cursor: int | None
    head: int

    def _view(self) -> View:
        table = Table("events", ("seq", "time", "kind", "what happened"), self.items, _event_row)
        return View(title="EventPage", facts=(("cursor", self.cursor), ("head", self.head)), tables=(table,))


@frozen
class StepPage(Page[TaskStepOutput[OutputT_co], int], Generic[OutputT_co]):
    """Some steps of a task's present branch, in order. `cursor` is the `after` of the next page, None at the end.

    `for` iterates over the steps of this page, `async for` also over all later pages.
    """

    items: tuple[TaskStepOutput[OutputT_co], ...]
    cursor: int | None

    def _view(self) -> View:
        return View(title="StepPage", facts=(("cursor", self.cursor),), tables=(steps_table(self.items),))


@frozen
class OfferedTool:
    """A tool as its model saw it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Json = None


@frozen
class PastRequest(Displayed):
    """A request as its model saw it: `instructions` and `messages` with untrusted content in frames.

    `seq` and `time` (microseconds since 1970, UTC) are those of its event `model_started`. `call` is the id of the
    request if a step function made it. `final` is true for a request of a last answer without tools. In a dialect,
    `instructions` include the tools as text. `settings` exclude headers and secrets.

    `exact` is true if this process has the same version of the agent, with all its tools. Otherwise the request is
    rebuilt with the agent of today. Without the agent, `tools` are the names in the journal, `settings` is None, and
    `messages` are the whole conversation.
    """

    task_id: str
    step_id: str
    call: str | None
    seq: int
    time: int
    agent: str
    model: str
    attempt: int
    final: bool
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...]
    tool_choice: str = "auto"
    settings: ModelSettings | None = None
    output_schema: Json = None
    exact: bool = False

    def _view(self) -> View:
        facts = (
            ("model", self.model),
            ("agent", self.agent),
            ("attempt", self.attempt),
            ("tools", ", ".join([tool.name for tool in self.tools])),
            ("exact", self.exact),
        )
        return View(
            title="PastRequest",
            name=self.call or self.step_id,
            facts=facts,
            text=self.instructions,
            tables=(messages_table(self.messages),),
        )


@frozen
class Lineage(Displayed):
    """The tasks that a task came from, and those that came from it.

    `parent` is the task that called it. `forked_from` is the task that it was forked from, after event
    `task.forked_at`. Each is None if there is none or it was deleted; `task.parent` and `task.forked_from` keep the
    ids. `children` and `forks` are pages, newest first: `async for` iterates over later pages too.
    """

    task: TaskSummary
    parent: TaskSummary | None
    forked_from: TaskSummary | None
    children: TaskPage
    forks: TaskPage

    def _view(self) -> View:
        task = self.task
        above = (("parent", task.parent), ("forked from", task.forked_from), ("forked at", task.forked_at))
        tables = (tasks_table("children", self.children.items), tasks_table("forks", self.forks.items))
        return View(title="Lineage", name=task.task_id, state=task.state_text, facts=above, tables=tables)


@frozen
class UsageLine:
    """The spending of the tasks of one agent, day, model or label.

    `key` is the name of the agent or model, the day on which the tasks were created, such as `2026-11-23` in UTC, or
    the label's text. It is None for tasks without the label, or without a request to a model. `cost` is in US dollars,
    of the tasks whose cost is known. `unpriced` is the number of the other tasks.
    """

    key: str | None
    tasks: int
    tokens: int
    cost: Decimal
    unpriced: int


@frozen
class UsageReport(Displayed):
    """The spending of tasks, by agent, day, model or label; `total` is the sum of all lines.

    Days are in order, other lines begin with the most expensive. The spending of children counts once, with their
    parent. The spending of driven tasks may be up to two seconds old.
    """

    by: str
    lines: tuple[UsageLine, ...]
    total: UsageLine

    def __str__(self) -> str:
        """The lines and their total as text."""
        return "\n".join(map(_usage_text, (*self.lines, self.total)))

    def _view(self) -> View:
        columns = (self.by, "tasks", "tokens", "cost", "without a price")
        table = Table("usage", columns, (*self.lines, self.total), _usage_row)
        return View(title="UsageReport", tables=(table,))


def usage_report(by: str, sums: dict[str | None, TaskSums]) -> UsageReport:
    """Return the report for the sums of a store."""
    total = TaskSums()
    for part in sums.values():
        total.add(part)
    lines = [_usage_line(key, part) for key, part in sums.items()]
    lines.sort(key=lambda line: line.key or "")
    if by != "day":
        lines.sort(key=lambda line: (-line.cost, -line.tokens, -line.tasks))
    return UsageReport(by, tuple(lines), _usage_line("total", total))


def _usage_line(key: str | None, sums: TaskSums) -> UsageLine:
    return UsageLine(key, sums.tasks, sums.tokens, as_dollars(sums.cost), sums.unpriced)


def _event_row(event: Event) -> tuple[Any, ...]:
    return str(event.seq), moment(event.time), event.kind, event.description


def _usage_text(line: UsageLine) -> str:
    unpriced = f", {line.unpriced:,} without a price" if line.unpriced else ""
    counts = f"{line.tasks:,} tasks, {line.tokens:,} tokens, {money(line.cost)}{unpriced}"
    return f"{line.key or '-'}: {counts}"


def _usage_row(line: UsageLine) -> tuple[Any, ...]:
    return line.key or "", f"{line.tasks:,}", f"{line.tokens:,}", money(line.cost), f"{line.unpriced:,}"
