"""A command on a terminal of its own, and what is on its screen: a small part of what a terminal does, done exactly."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.cells import cell_len

from tests.forked import Forked, own_the_terminal

_SEQUENCE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[=>78]")
_UNFINISHED = re.compile(r"\x1b(?:\[[?>]?[0-9;]*|\][^\x07]*)?$")


class Screen:
    """The lines of a terminal, with all that has scrolled away, and the styles of each character."""

    def __init__(self, columns: int, rows: int = 50) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[tuple[str, str]]] = [[]]
        self.row = self.column = 0
        self.broken: list[str] = []
        """words that the terminal broke inside, since they did not fit the line"""

        self.replies: list[str] = []
        """what the terminal answers: where its cursor is"""

        self._style = ""
        self._rest = ""

    def feed(self, text: str) -> None:
        """Draw what a program wrote."""
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text[: len(text) - len(self._rest)]
        at = 0
        for match in _SEQUENCE.finditer(text):
            for character in text[at : match.start()]:
                self._put(character)
            self._obey(match[1] or "", match[2] or "", match[3] or "")
            at = match.end()
        for character in text[at:]:
            self._put(character)

    def _put(self, character: str) -> None:
        if character == "\n":
            self._move_to(self.row + 1, self.column)
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character >= " ":
            size = cell_len(character)
            if self.column + size > self.columns:  # a terminal breaks the line here, inside a word if need be
                before = "".join(c for c, _ in self.lines[self.row])
                if before[-1:].isalnum() and character.isalnum() and " " in before.strip():
                    self.broken.append(f"{before.split()[-1]}/{character}")
                self._move_to(self.row + 1, 0)
            line = self.lines[self.row]
            line.extend([(" ", "")] * (self.column - len(line)))
            line[self.column : self.column + size] = [(character, self._style)] + [("", "")] * (size - 1)
            self.column += size

    def _move_to(self, row: int, column: int) -> None:
        self.row, self.column = max(0, row), max(0, column)
        while len(self.lines) <= self.row:
            self.lines.append([])

    def _obey(self, private: str, numbers: str, letter: str) -> None:
        first = numbers.partition(";")[0]
        count = int(first or 1)
        if letter == "m":
            self._style = "" if numbers in ("", "0") else f"{self._style};{numbers}".strip(";")
        elif letter == "A":
            self._move_to(self.row - count, self.column)
        elif letter == "B":
            self._move_to(self.row + count, self.column)
        elif letter == "C":
            self._move_to(self.row, self.column + count)
        elif letter == "D":
            self._move_to(self.row, self.column - count)
        elif letter == "G":
            self._move_to(self.row, count - 1)
        elif letter == "K":
            line = self.lines[self.row]
            if numbers in ("", "0"):
                del line[self.column :]
            elif numbers == "2":
                line.clear()
        elif letter == "J" and numbers in ("", "0"):
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif letter == "n" and numbers == "6":
            self.replies.append(
                f"\x1b[{self.row - max(0, len(self.lines) - self.rows) + 1};{self.column + 1}R"
            )
        elif letter in "HJ":
            top = max(0, len(self.lines) - self.rows)
            if letter == "H":
                self._move_to(top, 0)

    @property
    def text(self) -> str:
        """What is to be read on the screen and above it."""
        return "\n".join("".join(c for c, _ in line).rstrip() for line in self.lines).rstrip() + "\n"

    @property
    def marked(self) -> str:
        """The same with each run of a style between marks such as `<32>completed</>`."""
        return "\n".join(_marked(line) for line in self.lines).rstrip() + "\n"


def _marked(line: Sequence[tuple[str, str]]) -> str:
    text, style = "", ""
    for character, its_style in [*line, ("", "")]:
        if its_style != style and (character.strip() or not its_style):
            text += ("</>" if style else "") + (f"<{its_style}>" if its_style else "")
            style = its_style
        text += character
    return text.rstrip()


class Terminal:
    """A command of `treadle` on a pty.

    Args:
        folder: where it runs.
        arguments: the command.
        columns: the width of the terminal.
        program: what runs the command line.
        color: whether the terminal shows colours.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        columns: int = 80,
        rows: int = 50,
        program: Sequence[str] = ("-m", "treadle"),
        color: bool = True,
        **env: str,
    ) -> None:
        self.screen = Screen(columns, rows)
        self._bytes = b""
        self.written = ""
        """all that it wrote, before it was drawn"""

        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color" if color else "xterm-mono", **env}
        environment["COLUMNS"] = str(columns)
        environment["LINES"] = str(rows)
        for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
            environment.pop(name, None)
        if not color:
            environment["NO_COLOR"] = "1"
        self.process = Forked(
            [sys.executable, *program, *arguments],
            cwd=folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=own_the_terminal,
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    def press(self, keys: str) -> None:
        """Type on the keyboard."""
        os.write(self._master, keys.encode())

    def read(self, seconds: float = 0.05) -> bool:
        """Draw what comes within a time; return False at the end of the program's output."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            return False
        self._bytes += data
        whole = self._bytes.decode("utf-8", "ignore")
        self._bytes = self._bytes[len(whole.encode()) :]
        self.written += whole
        self.screen.feed(whole)
        while self.screen.replies:
            self.press(self.screen.replies.pop(0))
        return bool(data)

    def wait_for(self, text: str, seconds: float = 30, *, times: int = 1) -> None:
        """Wait until a text is on the screen, so many times."""
        until = time.monotonic() + seconds
        while self.screen.text.count(text) < times:
            assert self.read(), f"it ended without {text!r}:\n{self.screen.text}"
            assert time.monotonic() < until, f"no {text!r} on the screen:\n{self.screen.text}"

    def wait_for_prompt(self, mark: str = "›", seconds: float = 30) -> None:
        """Wait until the cursor is behind a mark at the beginning of its line."""
        until = time.monotonic() + seconds
        while not "".join(c for c, _ in self.screen.lines[self.screen.row]).startswith(mark):
            assert self.read(), f"it ended:\n{self.screen.text}"
            assert time.monotonic() < until, f"no prompt:\n{self.screen.text}"

    def finished(self, seconds: float = 60) -> str:
        """Wait for the end of the program, and return what is on the screen."""
        until = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < until, f"it goes on:\n{self.screen.text}"
        self.process.wait(10)
        return self.screen.text
