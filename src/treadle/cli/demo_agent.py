"""The demonstration's agent: tools that close the month of a small shop, and a model that follows a script.

The tools work on real files in a scratch folder. They log each call in its `effects.log`, which knows nothing of the
journal. As a program, this module is the process that drives a demonstration's task: its parent sees it die.
"""

from __future__ import annotations

import asyncio
import csv
import os
import re
import secrets
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from treadle import Agent, Happened, Limits, ModelRequest, NotHappened, Runner, ToolCall, ToolContext, tool
from treadle.cli.agents import DEMO
from treadle.core.messages import ToolResult
from treadle.core.tools import EffectClass
from treadle.llm.scripted import ScriptedModel, Turn, call, text, turn
from treadle.stores.private_files import PRIVATE_FOLDER, make_folder
from treadle.testing.ledger import Ledger, append_line

FOLDERS = Path(PRIVATE_FOLDER)
"""Where scratch folders lie, below the working directory."""

LOG, BOOKS = "effects.log", "ledger.csv"

KILLED = "kill"
"""The note of a call that its process is about to be killed in."""

VERIFIED = "verified"
"""The note that closes a demonstration whose claims held."""

SABOTAGE = "kill this process once its second writing call took effect"
"""The run context that makes the tools do so, once in a folder."""

SALES = {
    "east": ("desk,4,310", "lamp,12,45", "chair,6,120"),
    "north": ("desk,2,310", "shelf,9,85", "chair,15,120", "lamp,3,45"),
    "west": ("shelf,5,85", "lamp,30,45"),
}
"""The sales of each region: product, units, price of one."""

CLOSE = "Close the month for the folder {folder}."
INSTEAD = (
    "Change of plan for {folder}: book nothing and archive nothing. Write {folder}/best.md with only the strongest "
    "region and its total, then say which it is."
)

INSTRUCTIONS = """\
You do the month-end closing of a small shop, with tools only: never guess a number, and name paths exactly as the
tools return them. Unless the user's last message wants something else, work in this order, one point per turn:
1. list_files of the folder;
2. total_sales of every sales file, all calls in one turn;
3. write_report of <folder>/report.md: a Markdown table of regions and totals, and the grand total;
4. book_entry once, text "month-end", with the grand total;
5. archive_file of every sales file, all calls in one turn;
6. answer in two sentences: the grand total, and the strongest region."""


# ------------------------------------------------------------------------------------------- the files


def new_folder() -> Path:
    """Make a scratch folder with its sales files."""
    make_folder(FOLDERS)
    folder = FOLDERS / f"demo-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    for region, rows in SALES.items():
        (folder / f"sales-{region}.csv").write_text("\n".join(["product,units,price", *rows, ""]))
    return folder


def place(path: str) -> Path:
    """Return the path of a file by the path that a model wrote; raises `ValueError` outside of a scratch folder."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or not re.fullmatch(r"demo-[0-9a-f]{8}", parts[0]):
        raise ValueError(f"{path!r} is not in a demonstration's folder")
    if not (FOLDERS / parts[0]).is_dir():
        raise FileNotFoundError(f"{FOLDERS / parts[0]} is not here: go to the directory where the demo began")
    return FOLDERS.joinpath(*parts)


def booked(folder: Path) -> list[str]:
    """Return the idempotency key of each line of a folder's books."""
    books = folder / BOOKS
    return [line.rpartition(",")[2] for line in books.read_text().splitlines()] if books.exists() else []


def _log_of(path: Path) -> Ledger:
    return Ledger(FOLDERS / path.relative_to(FOLDERS).parts[0] / LOG)


@contextmanager
def _logged(name: str, path: Path, ctx: ToolContext[Any], effect: EffectClass = "write") -> Generator[None]:
    """Log a call; under sabotage, kill the process in the folder's second writing call, after its effect."""
    log = _log_of(path)
    lines = log.entries() if (ctx.context, effect) == (SABOTAGE, "write") else []
    has_written = any((line.kind, line.effect) == ("done", "write") for line in lines)
    with log.call(name, ctx, effect=effect):
        yield
        if has_written and all(line.tool != KILLED for line in lines):
            log.note(KILLED, f"{name}: {path.name}", call=ctx.call_id, task=ctx.task_id)
            os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------------------------ each writing call, taken back


WRITING = {
    "write_report": ("wrote", "gone"),
    "book_entry": ("booked", "balanced by a reversal"),
    "archive_file": ("archived", "back in its place"),
}
"""The tools that write: the verb of their output, and the state of the file once a call was taken back."""


def file_of(call: ToolCall) -> Path:
    """Return the file of a writing call."""
    return place(call.arguments.get("path") or f"{call.arguments['folder']}/{BOOKS}")


def took_effect(call: ToolCall, key: str, *, undo: bool = False) -> bool:
    """Return whether the files show the effect of a call, or of its undo, with this idempotency key."""
    path = file_of(call)
    if call.name == "book_entry":
        return key in booked(path.parent)
    if call.name == "archive_file":
        return _archived(path).exists() != undo
    return (path.exists() and path.read_text() == call.arguments["text"]) != undo


def _undo(call: ToolCall, ctx: ToolContext[Any]) -> None:
    path = file_of(call)
    with _logged(f"undo {call.name}", path, ctx):
        if call.name == "book_entry":
            _book(path, f"reversal of {call.arguments['text']}", -call.arguments["amount"], ctx)
        elif call.name == "archive_file":
            _archived(path).rename(path)
        else:
            path.unlink(missing_ok=True)


def _reconcile(call: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    """Look at the files whether a call that a crash cut off took effect."""
    path, happened = file_of(call), took_effect(call, ctx.idempotency_key)
    verdict = "it happened" if happened else "it did not happen"
    _log_of(path).note("looked", verdict, call=ctx.call_id, task=ctx.task_id)
    output = f"{WRITING[call.name][0]} {call.arguments.get('amount', path.name)}"
    return Happened(output) if happened else NotHappened()


def _book(books: Path, text: str, amount: int, ctx: ToolContext[Any]) -> None:
    append_line(books, f"{' '.join(text.split())},{amount},{ctx.idempotency_key}")


def _archived(file: Path) -> Path:
    return file.parent / "archive" / file.name


# ------------------------------------------------------------------------------------------- the tools


@tool(read_only=True)
def list_files(folder: str, ctx: ToolContext) -> list[str]:
    """List the sales files of a folder, by its name."""
    path = place(folder)
    with _logged("list_files", path, ctx, "read"):
        return [f"{folder}/{file.name}" for file in sorted(path.glob("sales-*.csv"))]


@tool(read_only=True)
def total_sales(path: str, ctx: ToolContext) -> dict[str, Any]:
    """Add up one sales file, by its path as list_files returned it."""
    file = place(path)
    with _logged("total_sales", file, ctx, "read"):
        rows = [*csv.DictReader(file.read_text().splitlines())]
        total = sum(int(row["units"]) * int(row["price"]) for row in rows)
        return {"region": file.stem.removeprefix("sales-"), "lines": len(rows), "total": total}


@tool(undo=_undo, reconcile=_reconcile)
def write_report(path: str, text: str, ctx: ToolContext) -> str:
    """Write a whole report in Markdown to a new file of the folder, whose path ends in .md."""
    report = place(path)
    if report.suffix != ".md" or (report.exists() and ctx.attempt == 1):
        raise ValueError(f"a report is a new file that ends in .md, not {report.name!r}")
    with _logged("write_report", report, ctx):
        report.write_text(text)
    return f"wrote {report.name}"


@tool(undo=_undo, reconcile=_reconcile)
def book_entry(folder: str, text: str, amount: int, ctx: ToolContext) -> str:
    """Book an amount in the ledger of a folder, and what it is for. Calling it twice books twice."""
    books = place(folder) / BOOKS
    with _logged("book_entry", books, ctx):
        _book(books, text, amount, ctx)
    return f"booked {amount}"


@tool(undo=_undo, reconcile=_reconcile)
def archive_file(path: str, ctx: ToolContext) -> str:
    """Move a sales file to the archive of its folder, by its path as list_files returned it."""
    file = place(path)
    with _logged("archive_file", file, ctx):
        _archived(file).parent.mkdir(exist_ok=True)
        file.rename(_archived(file))
    return f"archived {file.name}"


# ------------------------------------------------------------------------------- the model and the agent


REPORT = """\
# Month-end

| region | total |
|---|---|
| east | 2500 |
| north | 3320 |
| west | 1775 |

Grand total: 7595
"""


def script(request: ModelRequest) -> Turn:
    """Return the answer to a request from the conversation alone: the same after a crash, an undo, a fork."""
    wish = ["", *(message.text for message in request.messages if message.role == "user")][-1]
    folder = ["", *re.findall(r"demo-[0-9a-f]{8}", wish)][-1]
    for part in (part for message in request.messages for part in message.parts):
        if isinstance(part, ToolResult) and part.is_error:
            return text(f"I stop here, because {part.name} failed: {part.text}")
    files = [f"{folder}/sales-{region}.csv" for region in SALES]
    reading = [
        call("list_files", folder=folder),
        turn(calls=[call("total_sales", path=path) for path in files]),
    ]
    turns = {
        CLOSE.format(folder=folder): [
            *reading,
            call("write_report", path=f"{folder}/report.md", text=REPORT),
            call("book_entry", folder=folder, text="month-end", amount=7595),
            turn(calls=[call("archive_file", path=path) for path in files]),
            text("The month is closed: 7595 in total. The strongest region is north."),
        ],
        INSTEAD.format(folder=folder): [
            *reading,
            call("write_report", path=f"{folder}/best.md", text="# Strongest region\n\nnorth: 3320\n"),
            text("The strongest region is north with 3320. Nothing was booked."),
        ],
    }.get(
        wish, [text("I am scripted for two requests of the demonstration; for others, give me a real model.")]
    )
    return turns[min(request.turn, len(turns) - 1)]


def demo_agent(model: str | None = None) -> Agent:
    """Return the agent with a real model by its name, or with the script."""
    brain = model or ScriptedModel(script, name="scripted:month-end")
    tools = [list_files, total_sales, write_report, book_entry, archive_file]
    return Agent(brain, name=DEMO, instructions=INSTRUCTIONS, tools=tools, limits=Limits(steps=20))


AGENT = demo_agent()
"""Known to every command, so that a demonstration's tasks can be resumed, undone and forked."""


# ------------------------------------------------------------------------- the process that drives a task


async def _drive(store: str, task_id: str, model: str) -> int:
    """Resume a task under sabotage to its next stop; return 0 if it then has its answer."""
    async with Runner(store, agents=[demo_agent(model or None)]) as runner:
        result = await runner.resume(task_id, context=SABOTAGE)
        return 0 if result.state in ("completed", "degraded") else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(_drive(*sys.argv[1:])))
