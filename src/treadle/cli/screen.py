"""The output of commands: text for people, or one JSON document for programs.

Text from models, tools and journals may have escape sequences and markup. It is printed as text, never interpreted. A
spinner on a terminal shows that a wait is not a hang.
"""

from __future__ import annotations

import io
import json as json_format
import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from itertools import cycle
from threading import Event, Thread
from typing import Any, Final, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from treadle.cli.wrapping import wrapped
from treadle.core.display import clean
from treadle.results.wire import plain_wire

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
DELAY: Final = 0.3
"""Seconds of silence before the spinner appears; quick calls show none."""

_INTERVAL: Final = 0.1


class Spinner:
    """The moving line of a wait. A thread draws it; only the printing thread calls its methods.

    Args:
        out: the console; the line is drawn only on a terminal that can erase a line.
    """

    def __init__(self, out: Console) -> None:
        self._out = out
        self._text = ""
        self._thread: Thread | None = None
        self._stopped = Event()

    def show(self, text: str) -> None:
        """Draw a text with the seconds since it appeared; repeating the same text continues the count."""
        if text == self._text or not self._out.is_terminal or self._out.is_dumb_terminal:
            return
        self.stop()
        self._text, self._stopped = text, Event()
        line = " ".join(clean(text).split())
        self._thread = Thread(target=self._draw, args=(line, self._stopped), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Erase the line; return after drawing has stopped."""
        if self._thread is None:
            return
        self._stopped.set()
        self._thread.join()
        self._thread, self._text = None, ""

    def _draw(self, text: str, stopped: Event) -> None:
        if stopped.wait(DELAY):
            return
        began, file = time.monotonic() - DELAY, self._out.file
        dim, plain = ("", "") if self._out.no_color else ("\x1b[2m", "\x1b[0m")
        try:
            for frame in cycle(FRAMES):
                line = f"{frame} {text}  {time.monotonic() - began:.0f} s"
                while cell_len(line) >= self._out.width:
                    line = line[:-1]
                file.write(f"\r\x1b[K{dim}{line}{plain}")
                file.flush()
                if stopped.wait(_INTERVAL):
                    break
            file.write("\r\x1b[K")
            file.flush()
        except (OSError, ValueError):
            return  # the terminal has gone, and the next print reports it


STYLES: Final = {
    "completed": "green",
    "degraded": "yellow",
    "failed": "red",
    "cancelled": "magenta",
    "waiting": "yellow",
    "paused": "cyan",
    "interrupted": "yellow",
    "running": "blue",
    "between steps": "blue",
    "answered": "blue",
}
"""The colour of each task state."""


SHORTEST_ID: Final = 7
"""Minimum number of characters of an id's end that are shown, enough for some thousand tasks."""

_MADE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHOLE_ID: Final = 24


def some(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural if needed."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def dollars(cost: Decimal) -> str:
    """Return an amount of US dollars for people: in cents, with more digits below a dollar."""
    if cost >= 1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= Decimal("0.01") else f"${cost:.6f}"


def short(text: str, limit: int = 300) -> str:
    """Return text on one line, cut to a number of characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def short_ids(task_ids: Iterable[str]) -> dict[str, str]:
    """Return for each id its shortest end that is unique on the screen.

    Treadle's ids begin with their time and end at random, so the ids of a batch begin alike. An id of the caller is
    shown whole unless it is long.
    """
    ids = set(task_ids)
    size = SHORTEST_ID
    while True:
        shown = {task_id: _end_of(task_id, size) for task_id in ids}
        if len(set(shown.values())) == len(ids):
            return shown
        size += 1


def _end_of(task_id: str, size: int) -> str:
    root, dot, child = task_id.partition(".")
    return root[-size:] + dot + child if _MADE_ID.fullmatch(root) or len(root) > _WHOLE_ID else task_id


class Screen:
    """The two streams of a command.

    Args:
        json: print one JSON document on standard output, and all text on standard error.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._stdout = sys.stdout
        self._document: Any = None
        self._lines: TextIO | None = None
        self.out = _console(sys.stderr if json else sys.stdout)
        self.err = _console(sys.stderr)
        self.spinner = Spinner(self.out)

    @property
    def width(self) -> int | None:
        """The current columns of the terminal; None for lines of any length."""
        if not self.out.is_terminal:
            return None
        try:
            return min(self.out.width, os.get_terminal_size(self.out.file.fileno()).columns or self.out.width)
        except (OSError, ValueError):
            return self.out.width

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line of texts, some with a style; texts are not parsed as markup."""
        self.spinner.stop()
        self.out.print(_fitted(styled(parts), self.out))

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a line on standard error, since it is not a part of the result."""
        self.spinner.stop()
        self.err.print(_fitted(styled(parts), self.err))

    def command(self, label: str, command: str) -> None:
        """Print a command to type, never wrapped; on a separate line if it does not fit beside its label."""
        self.spinner.stop()
        line = styled(((label, "dim"), command))
        if self.out.is_terminal and cell_len(line.plain) > self.out.width:
            self.out.print(styled(((label.rstrip(), "dim"),)))
            line = styled((command,))
        self.out.print(line)

    def short(self, task_id: str) -> str:
        """Return a task's id for people: its end on a terminal, the whole id elsewhere."""
        return short_ids([task_id])[task_id] if self.out.is_terminal else task_id

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, state_column: int | None = None
    ) -> None:
        """Print rows: as a table on a terminal, else as lines with tabs between the cells.

        Args:
            columns: the table's column names.
            rows: the cells of each row.
            state_column: the column with a task's state, which is coloured.
        """
        if not self.out.is_terminal:
            if not self.out.quiet:
                for row in rows:  # not by the console, which converts tabs to spaces
                    self.out.file.write("\t".join([" ".join(clean(cell).split()) for cell in row]) + "\n")
            return
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True)
        for number, name in enumerate(columns, 1):
            is_last = number == len(columns)
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if is_last else None)
        for row in rows:
            cells = [Text(" ".join(clean(cell).split())) for cell in row]
            if state_column is not None:
                cells[state_column].style = STYLES.get(row[state_column], "")
            table.add_row(*cells)
        self.spinner.stop()
        self.out.print(table, soft_wrap=False)

    def document(self, value: Any) -> None:
        """Set the document that `--json` prints at the end; with it, no more text is printed."""
        self._document = value
        self.out.quiet = self.json

    def entry(self, value: Any) -> None:
        """With `--json`, print a document on its own line now, for commands that run until a signal."""
        if self._lines is not None:
            self._lines.write(_line_of(value))
            self._lines.flush()

    @contextmanager
    def one_document(self) -> Generator[None]:
        """With `--json`, send the output of tools and child processes to standard error."""
        if not self.json:
            yield
            return
        with redirect_stdout(sys.stderr), _descriptor_to_stderr(self._stdout) as out:
            self._lines = out
            yield
            if self._document is not None:
                out.write(_line_of(self._document))
                out.flush()


def _line_of(value: Any) -> str:
    return json_format.dumps(plain_wire(value), allow_nan=False) + "\n"  # ASCII: every terminal can show it


def _fitted(line: Text, console: Console) -> Text:
    """Return a line wrapped to the terminal, or unchanged for programs."""
    return wrapped(line, console) if console.is_terminal else line


def styled(parts: Iterable[str | tuple[str, str]]) -> Text:
    """Return a line of texts, some with a style, with control characters made visible."""
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append(clean(text), style)
    return line


class _Console(Console):
    """A console that raises `BrokenPipeError`, so that a driver releases its tasks before it ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None


def _console(stream: TextIO) -> Console:
    if hasattr(stream, "reconfigure"):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace")
    return _Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def _descriptor_to_stderr(stream: TextIO) -> Generator[TextIO]:
    """Redirect a stream's descriptor to standard error; yield a stream to its original target."""
    try:
        descriptor, stderr = stream.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):
        yield stream  # not a real file: no child process can write to it
        return
    stream.flush()
    original = os.dup(descriptor)
    os.dup2(stderr, descriptor)
    try:
        with os.fdopen(os.dup(original), "w", encoding="ascii") as out:
            yield out
    finally:
        os.dup2(original, descriptor)
        os.close(original)
