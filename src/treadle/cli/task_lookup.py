"""Find a task by its name on the command line."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from treadle.cli.remote import FoundTask, find_on_server, task_of
from treadle.client import Client
from treadle.drivers.arguments import NEWEST
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.ports import TaskFilter, TaskRow
from treadle.runner.runner import TaskRunner

PREFIX: Final = 6
"""Fewest characters of an id's beginning that name a task: ids begin with their time."""
_MANY: Final = 100

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Id of a task, a unique end or beginning of it, or `last`.")
]


async def find_task(runner: TaskRunner, name: str) -> FoundTask:
    """Return the row of a task by its id, a unique end or beginning (6 characters) of it, or `last`.

    A beginning that a task shares with its children names the task. `last` is the newest task without a parent.

    Raises:
        TaskNotFound: no task matches, or the name is a thread's.
        ConfigurationError: several tasks match.
    """
    if not name:
        raise ConfigurationError(
            "TASK is empty: name a task by its id, a unique beginning or end of it, or `last`"
        )
    if isinstance(runner, Client):
        return await find_on_server(runner, name, PREFIX)
    return await find_row(runner, name)


async def find_row(runner: TaskRunner, name: str) -> TaskRow:
    """Return the row of a task in a store: `find_task` for names that are not empty."""
    store = runner.store
    await store.open()
    if name == NEWEST:
        return await _newest_root(runner)
    try:
        return await store.row(name)
    except TaskNotFound:
        rows = await store.rows(TaskFilter(end=name, limit=_MANY))
        if len(name) >= PREFIX:
            rows += await store.rows(TaskFilter(beginning=name, limit=_MANY))
    ids = {row.task_id for row in rows}
    rows = [row for row in rows if row.parent not in ids]
    if len({row.task_id for row in rows}) > 1:
        some_ids = ", ".join(row.task_id for row in rows[:4])
        count = f"{len(rows)}" if len(ids) < _MANY else f"{_MANY} or more"
        raise ConfigurationError(
            f"{name!r} fits {count} tasks: {some_ids}{', ...' if len(rows) > 4 else ''}; give more of the end of the id"
        )
    if not rows:
        try:
            await runner.get_task(name)  # raises the error that explains the name's problem
        except TaskNotFound as error:
            raise TaskNotFound(
                f"{error}; `treadle tasks` lists the tasks, and `last` is the newest"
            ) from None
    return rows[0]


async def _newest_root(runner: TaskRunner) -> TaskRow:
    cursor = None
    while page := await runner.store.rows(TaskFilter(limit=_MANY, cursor=cursor)):
        for row in page:
            if row.parent is None:
                return row
        cursor = page[-1].cursor
    raise TaskNotFound(f"there is no task in {runner.store.url} yet")


async def root_of(runner: TaskRunner, row: FoundTask) -> str | None:
    """Return the task to resume for a child: its topmost ancestor; None for a task without a parent."""
    root = None
    while row.parent is not None:
        root = row.parent
        row = await task_of(runner, root)
    return root
