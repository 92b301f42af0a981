"""The spending of tasks and steps.

The figures of a task in lists, taken from its state when its row is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from decimal import Decimal
from typing import Any, Final

from treadle.core.children import SpentBy, by_agent
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View, money
from treadle.core.events import Event, TaskEnded
from treadle.core.messages import Content, Text
from treadle.core.refused_uses import refuses
from treadle.core.spending import as_dollars
from treadle.core.state import TaskState
from treadle.core.steps import StepState
from treadle.core.unknown_names import explains_names
from treadle.policy.budget import own_spending
from treadle.ports import TaskFigures
from treadle.results.pending import pending_outside
from treadle.results.states import UNSETTLED

_LINE: Final = 120
"""The most characters of an input or outcome that lists show."""

_SEARCHED: Final = 500
"""The most characters of an input or outcome that searches read."""


def figures_of(state: TaskState, events: Sequence[Event] = (), *, at_rest: bool = True) -> TaskFigures:
    """Return the figures of a task.

    Args:
        state: the task.
        events: the events that are being recorded, in order. The end of the task may not be in its state yet.
        at_rest: whether the task is released with these events. Otherwise `pending` is None instead of 0: if the driver
            crashes, a list of waiting requests must not pass over its task.
    """
    error, updated, step = state.error, state.time, state.step
    may_wait = state.open_approvals or state.questions or (state.deferred and state.ended is None)
    may_wait = may_wait or state.undo is not None or state.graph is not None
    if events:
        updated = events[-1].time
        if isinstance(events[-1], TaskEnded):
            error, may_wait, step = events[-1].error, False, None
    for call in step.open.values() if step is not None else ():
        may_wait = may_wait or call.status in UNSETTLED
    pending = (len(pending_outside(state)) if may_wait else 0) or (0 if at_rest else None)
    own = state.usage
    read, written, cost, is_priced = own.input_tokens, own.output_tokens, state.cost, not state.unpriced
    for parts in state.children.values():
        for part in parts:
            read, written = read + part.usage.input_tokens, written + part.usage.output_tokens
            cost, is_priced = cost + part.cost, is_priced and not part.unpriced
    changes = state.fork_changes
    if changes:
        changes = tuple([replace(each, text=_line(each.text)[:_LINE]) for each in changes])
    question = _line(content_text(state.input))
    outcome = _line(error.message if error is not None else state.output_text)
    return TaskFigures(
        len(state.steps),
        read,
        written,
        cost if is_priced else None,
        own.input_tokens + own.output_tokens,
        None if state.unpriced else state.cost,
        updated,
        question[:_LINE],
        outcome[:_LINE],
        folded(f"{question} {outcome}"),
        pending,
        state.model,
        changes,
        state.floor,
        state.branch,
    )


def content_text(parts: Iterable[Content]) -> str:
    """Return content parts as text; a part that is not text is named by its kind."""
    return " ".join(
        [part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in parts]
    )


def folded(text: str) -> str:
    """Return a text in the form that searches compare: on one line, case-folded."""
    return " ".join(text.split()).casefold()


def _line(text: str) -> str:
    """Return the start of a text on one line, in characters that every store accepts."""
    if not text:
        return ""
    line = " ".join(text[: 2 * _SEARCHED].split())[:_SEARCHED]
    if line.isascii() and line.isprintable():
        return line
    return line.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


@refuses(call="write `result.usage`, without brackets")
@explains_names("TaskUsage", subscript=True)
@frozen
class TaskUsage(Displayed):
    """The spending of a task, over all its attempts and branches.

    `cached_tokens` and `cache_write_tokens` are part of the input, `reasoning_tokens` of the output. `estimated` is
    true if a provider reported no usage. `cost` is in US dollars, None if some of it is unknown: `unpriced` names the
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


def usage_from(
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
    """Return the usage of a task with all tasks below it, by agent too.

    For a child that runs or was killed, its parent's journal has the figures of its last stop.
    """
    own_usage = usage_from(state, state.model_calls, state.tool_calls)
    if not state.children and not state.versions:
        return usage_from(state, state.model_calls, state.tool_calls, {state.agent: own_usage})
    below = [part for parts in state.children.values() for part in parts]
    parts = by_agent([*own_spending(state, state.tool_calls), *below])
    total = parts[0]
    for part in parts[1:]:
        total += part
    usage_by_agent = {part.agent: usage_from(part, part.model_calls, part.tool_calls) for part in parts}
    return usage_from(total, total.model_calls, total.tool_calls, usage_by_agent)


def spending_facts(usage: TaskUsage) -> tuple[tuple[str, Any], ...]:
    """Return the tokens and the cost of a usage, for a display."""
    return ("tokens", usage.total_tokens), ("cost", money(usage.cost) if usage.model_calls else "")


def _agent_row(item: tuple[str, TaskUsage]) -> tuple[Any, ...]:
    name, usage = item
    counts = (usage.total_tokens, usage.model_calls, usage.tool_calls)
    return (name, *[f"{count:,}" for count in counts], money(usage.cost))
