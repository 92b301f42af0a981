"""Commands that only read: `show`, `diff`, `usage` and `agents`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from treadle.cli import agents as agent_places
from treadle.cli.command import Session, command, option
from treadle.cli.event_lines import content_text
from treadle.cli.filters import NameOption, TaskArgument, find_task, label, root_of
from treadle.cli.graph import draw
from treadle.cli.outcome import print_next, print_pending, print_state, usage_summary
from treadle.cli.remote import events_after
from treadle.cli.screen import STYLES, Screen, dollars, short
from treadle.cli.timeline import Timeline
from treadle.cli.times import age, duration, local_time, time_of
from treadle.client import Client
from treadle.core.events import END_STATES, Event, Rewound, TaskEnded, UndoRequested
from treadle.core.observation import as_text
from treadle.errors import AgentUnknown, TaskNotFound
from treadle.results.agent_info import AgentInfo, agent_info
from treadle.results.read_results import UsageLine
from treadle.results.run_result import RunResult
from treadle.results.states import state_text
from treadle.results.step_outputs import TaskStepOutput
from treadle.results.tasks import Task
from treadle.results.wire import to_wire
from treadle.runner.runner import TaskRunner

_COLUMNS: Final = ("tasks", "tokens", "cost", "without a price")


@command
async def usage(
    session: Session,
    by: Annotated[str, option("agent|day|model|label:NAME", "The key of the sums.")] = "agent",
    since: Annotated[
        str | None, option("TIME", "Created at this time or later: 2h, 03:15, today, 2026-11-22.")
    ] = None,
    until: Annotated[str | None, option("TIME", "Created before this time, written likewise.")] = None,
    agent: NameOption = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=TEXT", help="Only tasks with this label; may be repeated."),
    ] = None,
) -> int:
    """Show the spending of tasks, summed by agent, day (of their creation, UTC), model or label."""
    screen = session.screen
    async with session.runner() as runner:
        report = await runner.usage(
            since=time_of(since, "--since") if since is not None else None,
            until=time_of(until, "--until") if until is not None else None,
            by=by,
            agent=agent,
            labels=dict(label(item) for item in labels) if labels else None,
        )
    screen.document(report)
    is_table = screen.out.is_terminal
    screen.table((by, *_COLUMNS), [_cells(line, is_table=is_table) for line in (*report.lines, report.total)])
    return 0


def _cells(line: UsageLine, *, is_table: bool) -> tuple[str, ...]:
    """Return the cells of a line: rounded amounts for people, exact ones for programs."""
    if is_table:
        return (
            line.key or "-",
            f"{line.tasks:,}",
            f"{line.tokens:,}",
            dollars(line.cost),
            f"{line.unpriced:,}",
        )
    return line.key or "", str(line.tasks), str(line.tokens), f"{line.cost:f}", str(line.unpriced)


@command
async def agents(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only the agent of this name.")] = None,
) -> int:
    """List the agents of this project or of a server, with their models, tools and subagents."""
    screen = session.screen
    infos = await _agents_of(session)
    if name is not None:
        chosen = [agent for agent in infos if agent.name == name]
        if not chosen:
            names = ", ".join([agent.name for agent in infos]) or "none"
            raise AgentUnknown(f"there is no agent {name!r}; the agents are: {names}")
        infos = chosen
    screen.document({"items": infos, "cursor": None})
    screen.table(
        ("agent", "model", "tools", "subagents"),
        [
            (
                agent.name,
                agent.model,
                ", ".join([*[tool.name for tool in agent.tools], *agent.toolsets]),
                ", ".join([*agent.subagents, *agent.handoffs]),
            )
            for agent in infos
        ],
    )
    if not infos:
        screen.note(f"no agents: {agent_places.LISTING}")
    return 0


async def _agents_of(session: Session) -> list[AgentInfo]:
    """Return the agents of the server in `--url`, else the project's; a note names those that failed to import."""
    if session.url is not None:
        async with session.runner() as runner:
            assert isinstance(runner, Client), "a command with --url has a client"
            return list(await runner.get_agents())
    listed = agent_places.listed_agents()
    for path, problem in listed.problems.items():
        session.screen.note(("note: ", "yellow"), f"{path}: {problem}")
    return [agent_info(agent) for _, agent in sorted(listed.agents.items())]


_STATE_SHOWN: Final = 2_000
"""Maximum number of characters of a task's extra state; `--json` prints all of it."""


@command
async def show(
    session: Session,
    task: TaskArgument,
    events: Annotated[bool, typer.Option("--events", help="With --json: include every event.")] = False,
    at: Annotated[
        int | None, option("SEQ", "The state of the task just after the event of this number.", min=1)
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="Open the task in a browser, as `treadle inspect` does.")
    ] = False,
) -> int:
    """Show a task: its steps, calls and results, its spending and its pending requests."""
    if web:
        return await _show_in_browser(session, task)
    if at is not None:
        return await _show_past(session, task, at, events=events)
    screen = session.screen
    async with session.runner() as runner:
        row = await find_task(runner, task)
        task_id, root = row.task_id, await root_of(runner, row)
        journal = await events_of(runner, task_id)
        snapshot, result = await runner.get_task(task_id), await runner.result(task_id)
        steps, upcoming = await _steps(runner, task_id), await runner.get_upcoming_steps(task_id)
        children = await _children(runner, result)
    document: dict[str, Any] = {"task": snapshot, "result": result, "steps": steps, "upcoming": upcoming}
    if children:
        document["children"] = children
    if events:
        document["events"] = journal
    screen.document(document)
    _print_header(screen, snapshot, journal)
    timeline = Timeline(screen, undone=undone_steps(journal))
    for event in journal:
        timeline.show(event)
    draw(screen, steps, [info for info in upcoming if info.status in ("next", "blocked")])
    _print_children(screen, children)
    if snapshot.extra_state:
        screen.line(("ctx.state: ", "dim"), short(as_text(snapshot.extra_state), _STATE_SHOWN))
    print_state(screen, result)
    print_pending(session, result)
    print_next(session, result, root=root, limit=timeline.limit)
    return 0


async def _show_in_browser(session: Session, task: str) -> int:
    """Open a task in the inspector."""
    from treadle.cli.inspector import show_task

    async with session.runner() as runner:
        task_id = (await find_task(runner, task)).task_id
    return await show_task(session, task_id)


async def _show_past(session: Session, task: str, at: int, *, events: bool) -> int:
    """Show a task's state just after an event, without the work of its subagents."""
    screen = session.screen
    async with session.runner() as runner:
        task_id = (await find_task(runner, task)).task_id
        snapshot, result = await runner.get_task(task_id, at=at), await runner.result(task_id, at=at)
        journal = await events_of(runner, task_id)
    past = [event for event in journal if event.seq <= at]
    document: dict[str, Any] = {"task": snapshot, "result": result}
    if events:
        document["events"] = past
    screen.document(document)
    screen.line((f"its state after event {at} of {journal[-1].seq}", "magenta"))
    _print_header(screen, snapshot, past)
    timeline = Timeline(screen, undone=undone_steps(past))
    for event in past:
        timeline.show(event)
    if snapshot.extra_state:
        screen.line(("ctx.state: ", "dim"), short(as_text(snapshot.extra_state), _STATE_SHOWN))
    print_state(screen, result)
    return 0


async def events_of(runner: TaskRunner, task_id: str) -> list[Event]:
    """Return a task's events, including those shared with the task it was forked from."""
    return await events_after(runner, task_id, 0)


async def _children(runner: TaskRunner, result: RunResult) -> list[dict[str, Any]]:
    """Return the child tasks of a task, each with its result and its own children."""
    children: list[dict[str, Any]] = []
    for execution in result.subagent_executions:
        try:
            child = await runner.result(execution.task_id)
        except TaskNotFound:
            continue  # the parent was stopped before the child began
        text = child.final_text or (child.error.message if child.error is not None else "")
        children.append(
            {
                "task_id": execution.task_id,
                "agent": execution.name,
                "state": child.state,
                "driven": child.driven,
                "usage": child.usage,
                "text": short(text, 60),
                "children": await _children(runner, child),
            }
        )
    return children


def _print_children(screen: Screen, children: list[dict[str, Any]], above: str = "") -> None:
    for number, child in enumerate(children, 1):
        state, is_last = child["state"], number == len(children)
        head, inside = (
            f"{above}{'└─' if is_last else '├─'} {child['agent']} ",
            above + ("   " if is_last else "│  "),
        )
        shown = state_text(state, driven=child["driven"])
        screen.line((head, "dim"), (shown, STYLES.get(state, "")), f"  {child['text']}")
        screen.line((f"{inside}{child['task_id']} · {usage_summary(child['usage'])}", "dim"))
        _print_children(screen, child["children"], inside)


def undone_steps(journal: list[Event]) -> frozenset[str]:
    """Return the ids of undone steps."""
    undone: set[str] = set()
    requested: tuple[str, ...] = ()
    for event in journal:
        if isinstance(event, UndoRequested):
            requested = event.steps
        elif isinstance(event, Rewound):
            undone.update(requested)
    return frozenset(undone)


async def _steps(runner: TaskRunner, task_id: str) -> list[TaskStepOutput]:
    steps = list(await runner.get_completed_steps(task_id))
    begun = [
        info for info in await runner.get_upcoming_steps(task_id) if info.status not in ("next", "blocked")
    ]
    return steps + [await runner.get_step(task_id, info.step_id) for info in begun]


def _print_header(screen: Screen, task: Task, journal: list[Event]) -> None:
    style = STYLES.get(task.state, "")
    screen.line(("task ", "dim"), (task.task_id, "bold"), "  ", (task.state_text, style), f"  {task.agent}")
    began = f"created {local_time(task.created)} ({age(task.created)} ago)"
    facts = [f"thread {task.thread_id}", f"attempt {task.attempt}", began]
    ended = next((event for event in reversed(journal) if isinstance(event, TaskEnded)), None)
    if ended is not None and task.state in END_STATES:
        facts.append(f"ended {local_time(ended.time)}, after {duration(ended.time - task.created)}")
    if task.forked_from is not None:
        facts.append(f"forked from {task.forked_from} at event {task.forked_at}")
    if task.parent is not None:
        facts.append(f"child of {task.parent}")
    facts += [f"{key}={value}" for key, value in task.labels.items()]
    screen.line((" · ".join(facts), "dim"))


# ---------------------------------------------------------------------------------------------- diff


@command
async def diff(
    session: Session,
    a: Annotated[str, typer.Argument(metavar="A", help="A task.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The task to compare it with.")],
) -> int:
    """Show the first step in which two tasks differ, with both versions, and name the later ones."""
    screen = session.screen
    async with session.runner() as runner:
        first, second = (await find_task(runner, a)).task_id, (await find_task(runner, b)).task_id
        difference = await runner.diff(first, second)
    screen.document(difference)
    if difference.shared_events:
        screen.line((f"they share events 1 to {difference.shared_events}", "dim"))
    if difference.same:
        screen.line("nothing differs")
        return 0
    field = str(difference.field)
    screen.line((field if difference.index is None else f"step {difference.index}: {field}", "bold"))
    screen.line(("- ", "red"), value_text(difference.value_a), (f"  {first}", "dim"))
    screen.line(("+ ", "green"), value_text(difference.value_b), (f"  {second}", "dim"))
    later = [str(step.index) for step in difference.steps if step.fields and step.index != difference.index]
    if later:
        screen.line((f"also step {', '.join(later[:_LATER])}{', ...' if later[_LATER:] else ''}", "dim"))
    return 0


_LATER: Final = 12
"""The most further steps that `diff` names."""


def value_text(value: Any) -> str:
    """Return a value of a difference on one line."""
    if isinstance(value, str):
        return short(value)
    if isinstance(value, tuple):
        return short(content_text(value))  # pyright: ignore[reportUnknownArgumentType]
    return short(repr(to_wire(value)))
