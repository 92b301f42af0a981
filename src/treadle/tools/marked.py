"""Programs that leave the group they were started in: found by a mark in their environment, which they hand on.

A group is killed as one, but a program leaves it by one call. Where `/proc` shows the environments of processes, as on
Linux, what carries the mark of an ended program is killed too. A program that empties the environment of what it starts
is not found: only a sandbox holds a program that hides.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "TREADLE_STARTED_AS"
"""The environment variable that holds the mark."""

ROUNDS: Final = 12
"""How often it is looked at most."""

EMPTY: Final = 3
"""How often in a row nothing is to be found: a program that detaches itself starts others while it is looked for."""

PAUSE: Final = 0.02
"""Seconds until it is looked again where nothing was found."""

_PROCESSES: Final = Path("/proc")


def new_mark() -> str:
    """Return a mark that no other program has."""
    return secrets.token_hex(16)


def kill_marked(mark: str) -> int:
    """Kill the processes of this user that carry a mark; return how many there were."""
    killed = empty = 0
    for _ in range(ROUNDS if hasattr(os, "pidfd_open") else 0):
        found = sum(map(_kill, _marked(mark)))
        killed, empty = killed + found, 0 if found else empty + 1
        if empty == EMPTY:
            break
        if not found:
            time.sleep(PAUSE)
    return killed


def _marked(mark: str) -> Iterator[int]:
    """Yield the handles of processes that carry a mark; the caller closes them."""
    wanted = f"{VARIABLE}={mark}".encode()
    for folder in _PROCESSES.glob("[0-9]*"):
        # The handle comes first: else the number could be that of another process by the time it is killed.
        with suppress(OSError):
            handle = os.pidfd_open(int(folder.name))
            try:
                carries = wanted in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                carries = False
            if carries:
                yield handle
            else:
                os.close(handle)


def _kill(handle: int) -> bool:
    """Kill a process by its handle, and close that; return whether the process was there."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
