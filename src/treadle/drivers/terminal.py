"""The terminal of this process: whether there is one, and how a line is read from it while the event loop runs on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec

from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError


def has_terminal() -> bool:
    """Whether a person can be asked: standard input and standard error are a terminal that can be watched."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty() and find_spec("termios") is not None
    except (AttributeError, ValueError):  # the streams were closed, or there are none
        return False


def check_interaction(options: RunOptions) -> None:
    """Raise `ConfigurationError` if a run is to ask at a terminal and there is none."""
    if options.interaction == "interactive" and not has_terminal():
        raise ConfigurationError(
            "RunOptions: interaction='interactive' asks on the terminal of this process, and standard input or "
            "standard error is none: use 'external', and decide with `treadle approve` or `runner.approve`"
        )


def drop_typed() -> None:
    """Drop what was typed on the terminal and not read: it was not meant for what is asked now."""
    import termios  # not there on every system

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextmanager
def echoing(echoes: bool) -> Generator[None]:
    """Have the terminal echo what is typed and edit lines for the length of a block, or do neither."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before, now = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    flags = termios.ICANON | termios.ECHO
    now[3] = now[3] | flags if echoes else now[3] & ~flags
    termios.tcsetattr(terminal, termios.TCSANOW, now)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


async def readable() -> None:
    """Return once standard input, a terminal, has something to read."""
    loop, is_readable = asyncio.get_running_loop(), asyncio.Event()
    terminal = sys.stdin.fileno()
    loop.add_reader(terminal, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(terminal)


class TerminalLines:
    """Reads lines that a person writes on the terminal, which echoes and edits them itself.

    Args:
        write: writes a question.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._asked: asyncio.Future[None] | None = None

    async def read(self, mark: str) -> str:
        """Return a line, without its end; raise `EOFError`, or `KeyboardInterrupt` if it is interrupted."""
        self._write(mark)
        self._asked = asked = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(readable())
        reading.add_done_callback(lambda _: asked.done() or asked.set_result(None))
        try:
            await asked
        except KeyboardInterrupt:
            self._write("\n")
            raise
        finally:
            self._asked = None
            reading.cancel()
        line = sys.stdin.readline()
        if not line:
            self._write("\n")
            raise EOFError
        return line.removesuffix("\n")

    def interrupt(self) -> bool:
        """End the question that is asked, as Ctrl-C does; return False if there is none."""
        if self._asked is None:
            return False
        if not self._asked.done():
            self._asked.set_exception(KeyboardInterrupt())
        return True


def columns() -> int:
    """Return how many columns the terminal has now; 80 if that is not known."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
