"""The demonstration's agent: real tools over real files in a scratch folder, and a model that follows a script.

The tools write to the folder's `effects.log`, a `treadle.testing.ledger.Ledger`, which knows nothing of the journal.
As a program, this module is the process that drives a demonstration's task: its parent starts it and sees it die.
"""

from __future__ import annotations

import asyncio
import csv
import json
import re
import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from treadle import (
    Agent,
    Happened,
    Limits,
    ModelRequest,
    NotHappened,
    Runner,
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.cli.agents import DEMO
from treadle.core.messages import ToolResult
from treadle.core.tools import EffectClass
from treadle.llm.scripted import Turn, call, text, turn
from treadle.testing.crash import Crash
from treadle.testing.ledger import Ledger, append_line

FOLDERS = Path(".treadle")
"""Where scratch folders lie, below the working directory."""

LOG = "effects.log"
BOOKS = "ledger.csv"

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
"""What each region sold: product, units, price of one."""

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


TAKEN_BACK = {
    "write_report": "gone",
    "archive_file": "back in its place",
    "book_entry": "balanced by a reversal",
}
"""The tools that write, and how a file is once their call was taken back."""


# ------------------------------------------------------------------------------------------- the files


def new_folder() -> Path:
    """Make a scratch folder with its sales files, all at once under its final name."""
    if not FOLDERS.exists():
        FOLDERS.mkdir(mode=0o700)
        (FOLDERS / ".gitignore").write_text("*\n")
    name = f"demo-{secrets.token_hex(4)}"
    draft = FOLDERS / f".{name}"
    draft.mkdir(mode=0o700)
    for region, rows in SALES.items():
        (draft / f"sales-{region}.csv").write_text("\n".join(["product,units,price", *rows, ""]))
    return draft.rename(FOLDERS / name)


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


def _book(books: Path, text: str, amount: int, key: str) -> None:
    append_line(books, f"{' '.join(text.split())},{amount},{key}")


def _archived(path: Path) -> Path:
    return path.parent / "archive" / path.name


def _file_of(call: ToolCall) -> Path:
    """Return the file that a writing call writes."""
    return place(call.arguments.get("path") or f"{call.arguments['folder']}/{BOOKS}")


def _log_of(path: Path) -> Ledger:
    return Ledger(FOLDERS / path.relative_to(FOLDERS).parts[0] / LOG)


@contextmanager
def _logged(name: str, path: Path, ctx: ToolContext[Any], effect: EffectClass = "write") -> Generator[None]:
    """Log a call; under sabotage, kill the process in the folder's second writing call, after its effect."""
    log = _log_of(path)
    lines = log.entries() if (ctx.context, effect) == (SABOTAGE, "write") else []
    has_written = any((line.kind, line.effect) == ("done", "write") for line in lines)
    is_due = has_written and all(line.tool != KILLED for line in lines)
    if is_due:
        log.crash = Crash(f"done {name} {ctx.call_id}")
    with log.call(name, ctx, effect=effect):
        yield
        if is_due:
            log.note(KILLED, path.name, call=ctx.call_id, task=ctx.task_id)


def _undo(call: ToolCall, ctx: ToolContext[Any]) -> None:
    """Take back what a writing call did."""
    path = _file_of(call)
    with _logged(f"undo {call.name}", path, ctx):
        if call.name == "write_report":
            path.unlink(missing_ok=True)
        elif call.name == "archive_file":
            _archived(path).rename(path)
        else:
            title, amount = call.arguments["text"], call.arguments["amount"]
            _book(path, f"reversal of {title}", -amount, ctx.idempotency_key)


def is_undone(call: ToolCall, key: str) -> bool:
    """Return whether the files are without the effect of a finished call, whose compensation has the key `key`."""
    path = _file_of(call)
    if call.name == "write_report":
        return not path.exists()
    if call.name == "archive_file":
        return path.exists() and not _archived(path).exists()
    return booked(path.parent).count(key) == 1


def _reconcile(call: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    """Look at the files whether a call that a crash cut off took effect."""
    path = _file_of(call)
    if call.name == "write_report":
        happened, output = path.exists() and path.read_text() == call.arguments["text"], f"wrote {path.name}"
    elif call.name == "archive_file":
        happened, output = _archived(path).exists() and not path.exists(), f"archived {path.name}"
    else:
        happened, output = ctx.idempotency_key in booked(path.parent), f"booked {call.arguments['amount']}"
    verdict = "it happened" if happened else "it did not happen"
    _log_of(path).note("looked", verdict, call=ctx.call_id, task=ctx.task_id)
    return Happened(output) if happened else NotHappened()


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
        _book(books, text, amount, ctx.idempotency_key)
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


def script(request: ModelRequest) -> Turn:
    """Return the answer to a request, from nothing but the conversation: the same after a crash, an undo, a fork."""
    wish = ["", *(message.text for message in request.messages if message.role == "user")][-1]
    folder = ["", *re.findall(r"demo-[0-9a-f]{8}", wish)][-1]
    if wish not in (CLOSE.format(folder=folder), INSTEAD.format(folder=folder)):
        return text(
            "I am a scripted model and know only the demonstration's two requests; give the agent a real model for "
            "others."
        )
    results: dict[str, list[str]] = {}
    for result in (part for message in request.messages for part in message.parts):
        if isinstance(result, ToolResult):
            if result.is_error:
                return text(f"I stop here, because {result.name} failed: {result.text}")
            results.setdefault(result.name, []).append(result.text)
    if "list_files" not in results:
        return call("list_files", folder=folder)
    files: list[str] = json.loads(results["list_files"][0])
    if "total_sales" not in results:
        return turn("", [call("total_sales", path=path) for path in files])
    totals = {sales["region"]: sales["total"] for sales in map(json.loads, results["total_sales"])}
    best, total = max(totals, key=totals.__getitem__), sum(totals.values())
    if wish == INSTEAD.format(folder=folder):
        report = f"# Strongest region\n\n{best}: {totals[best]}\n"
        turns = {"write_report": call("write_report", path=f"{folder}/best.md", text=report)}
        answer = f"The strongest region is {best} with {totals[best]}. Nothing was booked."
    else:
        rows = "".join(f"| {region} | {totals[region]} |\n" for region in sorted(totals))
        report = f"# Month-end\n\n| region | total |\n|---|---|\n{rows}\nGrand total: {total}\n"
        turns = {
            "write_report": call("write_report", path=f"{folder}/report.md", text=report),
            "book_entry": call("book_entry", folder=folder, text="month-end", amount=total),
            "archive_file": turn("", [call("archive_file", path=path) for path in files]),
        }
        answer = f"The month is closed: {total} in total. The strongest region is {best}."
    return next((answer for name, answer in turns.items() if name not in results), text(answer))


def demo_agent(model: str | None = None, *, pace: float = 0.0) -> Agent:
    """Return the agent with a real model by name, or with the script and `pace` seconds before each answer."""
    brain = model or ScriptedModel(
        lambda request: replace(script(request), delay=pace), name="scripted:month-end"
    )
    tools = [list_files, total_sales, write_report, book_entry, archive_file]
    return Agent(brain, name=DEMO, instructions=INSTRUCTIONS, tools=tools, limits=Limits(steps=20))


AGENT = demo_agent()
"""Known to every command, so that a demonstration's tasks can be resumed, undone and forked."""


# ------------------------------------------------------------------------- the process that drives a task


async def _drive(store: str, task_id: str, pace: str, model: str, context: str) -> int:
    """Resume a task to its next stop; return 0 if it then has its answer."""
    async with Runner(store, agents=[demo_agent(model or None, pace=float(pace))]) as runner:
        result = await runner.resume(task_id, context=context or None)
        return 0 if result.state in ("completed", "degraded") else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(_drive(*sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(130)
