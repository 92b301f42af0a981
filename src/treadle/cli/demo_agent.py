"""The demonstration's agent: real tools over real files in a scratch folder, and a model that follows a script.

The tools write to the folder's `effects.log`, a `treadle.testing.ledger.Ledger`, which knows nothing of the journal.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Generator, Sequence
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
    ScriptedModel,
    ToolCall,
    ToolContext,
    tool,
)
from treadle.core.messages import ToolResult
from treadle.llm.scripted import Turn, call, text, turn
from treadle.testing.crash import Crash
from treadle.testing.ledger import Ledger, append_line

NAME = "treadle-demo"
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
    "east": (("desk", 4, 310), ("lamp", 12, 45), ("chair", 6, 120)),
    "north": (("desk", 2, 310), ("shelf", 9, 85), ("chair", 15, 120), ("lamp", 3, 45)),
    "west": (("shelf", 5, 85), ("lamp", 30, 45)),
}
"""What was sold: product, units, price of one."""

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


def place(path: str) -> Path:
    """Return where a path that a model wrote lies.

    Raises:
        ValueError: it is not in a demonstration's folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or not re.fullmatch(r"demo-[0-9a-f]{8}", parts[0]):
        raise ValueError(f"{path!r} is not in a demonstration's folder")
    if not (FOLDERS / parts[0]).is_dir():
        raise FileNotFoundError(f"{FOLDERS / parts[0]} is not here: go to the directory where the demo began")
    return FOLDERS.joinpath(*parts)


def _log(path: Path, crash: Crash | None = None) -> Ledger:
    """Return the log of the folder that a path lies in."""
    return Ledger(FOLDERS / path.relative_to(FOLDERS).parts[0] / LOG, crash)


@contextmanager
def _writing(tool: str, path: Path, ctx: ToolContext[Any]) -> Generator[None]:
    """Log a writing call; under sabotage, the second one of its folder is killed after its effect."""
    lines = _log(path).entries()
    written = [line for line in lines if line.kind == "done" and line.effect == "write"]
    is_due = ctx.context == SABOTAGE and written and all(line.tool != KILLED for line in lines)
    log = _log(path, Crash(f"done {tool} {ctx.call_id}") if is_due else None)
    with log.call(tool, ctx):
        yield
        if is_due:
            log.note(KILLED, path.name, call=ctx.call_id, task=ctx.task_id)


def _archived(path: Path) -> Path:
    return path.parent / "archive" / path.name


def _draft(report: Path, call_id: str) -> Path:
    return report.with_name(f".{report.name}.{call_id}")


def _book(books: Path, text: str, amount: int, key: str) -> None:
    title = re.sub(r"[,\n\r]", " ", text)
    append_line(books, f"{title},{amount},{key}")


def booked(folder: Path) -> list[str]:
    """Return the idempotency key of each line of a folder's books."""
    books = folder / BOOKS
    return [line.rpartition(",")[2] for line in books.read_text().splitlines()] if books.exists() else []


def _path(call: ToolCall) -> Path:
    """Return the file that a writing call writes."""
    return (
        place(call.arguments["path"]) if "path" in call.arguments else place(call.arguments["folder"]) / BOOKS
    )


def _undo(call: ToolCall, ctx: ToolContext[Any]) -> None:
    """Take back what a writing call did."""
    path = _path(call)
    with _log(path).call(f"undo {call.name}", ctx):
        if call.name == "write_report":
            path.unlink(missing_ok=True)
        elif call.name == "archive_file":
            _archived(path).rename(path)
        else:
            title, amount = call.arguments["text"], call.arguments["amount"]
            _book(path, f"reversal of {title}", -amount, ctx.idempotency_key)


def is_undone(call: ToolCall, key: str) -> bool:
    """Tell from the files whether the effect of a finished call is gone.

    Args:
        call: the call.
        key: the idempotency key of its compensation.
    """
    path = _path(call)
    if call.name == "write_report":
        return not path.exists()
    if call.name == "archive_file":
        return path.exists() and not _archived(path).exists()
    return booked(path.parent).count(key) == 1


def _reconcile(call: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    """Look at the files whether a call that a crash cut off took effect."""
    path = _path(call)
    if call.name == "write_report":
        _draft(path, ctx.call_id).unlink(missing_ok=True)
        output = (
            f"wrote {path.name}" if path.exists() and path.read_text() == call.arguments["text"] else None
        )
    elif call.name == "archive_file":
        output = f"archived {path.name}" if _archived(path).exists() and not path.exists() else None
    else:
        output = f"booked {call.arguments['amount']}" if ctx.idempotency_key in booked(path.parent) else None
    verdict = "it did not happen" if output is None else "it happened"
    _log(path).note("looked", verdict, call=ctx.call_id, task=ctx.task_id)
    return NotHappened() if output is None else Happened(output)


# ------------------------------------------------------------------------------------------- the tools


@tool(read_only=True)
def list_files(folder: str, ctx: ToolContext) -> list[str]:
    """List the sales files of a folder.

    Args:
        folder: the folder's name.
    """
    path = place(folder)
    with _log(path).call("list_files", ctx, effect="read"):
        return [f"{folder}/{file.name}" for file in sorted(path.glob("sales-*.csv"))]


@tool(read_only=True)
def total_sales(path: str, ctx: ToolContext) -> dict[str, Any]:
    """Add up one sales file.

    Args:
        path: the file, as list_files returned it.
    """
    file = place(path)
    with _log(file).call("total_sales", ctx, effect="read"):
        rows = list(csv.DictReader(file.read_text().splitlines()))
        total = sum(int(row["units"]) * int(row["price"]) for row in rows)
        return {"path": path, "region": file.stem.removeprefix("sales-"), "lines": len(rows), "total": total}


@tool(undo=_undo, reconcile=_reconcile)
def write_report(path: str, text: str, ctx: ToolContext) -> str:
    """Write a new report.

    Args:
        path: a file in the folder that ends in .md and does not exist yet.
        text: the whole report, in Markdown.
    """
    report = place(path)
    if report.suffix != ".md":
        raise ValueError(f"a report's name ends in .md, not {report.name!r}")
    with _writing("write_report", report, ctx):
        draft = _draft(report, ctx.call_id)
        draft.write_text(text)
        os.link(draft, report)  # all of it or nothing, and never over another
        draft.unlink()
    return f"wrote {report.name}"


@tool(undo=_undo, reconcile=_reconcile)
def book_entry(folder: str, text: str, amount: int, ctx: ToolContext) -> str:
    """Book an amount in the folder's ledger. Calling it twice books twice.

    Args:
        folder: the folder's name.
        text: what the entry is for.
        amount: how much.
    """
    books = place(folder) / BOOKS
    with _writing("book_entry", books, ctx):
        _book(books, text, amount, ctx.idempotency_key)
    return f"booked {amount}"


@tool(undo=_undo, reconcile=_reconcile)
def archive_file(path: str, ctx: ToolContext) -> str:
    """Move a sales file to the folder's archive.

    Args:
        path: the file, as list_files returned it.
    """
    file = place(path)
    with _writing("archive_file", file, ctx):
        target = _archived(file)
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            raise FileExistsError(f"{target.name} is in the archive already")
        file.rename(target)
    return f"archived {file.name}"


# ------------------------------------------------------------------------------------------ the script


def script(request: ModelRequest) -> Turn:
    """Return the answer to a request, from nothing but the conversation: the same after a crash, an undo, a fork."""
    messages = [message.text for message in request.messages if message.role == "user"]
    folder = ["", *re.findall(r"demo-[0-9a-f]{8}", "\n".join(messages))][-1]
    wishes = [CLOSE.format(folder=folder), INSTEAD.format(folder=folder)]
    if not messages or messages[-1] not in wishes:
        return text(
            "I am a scripted model and know only the demonstration's two requests; give the agent a real model for "
            "others."
        )
    results: dict[str, list[str]] = {}
    for result in (
        part for message in request.messages for part in message.parts if isinstance(part, ToolResult)
    ):
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
    if messages[-1] == wishes[1]:
        report, last = (
            f"# Strongest region\n\n{best}: {totals[best]}\n",
            f"with {totals[best]}. Nothing was booked.",
        )
        turns = {"write_report": call("write_report", path=f"{folder}/best.md", text=report)}
        answer = f"The strongest region is {best} {last}"
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


TOOLS: Sequence[Any] = (list_files, total_sales, write_report, book_entry, archive_file)


def demo_agent(model: str | None = None, *, pace: float = 0.0) -> Agent:
    """Return the agent with a real model by name, or with the script and `pace` seconds before each answer."""
    brain = model or ScriptedModel(
        lambda request: replace(script(request), delay=pace), name="scripted:month-end"
    )
    return Agent(brain, name=NAME, instructions=INSTRUCTIONS, tools=TOOLS, limits=Limits(steps=20))


AGENT = demo_agent()
"""Known to every command, so that a demonstration's tasks can be resumed, undone and forked."""
