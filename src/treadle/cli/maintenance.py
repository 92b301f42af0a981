"""Commands that maintain a store: verify, export, import. They need no agent and run nothing."""

from __future__ import annotations

import codecs
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from treadle.cli.command import Session, command
from treadle.cli.filters import find_task
from treadle.cli.screen import some
from treadle.core.display import seen_json
from treadle.errors import ConfigurationError


@command
async def verify(
    session: Session,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="A task. Default: all tasks.")] = None,
) -> int:
    """Check journals from first to last event. Exit with 1 if one is damaged, and name task and event."""
    async with session.runner() as runner:
        task_id = None if task is None else (await find_task(runner, task)).task_id
        report = await runner.verify(task_id)
    screen = session.screen
    threads = {"threads": report.threads} if report.threads else {}
    screen.document({"items": list(report.tasks), "cursor": None, **threads})
    for finding in report.findings:
        screen.line(("✗ ", "red"), str(finding))
    damaged = sum(bool(task.findings) for task in report.tasks)
    intact = f"{len(report.tasks) - damaged} of {some(len(report.tasks), 'task')} whole"
    size = f" · {some(report.events, 'event')}, {some(report.bytes, 'byte')}"
    screen.line((intact, "red" if damaged else "green"), size)
    if unknown := sum(task.unknown for task in report.tasks):
        screen.line((f"{some(unknown, 'event')} of kinds that this version does not know", "yellow"))
    return 1 if report.findings else 0


class _Shown:
    """A terminal for JSON text that writes control and invisible characters as escapes."""

    def __init__(self, terminal: BinaryIO) -> None:
        self._terminal = terminal
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def write(self, data: bytes) -> int:
        """Write a piece of JSON text, which may end in the middle."""
        self._terminal.write(seen_json(self._decode(data)).encode())
        return len(data)

    def flush(self) -> None:
        """Flush the terminal."""
        self._terminal.flush()


@command
async def export(
    session: Session,
    tasks: Annotated[
        list[str] | None, typer.Argument(metavar="[TASK]...", help="Tasks to export. Default: all tasks.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write. Default: standard output."),
    ] = None,
) -> int:
    """Export tasks as JSON Lines, with the tasks they were forked from and the tasks of their threads."""
    screen = session.screen
    if screen.json and out is None:
        raise ConfigurationError(
            "--json prints a report of the export: name a file for the export with --out"
        )
    async with session.runner() as runner:
        task_ids = [(await find_task(runner, task)).task_id for task in tasks or ()]
        target: Any = out if out is not None else sys.stdout.buffer
        if out is None and sys.stdout.isatty():
            target = _Shown(target)
        report = await runner.export_tasks(target, *task_ids)
    screen.document(report)
    counts = (
        f"{some(len(report.tasks), 'task')}, {some(report.events, 'event')}, {some(report.bytes, 'byte')}"
    )
    screen.note((counts, "dim"))
    return 0


@command
async def import_(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; `-` is standard input.")],
) -> int:
    """Import tasks from an export file. Refuse a file that was cut or changed, and run nothing."""
    with tempfile.TemporaryDirectory(prefix="treadle-import-") as folder:
        path = Path(file)
        if file == "-":
            path = Path(folder) / "stdin"
            with path.open("wb") as spooled:
                shutil.copyfileobj(sys.stdin.buffer, spooled)
        async with session.runner(make=True) as runner:
            report = await runner.import_tasks(path)
    session.screen.document(report)
    for task_id in report.tasks:
        session.screen.line(task_id)
    already_there = f", {len(report.known)} were in the store already" if report.known else ""
    counts = f"{some(len(report.tasks), 'task')}, {some(report.events, 'event')} imported{already_there}"
    session.screen.note((counts, "dim"))
    return 0
