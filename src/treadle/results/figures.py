"""The figures of a task in lists, taken from its state when its row is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from treadle.core.events import Event, TaskEnded
from treadle.core.messages import Content, Text
from treadle.core.state import TaskState
from treadle.ports import TaskFigures
from treadle.results.pending import pending_outside
from treadle.results.states import UNSETTLED

_LINE: Final = 120
"""How many characters of an input or outcome lists show."""

_SEARCHED: Final = 500
"""How many characters of each searches read."""


def figures_of(state: TaskState, events: Sequence[Event] = (), *, at_rest: bool = True) -> TaskFigures:
    """Return the figures of a task.

    Args:
        state: the task.
        events: the events that are being recorded, in order; the end of the task may not be in its state yet.
        at_rest: whether the task is released with these events. Otherwise the number of its waiting requests is not
            known: it will change, and a driver that crashes writes no newer figures.
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
    pending = (len(pending_outside(state)) if may_wait else 0) if at_rest else None
    own = state.usage
    read, written, cost, is_priced = own.input_tokens, own.output_tokens, state.cost, not state.unpriced
    for parts in state.children.values():
        for part in parts:
            read, written = read + part.usage.input_tokens, written + part.usage.output_tokens
            cost, is_priced = cost + part.cost, is_priced and not part.unpriced
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
    """Return the first characters of a text on one line, in characters that every store accepts."""
    if not text:
        return ""
    line = " ".join(text[: 2 * _SEARCHED].split())[:_SEARCHED]
    if line.isascii() and line.isprintable():
        return line
    return line.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
