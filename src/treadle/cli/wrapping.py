"""Wrap lines to the terminal's width between words. A word is broken only if it is wider than a line."""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_MARK: Final = re.compile(r"\s*(?:[^\w\s(\[{'\"<$/`@#-]+ +)?")
"""The start of a line: its indentation, and a mark such as an arrow."""

_HELD: Final = "\ue000"
"""Placeholder for a blank at which a line must not be broken."""

_WORDS: Final = r"\n|[^\S\n]+|[\u2e80-\uffff]|[^\s\u2e80-\uffff]+"
"""A line end, blanks, a wide character, or a word; text of wide characters has no blanks. Slow to compile."""


def wrapped(line: Text, console: Console) -> Text:
    """Return a text whose lines fit the console; continuation lines have the indent of the first."""
    width = console.width
    if cell_len(line.plain) <= width and "\n" not in line.plain:
        return line
    parts: list[Text] = []
    for part in line.split("\n", allow_blank=True):
        mark = _MARK.match(part.plain)
        indent = cell_len(mark[0]) if mark is not None and cell_len(mark[0]) < width // 2 else 0
        if cell_len(part.plain) <= width:
            parts.append(part)
            continue
        characters = len(mark[0]) if mark is not None and indent else 0
        first, *rest = _broken(part[characters:] if characters else part, console, width - indent)
        parts.append(Text.assemble(part[:characters], first) if characters else first)
        parts += [Text.assemble(" " * indent, piece) for piece in rest]
    for part in parts:
        part.rstrip()
    return Text("\n").join(parts)


def _broken(line: Text, console: Console, width: int) -> list[Text]:
    """Return a line as several lines; short facts separated by dots are broken at the dots."""
    facts = line.plain.split(" · ")
    if len(facts) == 1 or any(cell_len(fact) > width for fact in facts):
        return [*line.wrap(console, width)]
    line = line.copy()
    line.plain = " · ".join([fact.replace(" ", _HELD) for fact in facts]).replace("· ", f"·{_HELD}")
    lines = [*line.wrap(console, width)]
    for each in lines:
        each.plain = each.plain.replace(_HELD, " ")
    return lines


class WordFlow:
    """Print text that arrives in pieces; a word is printed when it is complete.

    Args:
        out: prints the text.
        indent: the indent of each line.
    """

    def __init__(self, out: Console, indent: str = "  ") -> None:
        self._out = out
        self._indent = indent
        self._column = 0
        self._blank = self._word = self._style = ""
        self.is_open = False
        """whether a line has begun and not ended"""

    def write(self, text: str, style: str = "") -> None:
        """Print a piece of text; its last word is printed with the next piece or at the end."""
        if not self.is_open:
            self.is_open, self._column = True, cell_len(self._indent)
            self._print(self._indent)
        self._style = style
        for match in re.finditer(_WORDS, text):
            token = match[0]
            if token == "\n":  # noqa: S105 - a line end
                self._put_word()
                self._print("\n" + self._indent)
                self._column, self._blank = cell_len(self._indent), ""
            elif token.isspace():
                self._put_word()
                self._blank += token
            elif token >= "\u2e80":  # noqa: S105
                self._put_word()
                self._word = token
                self._put_word()
            else:
                self._word += token
                if cell_len(self._word) >= self._out.width:
                    self._put_word()  # longer than a line, so it need not wait

    def end(self) -> None:
        """Print the last word, and end the line."""
        if self.is_open:
            self._put_word()
            self._print("\n")
        self.is_open, self._blank = False, ""

    def _put_word(self) -> None:
        if not self._word:
            return
        size = cell_len(self._blank + self._word)
        if self._column + size > self._out.width and self._column > cell_len(self._indent):
            self._print("\n" + self._indent)
            self._column, size, self._blank = cell_len(self._indent), cell_len(self._word), ""
        self._print(self._blank + self._word)
        self._column += size
        if self._column > self._out.width:  # the terminal broke a word longer than a line
            self._column %= self._out.width
        self._word = self._blank = ""

    def _print(self, text: str) -> None:
        self._out.print(Text(text, self._style if text.strip() else ""), end="", soft_wrap=True)
