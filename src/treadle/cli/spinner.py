"""A moving line on a terminal during waits, so that a wait does not look like a hang."""

from __future__ import annotations

import time
from itertools import cycle
from threading import Event, Thread
from typing import Final

from rich.cells import cell_len
from rich.console import Console

from treadle.core.display import clean

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
DELAY: Final = 0.3
"""Seconds of silence before it appears: quick calls show none."""

_INTERVAL: Final = 0.1


class Spinner:
    """The moving line. A thread draws it; only the printing thread calls its methods.

    Args:
        out: the console; nothing is drawn unless it is a terminal that can erase a line.
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
            return  # the terminal has gone: the next print reports it
