"""Where commands write: text for people, one JSON document for programs, and nothing that a model could make act.

Text from models, tools and journals may hold escape sequences and markup: it is shown, never interpreted.
"""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Generator, Iterable
from contextlib import contextmanager, redirect_stdout
from decimal import Decimal
from typing import Any, Final, TextIO, cast

from rich.console import Console
from rich.text import Text

from treadle.cli.json_output import as_document

STYLES: Final = {
    "completed": "green",
    "degraded": "yellow",
    "failed": "red",
    "cancelled": "magenta",
    "waiting": "yellow",
    "paused": "cyan",
    "interrupted": "yellow",
    "running": "blue",
    "answered": "blue",
}
"""How the state of a task is coloured."""


def clean(text: str) -> str:
    """Return text that a terminal only shows: control and direction characters become visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([_shown(character) for character in text.replace("\r\n", "\n")])


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\u200d":
        return character.encode("unicode_escape").decode("ascii")
    return character


def some(count: int, what: str) -> str:
    """Return how many there are of something, in words."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def dollars(cost: Decimal) -> str:
    """Return an amount of US dollars as people read it: cents, and of less than a dollar what is there to see."""
    if cost >= 1 or cost == 0:
        return f"${cost:,.2f}"
    return f"${cost:.4f}" if cost >= Decimal("0.01") else f"${cost:.6f}"


def short(text: str, limit: int = 300) -> str:
    """Return text on one line, cut to a number of characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


class Screen:
    """The two streams of a command.

    Args:
        json: print one JSON document on standard output and all text on standard error.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._stdout = sys.stdout
        self._document: Any = None
        self._lines: TextIO | None = None
        self.out = _console(sys.stderr if json else sys.stdout)
        self.err = _console(sys.stderr)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line of texts, some of them with a style; none is read as markup."""
        self.out.print(_text(parts))

    def note(self, *parts: str | tuple[str, str]) -> None:
        """Print a line that is no result."""
        self.err.print(_text(parts))

    def row(self, cells: Iterable[str]) -> None:
        """Print a line of cells with a tab between two, for programs that cut at tabs."""
        if not self.out.quiet:  # past the console, which turns tabs into spaces
            self.out.file.write("\t".join([" ".join(clean(cell).split()) for cell in cells]) + "\n")

    def document(self, value: Any) -> None:
        """Set what `--json` prints when the command ends; no text repeats it from here on."""
        self._document = value
        self.out.quiet = self.json

    def entry(self, value: Any) -> None:
        """With `--json`, print a document of its own line now: for a command that goes on until it is ended."""
        if self._lines is not None:
            self._lines.write(as_document(value) + "\n")
            self._lines.flush()

    @contextmanager
    def one_document(self) -> Generator[None]:
        """With `--json`, keep everything off standard output but the document, whoever prints: tools, children."""
        if not self.json:
            yield
            return
        with redirect_stdout(sys.stderr), _descriptor_to_stderr(self._stdout) as out:
            self._lines = out
            yield
            if self._document is not None:
                out.write(as_document(self._document) + "\n")
                out.flush()


def _text(parts: tuple[str | tuple[str, str], ...]) -> Text:
    line = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        line.append(clean(words), style)
    return line


class _Console(Console):
    """A console whose broken pipe is an error like others: a driver is to give its tasks back before it ends."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError from None


def _console(stream: TextIO) -> Console:
    if hasattr(stream, "reconfigure"):
        cast("io.TextIOWrapper", stream).reconfigure(errors="replace")
    return _Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def _descriptor_to_stderr(stream: TextIO) -> Generator[TextIO]:
    """Lead what is written to a stream's descriptor to standard error, and yield the way to where it led."""
    try:
        descriptor, aside = stream.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):
        yield stream  # not a real file, so that nobody else can write to it
        return
    stream.flush()
    kept = os.dup(descriptor)
    os.dup2(aside, descriptor)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="ascii") as out:
            yield out
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
