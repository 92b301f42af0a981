"""A ledger of effects: a record of each tool's real effects, in a file that survives crashes of the runner.

A test's tool records its start and its end here. The ledger, not the journal, then proves the number of runs of the
tool, their keys and their processes. An audit compares the two.

    ledger = Ledger("effects.jsonl")

    @tool
    async def pay(amount: int, ctx: ToolContext) -> str:
        with ledger.call("pay", ctx):
            return f"paid {amount}"
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from treadle.core.data import frozen, mutable
from treadle.core.tools import EffectClass
from treadle.ports import ToolContext
from treadle.testing.audit.events import LedgerEntry
from treadle.testing.crash import Crash


@frozen
class LedgerLine:
    """One line of a ledger.

    Args:
        kind: `start` when the tool begins, `done` when its effect has happened, `note` for anything else.
        tool: the tool's name, or the note's.
        call: id of the call.
        key: the call's idempotency key.
        attempt: the number of this start of the call.
        pid: the process.
        text: the text of a note, or the output of an effect.
        task: the call's task.
        effect: the declared effect class of the tool.
        time: microseconds since 1970.
    """

    kind: Literal["start", "done", "note"]
    tool: str
    call: str = ""
    key: str = ""
    attempt: int = 0
    pid: int = 0
    text: str = ""
    task: str = ""
    effect: EffectClass = "write"
    time: int = 0

    def for_audit(self) -> LedgerEntry | None:
        """Return the line as evidence for the auditor; None for a note."""
        if self.kind == "note":
            return None
        driver = str(self.pid) if self.pid else ""
        return LedgerEntry(
            self.call, self.key, self.effect, self.kind, self.task, self.attempt, driver, self.time
        )


@mutable
class Noted:
    """The text that is recorded with an effect."""

    text: str = ""


class Ledger:
    """A file of JSON lines; each is on disk before the next statement runs.

    Several processes and threads may write to it at the same time.

    Args:
        path: the file; the first line creates it.
        crash: kills the process at a place; each call passes the places `enter`, `start` and `done`.
        durable: False for a ledger that may lose lines in a power cut, which is much faster.
    """

    def __init__(
        self, path: str | os.PathLike[str], crash: Crash | None = None, *, durable: bool = True
    ) -> None:
        self.path = Path(path)
        self._durable = durable
        self.crash = crash if crash is not None else Crash()

    @contextmanager
    def call(
        self, tool: str, ctx: ToolContext[Any], *, effect: EffectClass = "write", pid: int | None = None
    ) -> Generator[Noted]:
        """Record that a tool began and, unless the block raises, that its effect happened.

        Args:
            tool: the tool's name.
            ctx: the tool's context.
            effect: its declared effect class.
            pid: the process that drives the task, if the tool runs in another one.
        """
        name = self.crash.numbered(f"{tool} {ctx.call_id}")
        noted = Noted()
        self.crash.reach(f"enter {name}")
        self._write(_entry("start", tool, ctx, effect, pid))
        self.crash.reach(f"start {name}")
        yield noted
        self._write(_entry("done", tool, ctx, effect, pid, noted.text))
        self.crash.reach(f"done {name}")

    def note(self, name: str, text: str = "", *, call: str = "", task: str = "") -> None:
        """Record another fact and the call that it concerns."""
        now = time.time_ns() // 1000
        self._write(LedgerLine("note", name, call, pid=os.getpid(), text=text, task=task, time=now))

    def entries(self) -> list[LedgerLine]:
        """Return all lines, oldest first, without lines that a crash cut off, whose effects did not begin."""
        lines: list[LedgerLine] = []
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            with suppress(json.JSONDecodeError):
                lines.append(LedgerLine(**json.loads(line)))
        return lines

    def for_audit(self) -> list[LedgerEntry]:
        """Return the starts and ends of calls as evidence for the auditor."""
        return [entry for line in self.entries() if (entry := line.for_audit()) is not None]

    def happened(self, key: str) -> bool:
        """Return whether the effect of the call with this idempotency key has happened."""
        return self.done(key) is not None

    def done(self, key: str) -> LedgerLine | None:
        """Return the line for the effect of the call with this idempotency key; None if it has not happened."""
        return next((line for line in self.entries() if line.kind == "done" and line.key == key), None)

    def _write(self, entry: LedgerLine) -> None:
        append_line(self.path, json.dumps(asdict(entry)), durable=self._durable)


def append_line(path: Path, line: str, *, durable: bool = True) -> None:
    """Append a line to a file in one write; an earlier line that a crash cut off stays separate."""
    # O_APPEND keeps the lines of concurrent processes apart; O_DSYNC returns once the line is on the disk.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_DSYNC if durable else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_cut_off = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, b"\n" * is_cut_off + line.encode() + b"\n")
    finally:
        os.close(descriptor)


def _entry(
    kind: Literal["start", "done"],
    tool: str,
    ctx: ToolContext[Any],
    effect: EffectClass,
    pid: int | None,
    text: str = "",
) -> LedgerLine:
    return LedgerLine(
        kind,
        tool,
        ctx.call_id,
        ctx.idempotency_key,
        ctx.attempt,
        os.getpid() if pid is None else pid,
        text,
        task=ctx.task_id,
        effect=effect,
        time=time.time_ns() // 1000,
    )
