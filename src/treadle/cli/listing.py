"""`tasks`: the tasks of a store, their drivers and their spending, once or continuously."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from treadle.cli.command import Session, command
from treadle.cli.event_lines import content_text
from treadle.cli.filters import NameOption, TaskOptions, all_tasks
from treadle.cli.screen import STYLES, Screen, dollars, short, short_ids, some, styled
from treadle.cli.times import age, short_time
from treadle.cli.wrapping import wrapped
from treadle.core.messages import Json
from treadle.errors import ConfigurationError, JournalCorrupt, TaskNotFound
from treadle.ports import Driver
from treadle.results.pending import Pending
from treadle.results.tasks import Task, TaskSummary, TaskTotals
from treadle.results.wire import to_wire
from treadle.runner.runner import TaskRunner

_WIDE: Final = 100
"""Minimum width of a terminal, in columns, for separate columns of times and labels."""

_NAME: Final = 20
_SHORT_NAME: Final = 10
"""Maximum number of characters of an agent's name, on a wide and on a narrow screen."""

_EVERY: Final = 1.0
"""Seconds between two reads of the store."""


@command
async def tasks(
    session: Session,
    *,
    which: TaskOptions,
    agent: NameOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000, help="Maximum number of tasks to list.")
    ] = 20,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Continue after the page that ended with this cursor.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="List again as tasks change, until Ctrl-C; in a pipe, a line a change."),
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="List tasks without a parent, each with the tasks of its subagents below it."
        ),
    ] = False,
) -> int:
    """List tasks, newest first, with their totals."""
    if tree and watch:
        raise ConfigurationError("tasks takes --tree or --watch, not both")
    async with session.runner() as runner:
        filters = await which.filters(runner, agent)
        if watch:
            return await _watch(session, runner, filters, limit)
        page = await (_Page.read_trees if tree else _Page.read)(runner, filters, limit, cursor)
    screen = session.screen
    items = _nested(page.rows) if tree else [row.as_item() for row in page.rows]
    screen.document({"items": items, "cursor": page.cursor, "totals": page.totals})
    if screen.out.is_terminal:
        for line in page.lines(screen):
            screen.out.print(line, soft_wrap=False, no_wrap=True, overflow="ellipsis")
    else:
        screen.table((), [row.as_columns() for row in page.rows])
    if page.cursor is not None:
        left = page.totals.tasks - len(page.rows)
        is_counted = cursor is None and not tree
        hint = f"{left} more: --cursor {page.cursor}" if is_counted else f"more: --cursor {page.cursor}"
        screen.note(hint)
    return 0


async def _watch(session: Session, runner: TaskRunner, filters: dict[str, Any], limit: int) -> int:
    """List tasks repeatedly: in place on a terminal, else one line for each task whose state changed."""
    screen = session.screen
    if screen.out.is_terminal and not screen.json:
        room = max(1, min(limit, screen.out.height - 4))
        with Live(console=screen.out, auto_refresh=False, transient=False) as live:
            while True:
                page = await _Page.read(runner, filters, room, None)
                live.update(Group(*page.lines(screen)), refresh=True)
                await asyncio.sleep(_EVERY)
    states: dict[str, str] = {}
    while True:
        page = await _Page.read(runner, filters, limit, None)
        for row in reversed(page.rows):
            if states.get(row.item.task_id) != row.item.state:
                states[row.item.task_id] = row.item.state
                screen.entry(row.as_item())
                if not screen.json:
                    screen.table((), [row.as_columns()])
                    screen.out.file.flush()
        await asyncio.sleep(_EVERY)


class _Row:
    """A task of a list: its summary, and its current progress if a driver works on it."""

    def __init__(
        self,
        item: TaskSummary,
        task: Task | None,
        *,
        is_damaged: bool = False,
        pending: Sequence[Pending] = (),
    ) -> None:
        self.item = item
        self.depth = 0
        """in a tree: the number of ancestors in the list"""

        self.branches = ""
        """in a tree: the branch lines before it"""

        self.is_damaged = is_damaged
        self.waits_for = [f"{each.kind} of {each.tool or 'a step'}" for each in pending]
        self.steps, self.cost = item.steps, item.cost
        self.tokens = (item.input_tokens or 0) + (item.output_tokens or 0)
        self.input = item.input
        if task is not None:
            self.steps, self.cost, self.tokens = task.steps, task.usage.cost, task.usage.total_tokens
            self.input = self.input or short(content_text(task.input), 120)

    @classmethod
    async def read(cls, runner: TaskRunner, item: TaskSummary) -> _Row:
        """Read facts that the summary lacks, for owned and waiting tasks, new forks, and tasks of older versions."""
        waits = item.state == "waiting"
        if item.steps is not None and item.driver is None and not waits:
            return cls(item, None)
        try:
            pending = [each async for each in await runner.list_pending(item.task_id)] if waits else ()
            if waits and not pending:
                pending = (await runner.result(item.task_id)).pending
            return cls(item, await runner.get_task(item.task_id), pending=pending)
        except JournalCorrupt:
            return cls(item, None, is_damaged=True)
        except TaskNotFound:
            return cls(item, None)  # the task was deleted meanwhile

    def as_item(self) -> dict[str, Any]:
        """Return the task as `--json` prints it."""
        spent = {"steps": self.steps, "tokens": self.tokens, "cost": self.cost, "input": self.input}
        return {**to_wire(self.item), **spent, "waits_for": list(self.waits_for)}

    def as_columns(self) -> Sequence[str]:
        """Return the columns for programs: uncut, in a stable order."""
        item = self.item
        labels = ",".join(f"{key}={value}" for key, value in item.labels.items())
        owner = "" if item.driver is None else _owner(item.driver, full=True)
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.created / 1e6))
        spent = (
            "" if self.steps is None else str(self.steps),
            "?" if self.cost is None else f"{self.cost:f}",
        )
        return (
            item.task_id,
            item.state_text,
            item.agent,
            *spent,
            created,
            owner,
            labels,
            self.text(),
            *([", ".join(self.waits_for)] if self.waits_for else []),
        )

    def text(self) -> str:
        """Return the input, or that the task is damaged."""
        return "(damaged: see `treadle verify`)" if self.is_damaged else self.input


class _Page:
    """A page of a list, with the totals of the whole list."""

    def __init__(self, rows: list[_Row], cursor: str | None, totals: TaskTotals) -> None:
        self.rows = rows
        self.cursor = cursor
        self.totals = totals

    @classmethod
    async def read(cls, runner: TaskRunner, filters: dict[str, Any], limit: int, cursor: str | None) -> _Page:
        page = await runner.list_tasks(**filters, limit=limit, cursor=cursor)
        rows = [await _Row.read(runner, item) for item in page.items]
        return cls(rows, page.cursor, await runner.count_tasks(**filters))

    @classmethod
    async def read_trees(
        cls, runner: TaskRunner, filters: dict[str, Any], limit: int, cursor: str | None
    ) -> _Page:
        """Read whole trees from their roots; `limit` and the filters apply to the roots."""
        rows: list[_Row] = []
        roots = 0
        while True:
            page = await runner.list_tasks(**filters, limit=limit - roots, cursor=cursor)
            cursor = page.cursor
            for item in page.items:
                if item.parent == filters.get("parent"):
                    rows += await _tree(runner, item, 0)
                    roots += 1
            if cursor is None or roots == limit:
                return cls(rows, cursor, await runner.count_tasks(**filters))

    def lines(self, screen: Screen) -> list[Text]:
        """Return the page as lines that fit the screen; the input gets the space that the other columns leave."""
        is_wide = screen.out.width >= _WIDE
        shown = short_ids([row.item.task_id for row in self.rows])
        header = ["task", "state", "agent", "cost", "created" if is_wide else "age"]
        header += ["steps"] if is_wide else []
        cells = [self._cells(row, shown[row.item.task_id], is_wide=is_wide) for row in self.rows]
        widths = [max(len(line[n]) for line in [header, *cells]) for n in range(len(header))]
        lines = [styled([("  ".join(_aligned(header, widths)) + "  input", "bold")])]
        for row, line in zip(self.rows, cells, strict=True):
            item = row.item
            task_id, state, *rest = _aligned(line, widths)
            labels = " ".join(f"{key}={value}" for key, value in item.labels.items()) if is_wide else ""
            parts: list[str | tuple[str, str]] = [(task_id, "bold")]
            parts += ["  ", (state, STYLES.get(item.state, "")), "  ", "  ".join(rest), "  "]
            if item.driver is not None:
                parts += [(f"@{_owner(item.driver)}", "blue" if item.driver.alive else "red"), " "]
            parts += [(labels, "cyan"), " "] if labels else []
            parts += [(f"waits for {', '.join(row.waits_for)}", "yellow"), " "] if row.waits_for else []
            parts.append(short(row.text(), 300))
            lines.append(styled(parts))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
            line.truncate(screen.out.width, overflow="ellipsis")
        return [*lines, *_totals(self.totals, screen)] if self.rows else [styled([("no tasks", "dim")])]

    def _cells(self, row: _Row, shown: str, *, is_wide: bool) -> list[str]:
        item, size = row.item, _NAME if is_wide else _SHORT_NAME
        agent = item.agent if len(item.agent) <= size else f"{item.agent[: size - 1]}…"
        cost = "?" if row.cost is None else f"${row.cost:,.4f}" if row.cost < 1 else dollars(row.cost)
        created = short_time(item.created) if is_wide else age(item.created)
        cells = [f"{row.branches}{shown}", item.state_text, agent, cost, created]
        return [*cells, "?" if row.steps is None else str(row.steps)] if is_wide else cells


async def _tree(
    runner: TaskRunner, item: TaskSummary, depth: int, above: str = "", mark: str = ""
) -> list[_Row]:
    """Return a task and all its descendants, parents first, in the order of their calls.

    Args:
        runner: reads the tasks.
        item: the task.
        depth: the number of its ancestors.
        above: the branch lines before its mark.
        mark: the branch that connects it with its parent.
    """
    row = await _Row.read(runner, item)
    row.depth, row.branches = depth, above + mark
    rows = [row]
    children = [child async for child in all_tasks(runner, {"parent": item.task_id})]
    inside = above + {"": "", "├─ ": "│  ", "└─ ": "   "}[mark]
    for number, child in enumerate(reversed(children), 1):
        branch = "└─ " if number == len(children) else "├─ "
        rows += await _tree(runner, child, depth + 1, inside, branch)
    return rows


def _nested(rows: Sequence[_Row]) -> list[Json]:
    """Return trees for `--json`: each task has its children in `children`."""
    roots: list[Json] = []
    levels: list[list[Json]] = [roots]
    for row in rows:
        children: list[Json] = []
        levels[row.depth].append({**row.as_item(), "children": children})
        levels[row.depth + 1 :] = [children]
    return roots


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if number in (3, 5) else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _totals(totals: TaskTotals, screen: Screen) -> list[Text]:
    parts: list[str | tuple[str, str]] = [(some(totals.tasks, "task"), "bold")]
    states = dict(totals.states)
    if between_steps := states.get("running", 0) - totals.driven:
        states |= {"running": totals.driven, "between steps": between_steps}
    for state, count in sorted(states.items(), key=lambda pair: -pair[1]):
        parts += [" · ", (f"{count} {state}", STYLES.get(state, ""))] if count else []
    spent = [f"{totals.tokens:,} tokens"]
    if totals.cost or not totals.unpriced:
        spent.append(dollars(totals.cost))
    if totals.unpriced:
        spent.append(f"cost of {some(totals.unpriced, 'task')} not known")
    return [wrapped(styled(parts), screen.out), wrapped(styled([(" · ".join(spent), "dim")]), screen.out)]


def _owner(driver: Driver, *, full: bool = False) -> str:
    """Return the process that drives a task, and whether it is alive."""
    host = driver.host if full or driver.host != socket.gethostname() else ""
    is_own = driver.pid == os.getpid() and not host
    name = "here" if is_own else f"{host}:{driver.pid}" if host else str(driver.pid)
    return name if driver.alive else f"{name} dead"
