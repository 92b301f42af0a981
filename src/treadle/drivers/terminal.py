"""The terminal of this process: detect it, and read lines from it while the event loop runs."""

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
    """Return whether standard input and standard error are a terminal, so that a person can be asked."""
    try:
        return sys.stdin.isatty() and sys.stderr.isatty() and find_spec("termios") is not None
    except (AttributeError, ValueError):  # the streams were closed, or there are none
        return False


def check_interaction(options: RunOptions) -> None:
    """Raise `ConfigurationError` if a run must ask at a terminal and there is none."""
    if options.interaction == "interactive" and not has_terminal():
        raise ConfigurationError(
            "RunOptions: interaction='interactive' asks on the terminal of this process, but standard input or "
            "standard error is no terminal: use 'external', and decide with `treadle approve` or `runner.approve`"
        )


def drop_typed() -> None:
    """Drop unread input of the terminal, which was typed before the present question."""
    import termios  # missing on some systems

    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextmanager
def echoing(echoes: bool) -> Generator[None]:
    """Turn echo and line editing of the terminal on or off for the length of a block."""
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
    """Return once standard input, a terminal, has input."""
    loop, is_readable = asyncio.get_running_loop(), asyncio.Event()
    terminal = sys.stdin.fileno()
    loop.add_reader(terminal, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(terminal)


class TerminalLines:
    """Reads lines that a person types at the terminal, which echoes and edits them itself.

    Args:
        write: writes a question.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._asked: asyncio.Future[None] | None = None

    async def read(self, mark: str) -> str:
        """Return a line without its end; raise `EOFError`, or `KeyboardInterrupt` if it is interrupted."""
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
        """Interrupt the open question, like Ctrl-C; return False if there is none."""
        if self._asked is None:
            return False
        if not self._asked.done():
            self._asked.set_exception(KeyboardInterrupt())
        return True


def columns() -> int:
    """Return the present number of columns of the terminal; 80 if it is not known."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
