"""`undo` and `fork`: taking steps back, and going another way from some point."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from treadle.cli import agents
from treadle.cli.command import (
    CODES,
    JsonOption,
    StoreOption,
    TaskArgument,
    command_line,
    in_loop,
    json_given,
    row_named,
    runner_on,
)
from treadle.cli.outcome import pending
from treadle.cli.run import AgentOption, ModelOption, agent_of, drive_on
from treadle.cli.screen import Screen
from treadle.core.messages import Json
from treadle.engine.results import UndoReport
from treadle.errors import ConfigurationError

_VERDICTS: Final = {
    "compensated": ("✓ ", "green"),
    "not_compensated": ("✗ ", "red"),
    "nothing_to_compensate": ("· ", "dim"),
    "unknown": ("? ", "yellow"),
}


def undo(
    ctx: typer.Context,
    task: TaskArgument,
    to: Annotated[
        str | None, typer.Option("--to", metavar="N", help="Last step to keep: index or id.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="N", help="Step to take back, with what came of it: index or id."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also what cannot be compensated; the report says so.")
    ] = False,
    agent: AgentOption = None,
    by: Annotated[str | None, typer.Option("--by", help="Who says so; kept with the task.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Take back the last step, or all after --to: compensate its calls, then rewind; says what became of each."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            known = await agent_of(runner, row, screen, agent, None)
            report = await runner.undo_step(
                row.task_id, to=_place(to), step=_place(step), force=force, agent=known, by=by
            )
            screen.document(report)
            _report(screen, report)
            if report.complete:
                return 0
            result = await runner.result(row.task_id)
            pending(screen, result.pending, row.task_id, store)
            # What a person settles may end the undo; another `undo` would then take one more step back.
            verb = "resume" if result.pending else "undo"
            screen.line(("  go on with: ", "dim"), command_line(verb, row.task_id, store=store, agent=agent))
            return CODES["waiting"]

    return in_loop(ctx, work)


def _place(text: str | None) -> int | str | None:
    """Return a place as typed: a number, or an id."""
    return int(text) if text is not None and text.isdecimal() else text


def _report(screen: Screen, report: UndoReport) -> None:
    where = f"step {report.to}" if report.to else "the beginning"
    done = f"back to {where}" if report.complete else f"the undo to {where} has stopped"
    screen.line(("↶ ", "magenta"), f"{done}; steps taken back: {', '.join(report.steps)}")
    for call in report.calls:
        why = f": {call.why}" if call.why else ""
        screen.line(
            "  ", _VERDICTS[call.verdict], f"{call.tool} ({call.call}) {call.verdict.replace('_', ' ')}{why}"
        )
    if report.problem is not None:
        screen.line(("  ! ", "yellow"), report.problem)


def fork(
    ctx: typer.Context,
    task: TaskArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="STEP|SEQ", help="Just after this step (id) or event (number)."),
    ] = None,
    input: Annotated[str | None, typer.Option("--input", help="A user's words to go on with.")] = None,
    replace: Annotated[
        list[str] | None,
        typer.Option("--replace", metavar="CALL=JSON", help="Another result for a call; may be repeated."),
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="The fork's thread; a new one by default.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="MODULE:AGENT", help="Another agent (or a known one's name)."),
    ] = None,
    model: ModelOption = None,
    run: Annotated[bool, typer.Option("--run", help="Drive the fork on at once.")] = False,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Make a new task that shares another's journal up to a point and runs nothing of it again."""
    values = _replacements(replace or [])

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            row = await row_named(runner, task)
            other = agents.to_run(None, agent, model) if agent is not None else None
            if other is None and model is not None:
                other = await agent_of(runner, row, screen, None, model)
            made = await runner.fork(
                row.task_id, at=_place(at), agent=other, input=input, replace=values or None, thread_id=thread
            )
            screen.line(
                ("fork ", "dim"), made.task_id, (f"  of {row.task_id} at event {made.forked_at}", "dim")
            )
            if run:
                return await drive_on(runner, made.task_id, screen, store=store, agent=agent, model=model)
            screen.document(made)
            go_on = command_line("resume", made.task_id, store=store, agent=agent, model=model)
            screen.line(("  run it with: ", "dim"), go_on)
        return 0

    return in_loop(ctx, work)


def _replacements(given: list[str]) -> dict[str, Json]:
    values: dict[str, Json] = {}
    for item in given:
        call, equals, value = item.partition("=")
        if not equals or not call:
            raise ConfigurationError(f"--replace takes CALL=JSON, such as s1-0=42, not {item!r}")
        values[call] = json_given(value, f"--replace {call}")
    return values
