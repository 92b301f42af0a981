"""From what a command line says to a runner and to a task."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from treadle.agents.agent import Agent
from treadle.cli.screen import Screen
from treadle.core.messages import Json
from treadle.errors import ConfigurationError, NotFound, TaskNotFound
from treadle.ports import Observer, TaskFilter, TaskRow
from treadle.runner.runner import TaskRunner
from treadle.wiring import Runner, open_store

CODES: Final = {
    "completed": 0,
    "failed": 1,
    "degraded": 3,
    "waiting": 4,
    "paused": 5,
    "interrupted": 6,
    "cancelled": 7,
}
"""Exit codes by state; of a task that is between steps it is 0."""
USAGE: Final = 2
OUR_BUG: Final = 70

PREFIX: Final = 6
"""How many characters the beginning of an id needs at least: ids begin with their time."""
_PAGE: Final = 1_000

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="Path or URL of the journal; default TREADLE_STORE, else .treadle/journal.db."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, text on standard error.")
]
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Id of a task, a unique beginning or end of it, or `last`.")
]


def runner_on(
    store: str | None,
    agents: tuple[Agent[Any], ...] = (),
    *,
    make: bool = False,
    observers: tuple[Observer, ...] = (),
) -> Runner:
    """Return a runner on the named store.

    Args:
        store: as given with `--store`, or None.
        agents: whose code this process has.
        make: make the store if it is not there.
        observers: who is told what happens.

    Raises:
        NotFound: there is no store and none is to be made.
    """
    opened = open_store(store)
    path = getattr(opened, "path", None)
    if not make and isinstance(path, Path) and not path.exists():
        raise NotFound(f"there is no store at {path}: `treadle run` makes one, --store names another")
    return Runner(opened, agents=agents, observers=observers)


def in_loop(ctx: typer.Context, work: Callable[[Screen], Coroutine[Any, Any, int]]) -> int:
    """Run a command's work in an event loop and return its exit code; Ctrl-C ends what it does not handle itself."""
    screen = screen_of(ctx)
    try:
        return asyncio.run(work(screen))
    except KeyboardInterrupt:
        return interrupted(screen)


def interrupted(screen: Screen) -> int:
    """Print that Ctrl-C ended a command, and return the exit code that says so."""
    screen.document({"error": {"type": "KeyboardInterrupt", "message": "interrupted"}})
    screen.note(("interrupted", "yellow"))
    return CODES["interrupted"]


async def row_named(runner: TaskRunner, name: str) -> TaskRow:
    """Return the row of a task named by its id, a unique beginning (6 characters) or end of it, or `last`.

    A beginning that a task shares with its children means the task; `last` is nobody's child.

    Raises:
        TaskNotFound: none fits, or the name is that of a thread.
        ConfigurationError: several fit.
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
        some = ", ".join(row.task_id for row in rows[:4])
        raise ConfigurationError(f"{name!r} fits {len(rows)} tasks: {some}{', ...' if len(rows) > 4 else ''}")
    if not rows:
        await runner.get_task(name)  # raises, and says best what is wrong with the name
    return rows[0]


def _fits(task_id: str, name: str) -> bool:
    return task_id.endswith(name) or (len(name) >= PREFIX and task_id.startswith(name))


async def _rows_where(runner: TaskRunner, wanted: Callable[[str], bool]) -> list[TaskRow]:
    found: list[TaskRow] = []
    cursor = None
    while True:
        page = await runner.store.rows(TaskFilter(limit=_PAGE, cursor=cursor))
        found += [row for row in page if wanted(row.task_id)]
        if len(page) < _PAGE:
            return found
        cursor = page[-1].task_id


def command_line(*words: str, store: str | None = None, **options: str | None) -> str:
    """Return a command for a person to type, with the options that this one was given, but no password."""
    store = (
        None if store is None else re.sub(r"(?<=://)([^:/@]*):[^@]*@|(?<=[?&])password=[^&]*&?", _user, store)
    )
    given = {"store": store, **options}
    flags = [word for name, value in given.items() if value is not None for word in (f"--{name}", value)]
    return shlex.join([_program(), *words, *flags])


def _user(found: re.Match[str]) -> str:
    return "" if found[1] is None else f"{found[1]}@"


def _program() -> str:
    """Return what to type for this program: its path when it was called by one and is not on PATH."""
    called = Path(sys.argv[0])
    if called.name != "treadle" or shutil.which("treadle") is not None:
        return "treadle"
    near = os.path.relpath(called)
    return str(called.absolute()) if near.startswith(os.pardir) else near


def json_given(text: str, what: str) -> Json:
    """Return a value written as JSON; raises `ConfigurationError` that says how to write text."""
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigurationError(
            f"{what}: {text!r} is not JSON; text is written with quotes of its own: {json.dumps(text)!r}"
        ) from None


def screen_of(ctx: typer.Context) -> Screen:
    """Return where the command writes."""
    return ctx.obj
