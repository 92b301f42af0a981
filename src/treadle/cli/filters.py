"""The options that say which tasks a command means: those of `tasks`, and of the commands that act on several."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import fields
from typing import Annotated, Any

import typer

from treadle.cli.task_lookup import find_task
from treadle.cli.times import time_of
from treadle.core.data import frozen
from treadle.engine.results import TaskSummary
from treadle.errors import ConfigurationError
from treadle.runner.runner import TaskRunner

_PAGE = 200

NameOption = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only tasks of the agent of this name.")
]


@frozen(kw_only=True)
class TaskOptions:
    """Which tasks are meant: all that match every option that was typed."""

    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only tasks in this state; may be repeated.")
    ] = None
    thread: Annotated[str | None, typer.Option("--thread", help="Only tasks of this thread.")] = None
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="TASK", help="Only the children of this task.")
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=TEXT", help="Only tasks with this label; may be repeated."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Created then or later: 2h, 03:15, today, 2026-11-22."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Created before that, written likewise.")
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            "--search", metavar="TEXT", help="Text in the beginning of the input, the answer or the error."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether any of the options was typed."""
        return any(getattr(self, item.name) for item in fields(self))

    async def filters(self, runner: TaskRunner, agent: str | None = None) -> dict[str, Any]:
        """Return the arguments of `list_tasks` and `count_tasks` for what was typed; `agent` is a name."""
        filters: dict[str, Any] = {
            "state": self.state or None,
            "agent": agent,
            "thread_id": self.thread,
            "parent": (await find_task(runner, self.parent)).task_id if self.parent else None,
            "labels": dict(label(item) for item in self.label) if self.label else None,
            "since": time_of(self.since, "--since") if self.since is not None else None,
            "until": time_of(self.until, "--until") if self.until is not None else None,
            "search": self.search,
        }
        return {name: value for name, value in filters.items() if value is not None}


async def all_tasks(runner: TaskRunner, filters: dict[str, Any]) -> AsyncGenerator[TaskSummary]:
    """Yield all tasks that match, newest first, a page at a time."""
    cursor = None
    while True:
        page = await runner.list_tasks(**filters, limit=_PAGE, cursor=cursor)
        for item in page.items:
            yield item
        if page.cursor is None:
            return
        cursor = page.cursor


def label(item: str) -> tuple[str, str]:
    """Return the key and the text of `KEY=TEXT`; raises `ConfigurationError`."""
    key, equals, value = item.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"--label takes KEY=TEXT, not {item!r}")
    return key, value
