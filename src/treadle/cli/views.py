"""`tasks`, `show`, `diff` and `verify`: the commands that only read. None needs the code of an agent."""

from __future__ import annotations

import time
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table
from rich.text import Text

from treadle.cli.command import (
    JsonOption,
    StoreOption,
    TaskArgument,
    in_loop,
    row_named,
    runner_on,
)
from treadle.cli.graph import draw
from treadle.cli.json_output import as_json
from treadle.cli.outcome import pending, spent, usage_words
from treadle.cli.screen import STYLES, Screen, clean, dollars, short
from treadle.cli.timeline import Timeline, words
from treadle.core.events import Event, Rewound, UndoRequested
from treadle.core.journal import unfold
from treadle.core.messages import Json
from treadle.engine.results import RunResult, Task, TaskStepOutput, TaskSummary
from treadle.errors import JournalCorrupt, TaskNotFound
from treadle.runner.runner import TaskRunner


def tasks(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only tasks of this agent.")
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Only tasks of this thread.")] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="TASK", help="Only the children of this task.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="At most so many.")] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on where the last page ended.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """List tasks, newest first."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            above = (await row_named(runner, parent)).task_id if parent is not None else None
            page = await runner.list_tasks(
                state=state, agent=agent, thread_id=thread, parent=above, limit=limit, cursor=cursor
            )
            found = [(item, await _snapshot(runner, item.task_id)) for item in page.items]
            screen.document({"items": [_item(*one) for one in found], "cursor": page.cursor})
            _table(screen, [_row(*one) for one in found])
            if page.cursor is not None:
                screen.note(f"more: --cursor {page.cursor}")
        return 0

    return in_loop(ctx, work)


async def _snapshot(runner: TaskRunner, task_id: str) -> Task | None:
    try:
        return await runner.get_task(task_id)
    except JournalCorrupt:
        return None  # shown as damaged; `verify` says where


Row: TypeAlias = tuple[str, str, str, str, str, str, str]


def _row(item: TaskSummary, task: Task | None) -> Row:
    if task is None:
        damaged = "(damaged: see `treadle verify`)"
        return item.task_id, item.state, item.agent, "?", "?", _age(item.created), damaged
    cost = task.usage.cost
    return (
        item.task_id,
        item.state,
        item.agent,
        str(task.steps),
        "?" if cost is None else dollars(cost),
        _age(item.created),
        short(words(task.input), 60),
    )


def _item(item: TaskSummary, task: Task | None) -> Json:
    """Return a task of a list as JSON: what the list knows of it, and what it spent."""
    spent = {"steps": task.steps, "usage": task.usage, "cost": task.usage.cost} if task is not None else {}
    return {**as_json(item), **as_json(spent)}


def _age(created: int) -> str:
    seconds = max(0.0, time.time() - created / 1e6)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _table(screen: Screen, rows: list[Row]) -> None:
    if not screen.out.is_terminal:
        for row in rows:
            screen.row(row)
        return
    table = Table("task", "state", "agent", "steps", "cost", "age", "input", box=None, padding=(0, 2, 0, 0))
    for task_id, state, *others in rows:
        table.add_row(
            Text(clean(task_id)), Text(state, STYLES.get(state, "")), *[Text(clean(x)) for x in others]
        )
    screen.out.print(table, soft_wrap=False)


# ---------------------------------------------------------------------------------------------- show


def show(
    ctx: typer.Context,
    task: TaskArgument,
    events: Annotated[bool, typer.Option("--events", help="With --json: every event too.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Show a task: its steps, calls and results, what it spent and what it waits for."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            task_id = (await row_named(runner, task)).task_id
            journal = await events_of(runner, task_id)
            snapshot, result = await runner.get_task(task_id), await runner.result(task_id)
            document: dict[str, Any] = {"task": snapshot, "result": result}
            steps, upcoming = await _steps(runner, task_id), await runner.get_upcoming_steps(task_id)
            document["steps"], document["upcoming"] = steps, upcoming
            below = await _children(runner, result)
            if below:
                document["children"] = below
            if events:
                document["events"] = journal
            screen.document(document)
            _header(screen, snapshot)
            undone = undone_steps(journal)
            timeline = Timeline(screen, undone=undone)
            for event in journal:
                timeline.show(event)
            draw(screen, steps, [info for info in upcoming if info.status in ("next", "blocked")])
            _show_children(screen, below)
            state = result.state
            screen.line(("● ", STYLES.get(state, "")), (state, STYLES.get(state, "")), "  ", spent(result))
            if result.error is not None:
                screen.line(("  ✗ ", "red"), f"{result.error.kind}: {result.error.message}")
            for reason in result.degraded_reasons:
                screen.line(("  ! ", "yellow"), reason)
            pending(screen, result.pending, task_id, store)
        return 0

    return in_loop(ctx, work)


async def events_of(runner: TaskRunner, task_id: str) -> list[Event]:
    """Return a task's events as they are now, those it shares with the task it was forked from first."""
    records = await runner.store.read(task_id)
    return [event for _, found in unfold(task_id, records) for event in found]


async def _children(runner: TaskRunner, result: RunResult) -> list[dict[str, Any]]:
    """Return the tasks below one, each with what came of it and those below it."""
    found: list[dict[str, Any]] = []
    for execution in result.subagent_executions:
        try:
            child = await runner.result(execution.task_id)
        except TaskNotFound:
            continue  # it had not begun when its parent was stopped
        known = {
            "task_id": execution.task_id,
            "agent": execution.name,
            "state": child.state,
            "usage": child.usage,
        }
        said = short(child.final_text or (child.error.message if child.error is not None else ""), 60)
        found.append({**known, "text": said, "children": await _children(runner, child)})
    return found


def _show_children(screen: Screen, below: list[dict[str, Any]], depth: int = 0) -> None:
    for child in below:
        state = str(child["state"])
        head = f"{'   ' * depth}└─ {child['agent']} "
        screen.line((head, "dim"), (state, STYLES.get(state, "")), f"  {child['text']}")
        screen.line((f"{'   ' * depth}   {child['task_id']} · {usage_words(child['usage'])}", "dim"))
        _show_children(screen, child["children"], depth + 1)


def undone_steps(journal: list[Event]) -> frozenset[str]:
    """Return the ids of the steps that were taken back."""
    undone: set[str] = set()
    asked: tuple[str, ...] = ()
    for event in journal:
        if isinstance(event, UndoRequested):
            asked = event.steps
        elif isinstance(event, Rewound):
            undone.update(asked)
    return frozenset(undone)


async def _steps(runner: TaskRunner, task_id: str) -> list[TaskStepOutput]:
    steps = list(await runner.get_completed_steps(task_id))
    begun = [
        info for info in await runner.get_upcoming_steps(task_id) if info.status not in ("next", "blocked")
    ]
    return steps + [await runner.get_step(task_id, info.step_id) for info in begun]


def _header(screen: Screen, task: Task) -> None:
    style = STYLES.get(task.state, "")
    screen.line(("task ", "dim"), (task.task_id, "bold"), "  ", (task.state, style), f"  {task.agent}")
    facts = [f"thread {task.thread_id}", f"attempt {task.attempt}", f"begun {_age(task.created)} ago"]
    if task.forked_from is not None:
        facts.append(f"forked from {task.forked_from} at event {task.forked_at}")
    if task.parent is not None:
        facts.append(f"child of {task.parent}")
    facts += [f"{key}={value}" for key, value in task.labels.items()]
    if task.driven:
        facts.append("a process is at work on it")
    screen.line((" · ".join(facts), "dim"))


# ------------------------------------------------------------------------------------ diff and verify


def diff(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="A task.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Name the first step in which two tasks differ, with both values."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            one, other = (await row_named(runner, a)).task_id, (await row_named(runner, b)).task_id
            found = await runner.diff(one, other)
        screen.document(found)
        if found.shared_events:
            screen.line((f"they share events 1 to {found.shared_events}", "dim"))
        if found.same:
            screen.line("nothing differs")
            return 0
        where = f"step {found.index}: {found.field}" if found.index is not None else str(found.field)
        screen.line((where, "bold"))
        screen.line(("- ", "red"), shown_value(found.value_a), (f"  {one}", "dim"))
        screen.line(("+ ", "green"), shown_value(found.value_b), (f"  {other}", "dim"))
        return 0

    return in_loop(ctx, work)


def shown_value(value: Any) -> str:
    """Return either side of a difference on one line."""
    from treadle.cli.json_output import as_json

    if isinstance(value, str):
        return short(value)
    if isinstance(value, tuple):
        return short(words(value))  # pyright: ignore[reportUnknownArgumentType]
    return short(repr(as_json(value)))
