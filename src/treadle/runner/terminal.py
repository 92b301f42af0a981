"""Ask a person on the terminal of the process, for `RunOptions(interaction="interactive")`."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from textwrap import fill
from typing import Final

from treadle.core.display import clean, exact_text
from treadle.drivers.terminal import TerminalLines, columns, drop_typed
from treadle.results.pending import Pending
from treadle.runner.approvals import ApprovalVerbs
from treadle.runner.deciding import Dialogue, Part, cells

_QUEUE: Final = deque[object]()
"""The questions of all runners and event loops of this process, in order; the first one has the terminal."""

_POLL: Final = 0.05
"""Seconds between two checks of a question for its turn."""


class _Terminal:
    """Asks on standard error, and reads lines of standard input."""

    def __init__(self) -> None:
        self._lines = TerminalLines(_write)

    async def answer(self, mark: str, default: str = "") -> str:
        if default:
            self.line(f"    now: {exact_text(default)}")
        drop_typed()
        return await self._lines.read(mark)

    def line(self, *parts: Part) -> None:
        """Print a line without styles; a long one is broken between words."""
        line = clean("".join([part if isinstance(part, str) else part[0] for part in parts]))
        if cells(line) > columns():
            line = fill(line, columns(), subsequent_indent="    ")
        _write(f"{line}\n")


async def ask_at_terminal(verbs: ApprovalVerbs, item: Pending) -> None:
    """Ask a person about a waiting call and record the decision; one question at a time."""
    place = object()
    _QUEUE.append(place)
    try:
        while _QUEUE[0] is not place:  # noqa: ASYNC110 - a queue of all loops cannot be awaited
            await asyncio.sleep(_POLL)
        terminal = _Terminal()
        await Dialogue(verbs, terminal, terminal.line, width=columns).decide([item])
    finally:
        _QUEUE.remove(place)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
