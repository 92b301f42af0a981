"""`undo` and `fork`: take back steps, and branch off a task."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from treadle.cli import agents
from treadle.cli.command import CODES, AgentOption, ByOption, Session, command, json_argument, option
from treadle.cli.filters import TaskArgument, find_task
from treadle.cli.outcome import print_pending
from treadle.cli.run import agent_of, drive_on
from treadle.cli.screen import Screen
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.results.reports import UndoReport
from treadle.results.tasks import Task

_VERDICTS: Final = {
    "compensated": ("✓ ", "green"),
    "not_compensated": ("✗ ", "red"),
    "nothing_to_compensate": ("· ", "dim"),
    "unknown": ("? ", "yellow"),
}


@command
async def undo(
    session: Session,
    task: TaskArgument,
    to: Annotated[str | None, option("N", "Last step to keep: index or id.")] = None,
    step: Annotated[
        str | None, option("N", "Step to undo, with the steps that depend on it: index or id.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also undo calls that have no compensation; the report names them."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and report the effects of the undo.")
    ] = False,
    agent: AgentOption = None,
    by: ByOption = None,
) -> int:
    """Undo the last step, or all after --to: compensate its calls, then rewind. Report each call."""
    screen = session.screen
    async with session.runner(drives=True) as runner:
        row = await find_task(runner, task)
        if dry_run:
            report = await runner.undo_step(
                row.task_id, to=_step(to), step=_step(step), force=force, dry_run=True
            )
            screen.document(report)
            print_report(screen, report)
            return 0
        chosen = await agent_of(runner, row, screen, agent, None)
        report = await runner.undo_step(
            row.task_id, to=_step(to), step=_step(step), force=force, agent=chosen, by=by
        )
        screen.document(report)
        print_report(screen, report)
        if report.complete:
            return 0
        result = await runner.result(row.task_id)
        print_pending(session, result)
        # Settling a call may complete the undo. Another `undo` would then take back a further step.
        verb = "resume" if any(item.kind == "settlement" for item in result.pending) else "undo"
        screen.command("  go on with: ", session.command_line(verb, screen.short(row.task_id), agent=agent))
        return CODES["waiting"]


def _step(text: str | None) -> int | str | None:
    """Return a step or event from the command line: a number, or an id."""
    return int(text) if text is not None and text.isdecimal() else text


def print_report(screen: Screen, report: UndoReport) -> None:
    """Print the report of an undo, or of a dry run, call by call."""
    target = f"step {report.to}" if report.to else "the beginning"
    outcome = f"back to {target}" if report.complete else f"the undo to {target} has stopped"
    if report.planned:
        outcome = f"nothing is changed; an undo would go back to {target}"
        if not report.complete:
            outcome = f"nothing is changed; the undo to {target} would stop"
    screen.line(("↶ ", "magenta"), f"{outcome}; steps taken back: {', '.join(report.steps)}")
    for call in report.calls:
        verdict = report.verdict_of(call) + (f": {call.why}" if call.why else "")
        screen.line("  ", _VERDICTS[call.verdict], f"{call.tool} ({call.call}) {verdict}")
    if report.problem is not None:
        screen.line(("  ! ", "yellow"), report.problem)


@command
async def fork(
    session: Session,
    task: TaskArgument,
    at: Annotated[str | None, option("STEP|SEQ", "Fork after this step (id) or event (number).")] = None,
    input: Annotated[str | None, typer.Option("--input", help="A user message to go on with.")] = None,
    replace: Annotated[
        list[str] | None, option("CALL=JSON", "Another result for a call; may be repeated.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="The fork's thread. Default: a new one.")
    ] = None,
    agent: Annotated[
        str | None, option("MODULE:AGENT", "Another agent, or the name of a listed one.")
    ] = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", help="Replace the agent's, stored with the fork.")
    ] = None,
    model: Annotated[
        str | None, option("PROVIDER:MODEL", "Replace the agent's, stored with the fork.")
    ] = None,
    by: ByOption = None,
    run: Annotated[bool, typer.Option("--run", help="Drive the fork at once.")] = False,
) -> int:
    """Create a task that shares another task's journal up to a point. None of the shared calls runs again."""
    screen = session.screen
    values = _replacements(replace or [])
    async with session.runner(drives=run) as runner:
        row = await find_task(runner, task)
        chosen = agents.to_run(None, agent, None) if agent is not None else None
        forking: Any = runner.fork  # its overloads differ in the agent, which may be None here
        new_task: Task = await forking(
            row.task_id,
            at=_step(at),
            agent=chosen,
            instructions=instructions,
            model=model,
            input=input,
            replace=values or None,
            thread_id=thread,
            by=by,
        )
        screen.line(
            ("fork ", "dim"), new_task.task_id, (f"  of {row.task_id} at event {new_task.forked_at}", "dim")
        )
        if run:
            return await drive_on(session, runner, new_task.task_id, agent=agent, model=None, by=by)
        screen.document(new_task)
        resume = session.command_line("resume", screen.short(new_task.task_id), agent=agent)
        screen.command("  run it with: ", resume)
    return 0


def _replacements(items: list[str]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for item in items:
        call, equals, value = item.partition("=")
        if not equals or not call:
            raise ConfigurationError(f"--replace takes CALL=JSON, such as s1-0=42, not {item!r}")
        values[call] = json_argument(value, f"--replace {call}")
    return values
