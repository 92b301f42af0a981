"""Lists of tasks, for all stores: order, labels as keys of an index, figures and texts as columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from treadle.core.events import ForkChange
from treadle.errors import ConfigurationError
from treadle.ports import BETWEEN_STEPS, TaskFigures, TaskFilter, TaskRow, TaskSums

_LONGEST: Final = 200
"""Maximum length of a label in an index, in characters, since some indexes take no long texts."""

_FIELDS: Final = (
    ("s", "steps"),
    ("i", "input_tokens"),
    ("o", "output_tokens"),
    ("a", "cost"),
    ("t", "own_tokens"),
    ("c", "own_cost"),
    ("u", "updated"),
    ("q", "input"),
    ("r", "outcome"),
    ("p", "pending"),
    ("m", "model"),
)
"""The names of fields in the column `figures`. Sums read `t`, `c` and `m` there, filters `u` and `p`."""

_CHANGES: Final = "f"
"""The name of `fork_changes` in that column, which only forks have."""

_RARE: Final = (("h", "shared_steps"), ("b", "undos"))
"""The names of further fields in that column, which are written only where they are not 0."""


def position(cursor: str) -> tuple[int, str]:
    """Return the time and the id after which a list continues; raise `ConfigurationError`."""
    created, dot, task_id = cursor.partition(".")
    is_time = created.isascii() and created.isdecimal() and len(created) < 19  # the range of a column
    if not dot or not is_time or "\0" in task_id:
        raise ConfigurationError(f"cursor must be the cursor of the previous page, got {cursor!r:.80}")
    return int(created), task_id


def order(row: TaskRow) -> tuple[int, str]:
    """Return the sort key of lists, the newest last."""
    return row.created, row.task_id


def newest(pages: Iterable[Sequence[TaskRow]], limit: int) -> list[TaskRow]:
    """Return the newest rows of several lists."""
    rows = [row for page in pages for row in page]
    rows.sort(key=order, reverse=True)
    return rows[: max(limit, 0)]


def label_key(text: str) -> str:
    """Return the key of a label's name or text in an index: itself, unless it is long or a column refuses it."""
    if len(text) <= _LONGEST and "\0" not in text:
        return text
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def label_rows(labels: dict[str, str], created: int, task_id: str) -> list[tuple[str, str, int, str]]:
    """Return the rows of a task in the index of labels: name, text, time and id."""
    return [(label_key(name), label_key(value), created, task_id) for name, value in labels.items()]


def figures_column(figures: TaskFigures | None) -> tuple[str | None, str | None]:
    """Return figures in stored form: numbers and short texts as JSON, and the text for searches."""
    if figures is None:
        return None, None
    document = {key: getattr(figures, name) for key, name in _FIELDS}
    document |= {key: value for key, name in _RARE if (value := getattr(figures, name))}
    if figures.fork_changes:
        document[_CHANGES] = [[each.kind, each.text, each.tool, each.call] for each in figures.fork_changes]
    return json.dumps(document, separators=(",", ":")), figures.text.replace("\0", "\ufffd")


def figures_of_column(column: str | None) -> TaskFigures | None:
    """Return figures from their JSON, without the text for searches."""
    if column is None:
        return None
    document = json.loads(column)
    figures = {name: document[key] for key, name in (*_FIELDS, *_RARE) if key in document}
    return TaskFigures(
        **figures, fork_changes=tuple([ForkChange(*each) for each in document.get(_CHANGES, ())])
    )


def has_state(state: str, states: Sequence[str] | None, *, driven: bool) -> bool:
    """Return whether a task is in one of some states; None means all.

    Args:
        state: the task's state, as `TaskRow.display_state` has it.
        states: the states of a filter.
        driven: whether a living process drives the task.
    """
    return (
        states is None or state in states or (state == "running" and not driven and BETWEEN_STEPS in states)
    )


def resting_states(states: Sequence[str]) -> set[str]:
    """Return the stored states of those tasks without an owner that have one of some states."""
    return {"running" if state == BETWEEN_STEPS else state for state in states}


def is_match(row: TaskRow, task_filter: TaskFilter, text: str | None) -> bool:
    """Return whether a row matches a filter, including state and cursor.

    Args:
        row: the row.
        task_filter: the filter.
        text: its text for searches; None if it has no figures.
    """
    return (
        row.tenant == task_filter.tenant
        and has_state(
            row.display_state, task_filter.states, driven=row.driver is not None and row.driver.alive
        )
        and (task_filter.agent is None or row.agent == task_filter.agent)
        and (task_filter.thread_id is None or row.thread_id == task_filter.thread_id)
        and (task_filter.parent is None or row.parent == task_filter.parent)
        and (task_filter.base is None or row.base == task_filter.base)
        and (task_filter.since is None or row.created >= task_filter.since)
        and (task_filter.until is None or row.created < task_filter.until)
        and all(row.labels.get(name) == value for name, value in (task_filter.labels or {}).items())
        and (task_filter.search is None or text is None or task_filter.search in text)
        and (task_filter.beginning is None or row.task_id.startswith(task_filter.beginning))
        and (task_filter.end is None or row.task_id.endswith(task_filter.end))
        and (task_filter.cursor is None or order(row) < position(task_filter.cursor))
        and not (task_filter.roots and row.parent is not None)
        and (row.driver is not None or _is_recent_and_waits(row, task_filter))
    )


def _is_recent_and_waits(row: TaskRow, task_filter: TaskFilter) -> bool:
    """Return whether the figures of a task without an owner fit a filter."""
    figures = row.figures
    if task_filter.pending and figures is not None and figures.pending == 0:
        return False
    updated = row.created if figures is None else figures.updated
    return task_filter.updated_since is None or updated >= task_filter.updated_since


def label_of(by: str) -> str:
    """Return the name of the label for sums of usage, as a key of the index of labels."""
    return label_key(by.removeprefix("label:"))


def usage_key(row: TaskRow, by: str) -> str | None:
    """Return the key of a task for sums of usage; see `JournalReader.usage`."""
    if by == "agent":
        return row.agent
    if by == "day":
        return datetime.fromtimestamp(row.created // 1_000_000, UTC).date().isoformat()
    if by == "model":
        return (row.figures.model or None) if row.figures is not None else None
    value = row.labels.get(by.removeprefix("label:"))
    return None if value is None else label_key(value)


def sums_of(row: TaskRow) -> TaskSums:
    """Return the contribution of one task to sums."""
    figures, driven = row.figures, int(row.driver is not None and row.driver.alive)
    if figures is None:
        return TaskSums(1, unpriced=1, driven=driven)
    return TaskSums(1, figures.own_tokens, figures.own_cost or 0, int(figures.own_cost is None), driven)
