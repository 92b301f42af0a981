"""Find a task by its name on the command line, and select tasks by options."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final

import typer

from treadle.cli.command import Session, option
from treadle.cli.remote import FoundTask, find_on_server, task_of
from treadle.cli.screen import STYLES, short, short_ids, some
from treadle.cli.times import time_of
from treadle.client import Client
from treadle.core.data import frozen
from treadle.drivers.arguments import NEWEST
from treadle.errors import ConfigurationError, TaskNotFound, TreadleError
from treadle.ports import TaskFilter, TaskRow
from treadle.results.run_result import RunResult
from treadle.results.tasks import TaskSummary
from treadle.runner.runner import TaskRunner

PREFIX: Final = 6
"""Minimum number of characters of an id's beginning that name a task, since ids begin with their time."""
_MANY: Final = 100

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Id of a task, a unique end or beginning of it, or `last`.")
]


async def find_task(runner: TaskRunner, name: str) -> FoundTask:
    """Return the row of a task by its id, a unique end or beginning of it, or `last`.

    A beginning has at least 6 characters; one that a task shares with its children names the task. `last` is the newest
    task without a parent.

    Raises:
        TaskNotFound: no task matches, or the name is that of a thread.
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
    """Return the row of a task in a store; see `find_task`. The name must not be empty."""
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
            await runner.get_task(name)  # raises the error that explains the problem
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


_PAGE = 200

_SHOWN = 20

ManyArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TASK]", help="Id of a task, a unique end or beginning of it, or `last`."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before acting on several tasks.")]
NameOption = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only tasks of the agent of this name.")
]


@frozen(kw_only=True)
class TaskOptions:
    """A selection of tasks: all that match every option on the command line."""

    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only tasks in this state; may be repeated.")
    ] = None
    thread: Annotated[str | None, typer.Option("--thread", help="Only tasks of this thread.")] = None
    parent: Annotated[str | None, option("TASK", "Only the children of this task.")] = None
    label: Annotated[list[str] | None, option("KEY=TEXT", "Only tasks with this label; may be repeated.")] = (
        None
    )
    since: Annotated[
        str | None, option("TIME", "Created at this time or later: 2h, 03:15, today, 2026-11-22.")
    ] = None
    until: Annotated[str | None, option("TIME", "Created before this time, written likewise.")] = None
    search: Annotated[
        str | None, option("TEXT", "Text in the beginning of the input, the answer or the error.")
    ] = None

    roots: Annotated[bool, typer.Option("--roots", help="Only tasks that no other task called.")] = False
    forked_from: Annotated[str | None, option("TASK", "Only the forks of this task.")] = None
    updated_since: Annotated[
        str | None, option("TIME", "Created, stopped or taken up at this time or later, or driven now.")
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any of the options was used."""
        return any(getattr(self, item.name) for item in fields(self))

    def refuse_beside(self, task: str, agent: str | None = None) -> None:
        """Raise `ConfigurationError` if tasks are selected by options and one also by name."""
        if self.is_given or agent is not None:
            raise ConfigurationError(
                f"name one task ({task}), or several by options such as --state: not both"
            )

    async def filters(self, runner: TaskRunner, agent: str | None = None) -> dict[str, Any]:
        """Return the selection as arguments of `list_tasks` and `count_tasks`; `agent` is a name."""
        filters: dict[str, Any] = {
            "state": self.state or None,
            "agent": agent,
            "thread_id": self.thread,
            "parent": (await find_task(runner, self.parent)).task_id if self.parent else None,
            "labels": dict(label(item) for item in self.label) if self.label else None,
            "since": time_of(self.since, "--since") if self.since is not None else None,
            "until": time_of(self.until, "--until") if self.until is not None else None,
            "search": self.search,
            "roots": self.roots or None,
            "forked_from": (await find_task(runner, self.forked_from)).task_id if self.forked_from else None,
            "updated_since": time_of(self.updated_since, "--updated-since") if self.updated_since else None,
        }
        return {name: value for name, value in filters.items() if value is not None}


async def selected_tasks(
    runner: TaskRunner, which: TaskOptions, agent: str | None, can: Callable[[TaskSummary], bool]
) -> list[TaskSummary]:
    """Return the selected tasks on which a command can act, newest first; children follow their parents.

    Raises:
        ConfigurationError: no option selects tasks.
    """
    if not which.is_given and agent is None:
        raise ConfigurationError(
            "which tasks? Name one (TASK), or several by options such as --state waiting or --since 2h"
        )
    filters = await which.filters(runner, agent)
    return [item async for item in all_tasks(runner, filters) if item.parent is None and can(item)]


def confirmed(session: Session, verb: str, tasks: Sequence[TaskSummary], *, yes: bool) -> bool:
    """Show the tasks on which a command would act, and return whether `--yes` or a person confirms it.

    Raises:
        ConfigurationError: no person can be asked, and `--yes` is missing.
    """
    screen = session.screen
    screen.document({"items": [], "cursor": None})
    shown = short_ids([item.task_id for item in tasks])
    for item in tasks[:_SHOWN]:
        text = short(item.input, 60)
        screen.note(
            (shown[item.task_id], "bold"), "  ", (item.state_text, STYLES.get(item.state, "")), f"  {text}"
        )
    if len(tasks) > _SHOWN:
        screen.note((f"and {len(tasks) - _SHOWN} more", "dim"))
    if not tasks:
        screen.note("no task that this command could act on matches")
        return True
    if yes:
        return True
    if not (sys.stdin.isatty() and screen.err.is_terminal):
        raise ConfigurationError(f"to {verb} {some(len(tasks), 'task')} without being asked, add --yes")
    return typer.confirm(f"{verb} {some(len(tasks), 'task')}?", err=True)


async def each(
    session: Session,
    tasks: Sequence[TaskSummary],
    act: Callable[[TaskSummary], Awaitable[RunResult]],
    is_reached: Callable[[str], bool],
    at_once: int = 8,
) -> int:
    """Act on several tasks at a time and print their states; return 0 if all reach the wanted state, else 1."""
    screen, gate = session.screen, asyncio.Semaphore(at_once)
    shown = short_ids([item.task_id for item in tasks]) if screen.out.is_terminal else {}
    states: dict[str, str] = {}

    async def act_on(item: TaskSummary) -> None:
        async with gate:
            try:
                result = await act(item)
                states[item.task_id] = result.state
                text, style = result.state_text, STYLES.get(result.state, "")
                detail = result.error.message if result.error is not None else result.final_text
            except TreadleError as error:
                states[item.task_id], text, style, detail = "refused", "refused", "red", str(error)
        screen.line(
            ("● ", style), (text, style), f"  {shown.get(item.task_id, item.task_id)}  ", short(detail, 80)
        )

    await asyncio.gather(*[act_on(item) for item in tasks])
    screen.document(
        {"items": [{"task_id": key, "state": state} for key, state in states.items()], "cursor": None}
    )
    reached = sum(is_reached(state) for state in states.values())
    screen.note((f"{reached} of {some(len(tasks), 'task')}", "green" if reached == len(tasks) else "red"))
    return 0 if reached == len(tasks) else 1


async def all_tasks(runner: TaskRunner, filters: dict[str, Any]) -> AsyncGenerator[TaskSummary]:
    """Yield all matching tasks, newest first, reading a page at a time."""
    cursor = None
    while True:
        page = await runner.list_tasks(**filters, limit=_PAGE, cursor=cursor)
        for item in page.items:
            yield item
        if page.cursor is None:
            return
        cursor = page.cursor


def label(item: str) -> tuple[str, str]:
    """Return the key and the text of `KEY=TEXT`; raise `ConfigurationError`."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"--label takes KEY=TEXT, not {item!r}")
    return key, value
