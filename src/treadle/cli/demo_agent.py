"""The demonstration's agent: real tools over real files in a scratch folder, and a model that follows a script.

Each start, end, look and reversal is appended to the folder's `effects.log` by the tools themselves: a witness that
knows nothing of the journal.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import time
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
from treadle.core.data import frozen
from treadle.core.messages import ToolResult
from treadle.llm.scripted import Turn, call, text, turn

NAME = "treadle-demo"
FOLDERS = Path(".treadle")
"""Where scratch folders lie, below the working directory."""

LOG = "effects.log"
LEDGER = "ledger.csv"

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


@frozen
class Sabotage:
    """Given as a run's context: the writing call of this number, once it took effect, kills its own process."""

    write: int = 2


# ------------------------------------------------------------------------------------------ the witness


def append_line(path: Path, line: str) -> None:
    """Append one line, durably; a line torn by a crash before it stays a line of its own."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        data = ("\n" * torn + line + "\n").encode()
        if os.write(file, data) != len(data):
            raise OSError(f"{path} could not be written whole")
        os.fsync(file)
    finally:
        os.close(file)


def note(folder: Path, event: str, ctx: ToolContext[Any], tool: str, what: str) -> None:
    """Append a line to the folder's log."""
    facts: dict[str, Any] = {
        "event": event,
        "key": f"{ctx.task_id}/{ctx.call_id}",
        "call": ctx.call_id,
        "tool": tool,
    }
    append_line(
        folder / LOG, json.dumps({**facts, "pid": os.getpid(), "time": time.time_ns() // 1000, "what": what})
    )


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a folder's log, oldest first; a line torn by a crash is not one."""
    lines: list[dict[str, Any]] = []
    log = folder / LOG
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # cut off while it was written: what it was to announce did not begin
    return lines


@contextmanager
def witnessed(ctx: ToolContext[Any], tool: str, path: Path, *, writes: bool = False) -> Generator[None]:
    """Note the start and the end of a call around what it does to `path`."""
    folder = FOLDERS / path.relative_to(FOLDERS).parts[0]
    what = str(path.relative_to(folder))
    note(folder, "start", ctx, tool, what)
    try:
        yield
    except Exception as error:
        note(folder, "failed", ctx, tool, str(error))
        raise
    if writes and isinstance(ctx.context, Sabotage) and _is_its_turn(folder, ctx.context):
        note(folder, "kill", ctx, tool, what)
        os.kill(os.getpid(), signal.SIGKILL)
    note(folder, "wrote" if writes else "read", ctx, tool, what)


def _is_its_turn(folder: Path, sabotage: Sabotage) -> bool:
    events = [line["event"] for line in read_log(folder)]
    return "kill" not in events and events.count("wrote") >= sabotage.write - 1


def place(path: str) -> Path:
    """Return where a path that a model gave lies; nothing outside of a demonstration's folder is touched."""
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or not re.fullmatch(r"demo-[0-9a-f]{8}", parts[0]):
        raise ValueError(f"{path!r} is not in a demonstration's folder")
    if not (FOLDERS / parts[0]).is_dir():
        raise FileNotFoundError(
            f"{FOLDERS / parts[0]} is not here: go to the directory where the demo was begun"
        )
    return FOLDERS.joinpath(*parts)


# -------------------------------------------------------------------------------------------- the tools


@tool(read_only=True)
def list_files(folder: str, ctx: ToolContext) -> list[str]:
    """List the sales files of a folder.

    Args:
        folder: the folder's name.
    """
    where = place(folder)
    with witnessed(ctx, "list_files", where):
        return [f"{folder}/{file.name}" for file in sorted(where.glob("sales-*.csv"))]


@tool(read_only=True)
def total_sales(path: str, ctx: ToolContext) -> dict[str, Any]:
    """Add up one sales file.

    Args:
        path: the file, as list_files returned it.
    """
    where = place(path)
    with witnessed(ctx, "total_sales", where), where.open(newline="") as file:
        rows = list(csv.DictReader(file))
        total = sum(int(row["units"]) * int(row["price"]) for row in rows)
        return {"path": path, "region": where.stem.removeprefix("sales-"), "lines": len(rows), "total": total}


def _undo_report(asked: ToolCall, ctx: ToolContext[Any]) -> None:
    where = place(asked.arguments["path"])
    where.unlink(missing_ok=True)
    note(where.parent, "undone", ctx, "write_report", where.name)


def _find_report(asked: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    where = place(asked.arguments["path"])
    _draft(where, ctx).unlink(missing_ok=True)
    there = where.exists() and where.read_text() == asked.arguments["text"]
    return _verdict(where.parent, "write_report", ctx, f"wrote {where.name}" if there else None)


@tool(undo=_undo_report, reconcile=_find_report)
def write_report(path: str, text: str, ctx: ToolContext) -> str:
    """Write a new report.

    Args:
        path: a file in the folder that ends in .md and does not exist yet.
        text: the whole report, in Markdown.
    """
    where = place(path)
    if where.suffix != ".md":
        raise ValueError(f"a report's name ends in .md, not {where.name!r}")
    with witnessed(ctx, "write_report", where, writes=True):
        draft = _draft(where, ctx)
        draft.write_text(text)
        os.link(draft, where)  # all of it or nothing, and never over another
        draft.unlink()
    return f"wrote {where.name}"


def _draft(report: Path, ctx: ToolContext[Any]) -> Path:
    return report.with_name(f".{report.name}.{ctx.call_id}")


def _undo_entry(asked: ToolCall, ctx: ToolContext[Any]) -> None:
    where = place(asked.arguments["folder"]) / LEDGER
    _book(where, f"reversal of {asked.arguments['text']}", -asked.arguments["amount"], ctx)
    note(where.parent, "undone", ctx, "book_entry", LEDGER)


def _find_entry(asked: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    where = place(asked.arguments["folder"]) / LEDGER
    there = booked(where, f"{ctx.task_id}/{ctx.call_id}") > 0
    return _verdict(where.parent, "book_entry", ctx, f"booked {asked.arguments['amount']}" if there else None)


@tool(undo=_undo_entry, reconcile=_find_entry)
def book_entry(folder: str, text: str, amount: int, ctx: ToolContext) -> str:
    """Book an amount in the folder's ledger. Calling it twice books twice.

    Args:
        folder: the folder's name.
        text: what the entry is for.
        amount: how much.
    """
    where = place(folder) / LEDGER
    with witnessed(ctx, "book_entry", where, writes=True):
        _book(where, text, amount, ctx)
    return f"booked {amount}"


def _book(ledger: Path, text: str, amount: int, ctx: ToolContext[Any]) -> None:
    words = re.sub(r"[,\n\r]", " ", text)
    append_line(ledger, f"{words},{amount},{ctx.task_id}/{ctx.call_id}")


def booked(ledger: Path, key: str) -> int:
    """Return how many entries a ledger holds under an idempotency key."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return sum(line.rpartition(",")[2] == key for line in lines)


def _archived(where: Path) -> Path:
    return where.parent / "archive" / where.name


def _undo_archive(asked: ToolCall, ctx: ToolContext[Any]) -> None:
    where = place(asked.arguments["path"])
    _archived(where).rename(where)
    note(where.parent, "undone", ctx, "archive_file", where.name)


def _find_archived(asked: ToolCall, ctx: ToolContext[Any]) -> Happened | NotHappened:
    where = place(asked.arguments["path"])
    there = _archived(where).exists() and not where.exists()
    return _verdict(where.parent, "archive_file", ctx, f"archived {where.name}" if there else None)


@tool(undo=_undo_archive, reconcile=_find_archived)
def archive_file(path: str, ctx: ToolContext) -> str:
    """Move a sales file to the folder's archive.

    Args:
        path: the file, as list_files returned it.
    """
    where = place(path)
    with witnessed(ctx, "archive_file", where, writes=True):
        target = _archived(where)
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            raise FileExistsError(f"{target.name} is in the archive already")
        where.rename(target)
    return f"archived {where.name}"


def _verdict(folder: Path, tool: str, ctx: ToolContext[Any], found: str | None) -> Happened | NotHappened:
    note(folder, "looked", ctx, tool, "it happened" if found is not None else "it did not happen")
    return Happened(found) if found is not None else NotHappened()


def taken_back(tool: str, arguments: dict[str, Any], key: str) -> bool:
    """Whether the effect of a finished call is not there any more.

    Args:
        tool: which tool was called.
        arguments: with what.
        key: the idempotency key of its compensation.
    """
    if tool == "book_entry":
        return booked(place(arguments["folder"]) / LEDGER, key) == 1
    where = place(arguments["path"])
    return not where.exists() if tool == "write_report" else where.exists() and not _archived(where).exists()


# ------------------------------------------------------------------------------------------- the script


def script(request: ModelRequest) -> Turn:
    """Return the answer to a request, from nothing but the conversation: the same after a crash, an undo, a fork."""
    said = [message.text for message in request.messages if message.role == "user"]
    folders = re.findall(r"demo-[0-9a-f]{8}", "\n".join(said))
    folder = folders[-1] if folders else ""
    if not said or said[-1] not in (CLOSE.format(folder=folder), INSTEAD.format(folder=folder)):
        return text(
            "I am a scripted model and know only the demonstration's two requests; give the agent a real model for "
            "others."
        )
    done, failed = _results(request)
    if failed is not None:
        return text(f"I stop here, because {failed.name} failed: {failed.text}")
    if "list_files" not in done:
        return call("list_files", folder=folder)
    files: list[str] = json.loads(done["list_files"][0].text)
    if "total_sales" not in done:
        return turn("", [call("total_sales", path=path) for path in files])
    totals = {
        item["region"]: item["total"] for item in (json.loads(result.text) for result in done["total_sales"])
    }
    if said[-1] == INSTEAD.format(folder=folder):
        return _instead(folder, totals, done)
    return _close(folder, files, totals, done)


def _close(folder: str, files: list[str], totals: dict[str, int], done: dict[str, list[ToolResult]]) -> Turn:
    total, best = sum(totals.values()), max(totals, key=lambda region: totals[region])
    if "write_report" not in done:
        rows = [f"| {region} | {totals[region]} |" for region in sorted(totals)]
        lines = ["# Month-end", "", "| region | total |", "|---|---|", *rows, "", f"Grand total: {total}", ""]
        return call("write_report", path=f"{folder}/report.md", text="\n".join(lines))
    if "book_entry" not in done:
        return call("book_entry", folder=folder, text="month-end", amount=total)
    if "archive_file" not in done:
        return turn("", [call("archive_file", path=path) for path in files])
    return text(f"The month is closed: {total} in total. The strongest region is {best}.")


def _instead(folder: str, totals: dict[str, int], done: dict[str, list[ToolResult]]) -> Turn:
    best = max(totals, key=lambda region: totals[region])
    if "write_report" not in done:
        return call(
            "write_report", path=f"{folder}/best.md", text=f"# Strongest region\n\n{best}: {totals[best]}\n"
        )
    return text(f"The strongest region is {best} with {totals[best]}. Nothing was booked.")


def _results(request: ModelRequest) -> tuple[dict[str, list[ToolResult]], ToolResult | None]:
    """Return the results so far by tool, and the first that is an error."""
    found: dict[str, list[ToolResult]] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                found.setdefault(part.name, []).append(part)
    failed = next((result for results in found.values() for result in results if result.is_error), None)
    return found, failed


TOOLS: Sequence[Any] = (list_files, total_sales, write_report, book_entry, archive_file)


def demo_agent(model: str | None = None, *, pace: float = 0.0) -> Agent:
    """Return the agent with a real model by name, or with the script and `pace` seconds before each answer."""
    brain = model or ScriptedModel(
        lambda request: replace(script(request), delay=pace), name="scripted:month-end"
    )
    return Agent(brain, name=NAME, instructions=INSTRUCTIONS, tools=TOOLS, limits=Limits(steps=20))


AGENT = demo_agent()
"""Known to every command, so that a demonstration's tasks can be resumed, undone and forked."""
