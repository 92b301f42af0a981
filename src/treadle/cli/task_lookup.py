"""Find the task that a person names on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from treadle.errors import ConfigurationError, TaskNotFound
from treadle.ports import TaskFilter, TaskRow
from treadle.runner.runner import TaskRunner

PREFIX: Final = 6
"""The fewest characters by which the beginning of an id names a task: ids begin with their time."""
_PAGE: Final = 1_000

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Id of a task, a unique beginning or end of it, or `last`.")
]


async def find_task(runner: TaskRunner, name: str) -> TaskRow:
    """Return the row of a task named by its id, a unique beginning (6 characters) or end of it, or `last`.

    A beginning that a task shares with its children means the task. `last` is the newest task without a parent.

    Raises:
        TaskNotFound: no task fits, or the name is that of a thread.
        ConfigurationError: several tasks fit.
    """
    if not name:
        raise ConfigurationError(
            "TASK is empty: name a task by its id, a unique beginning or end of it, or `last`"
        )
    await runner.store.open()
    if name == "last":
        rows = [row for row in await _rows_where(runner, lambda _: True) if row.parent is None]
        if not rows:
            raise TaskNotFound(f"there is no task in {runner.store.url} yet")
        return max(rows, key=lambda row: (row.created, row.task_id))
    try:
        return await runner.store.row(name)
    except TaskNotFound:
        rows = await _rows_where(runner, lambda task_id: _fits(task_id, name))
        ids = {row.task_id for row in rows}
        rows = [row for row in rows if row.parent not in ids]
    if len(rows) > 1:
        examples = ", ".join(row.task_id for row in rows[:4])
        raise ConfigurationError(
            f"{name!r} fits {len(rows)} tasks: {examples}{', ...' if len(rows) > 4 else ''}"
        )
    if not rows:
        await runner.get_task(name)  # raises the error that explains what is wrong with the name
    return rows[0]


def _fits(task_id: str, name: str) -> bool:
    return task_id.endswith(name) or (len(name) >= PREFIX and task_id.startswith(name))


async def _rows_where(runner: TaskRunner, matches: Callable[[str], bool]) -> list[TaskRow]:
    rows: list[TaskRow] = []
    cursor = None
    while True:
        page = await runner.store.rows(TaskFilter(limit=_PAGE, cursor=cursor))
        rows += [row for row in page if matches(row.task_id)]
        if len(page) < _PAGE:
            return rows
        cursor = page[-1].task_id


async def root_of(runner: TaskRunner, row: TaskRow) -> str | None:
    """Return the task to resume for a child: its topmost ancestor; None for a task without a parent."""
    root = None
    while row.parent is not None:
        root = row.parent
        row = await runner.store.row(root)
    return root
