"""Looking after a store: verify, export, import. None of these commands needs an agent or runs anything."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from treadle.cli.command import JsonOption, StoreOption, in_loop, row_named, runner_on
from treadle.cli.screen import Screen, some
from treadle.errors import ConfigurationError


def verify(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="One task; all by default.")] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Read journals anew and check all of it; damage is named by task and event, harms no other, and exits 1."""

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            name = None if task is None else (await row_named(runner, task)).task_id
            report = await runner.verify(name)
        threads = {"threads": report.threads} if report.threads else {}
        screen.document({"items": list(report.tasks), "cursor": None, **threads})
        for found in report.findings:
            screen.line(("✗ ", "red"), str(found))
        bad = sum(bool(task.findings) for task in report.tasks)
        whole = f"{len(report.tasks) - bad} of {some(len(report.tasks), 'task')} whole"
        screen.line(
            (whole, "red" if bad else "green"),
            f" · {some(report.events, 'event')}, {some(report.bytes, 'byte')}",
        )
        unknown = sum(task.unknown for task in report.tasks)
        if unknown:
            screen.line((f"{some(unknown, 'event')} of kinds that this version does not know", "yellow"))
        return 1 if report.findings else 0

    return in_loop(ctx, work)


def export(
    ctx: typer.Context,
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[TASK]...", help="Which tasks; all by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write a file; default standard output."),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Write journals as JSON Lines, with the tasks they were forked from and those that share their threads."""
    if json and out is None:
        raise ConfigurationError("--json tells what was exported; say with --out where to export it to")

    async def work(screen: Screen) -> int:
        async with runner_on(store) as runner:
            names = [(await row_named(runner, task)).task_id for task in tasks or ()]
            report = await runner.export_tasks(sys.stdout.buffer if out is None else out, *names)
        screen.document(report)
        screen.note(
            (
                f"{some(len(report.tasks), 'task')}, {some(report.events, 'event')}, {some(report.bytes, 'byte')}",
                "dim",
            )
        )
        return 0

    return in_loop(ctx, work)


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; `-` for standard input.")],
    store: StoreOption = None,
    json: JsonOption = False,
) -> int:
    """Take in the tasks of an export; a file that was cut or changed is refused, and nothing in it is run."""

    async def work(screen: Screen) -> int:
        with tempfile.TemporaryDirectory(prefix="treadle-import-") as folder:
            path = Path(file)
            if file == "-":
                path = Path(folder) / "stdin"
                with path.open("wb") as spooled:
                    shutil.copyfileobj(sys.stdin.buffer, spooled)
            async with runner_on(store, make=True) as runner:
                report = await runner.import_tasks(path)
        screen.document(report)
        for task_id in report.tasks:
            screen.line(task_id)
        already = f", {len(report.known)} here already" if report.known else ""
        screen.note(
            (f"{some(len(report.tasks), 'task')}, {some(report.events, 'event')} imported{already}", "dim")
        )
        return 0

    return in_loop(ctx, work)
