"""Kill processes that left their process group: they inherit a mark in their environment.

A group is killed as a whole, but a process can leave it. Where `/proc` shows environments, as on Linux, processes with
the mark of an ended program are killed too. A program that clears the environment of its children escapes: only a
sandbox contains a program that hides.
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
"""Most scans of `/proc`."""

EMPTY: Final = 3
"""Consecutive empty scans before the search ends: a daemonizing program forks while it is searched for."""

PAUSE: Final = 0.02
"""Seconds between two scans if the last one was empty."""

_PROCESSES: Final = Path("/proc")


def new_mark() -> str:
    """Return a unique mark."""
    return secrets.token_hex(16)


def kill_marked(mark: str) -> int:
    """Kill the processes of this user that have a mark; return their number."""
    killed = empty = 0
    for _ in range(ROUNDS if hasattr(os, "pidfd_open") else 0):
        count = sum(map(_kill, _marked(mark)))
        killed, empty = killed + count, 0 if count else empty + 1
        if empty == EMPTY:
            break
        if not count:
            time.sleep(PAUSE)
    return killed


def _marked(mark: str) -> Iterator[int]:
    """Yield pidfds of processes that have a mark; the caller closes them."""
    variable = f"{VARIABLE}={mark}".encode()
    for folder in _PROCESSES.glob("[0-9]*"):
        # The pidfd is opened first: otherwise the pid could belong to another process by the time of the kill.
        with suppress(OSError):
            handle = os.pidfd_open(int(folder.name))
            try:
                carries = variable in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                carries = False
            if carries:
                yield handle
            else:
                os.close(handle)


def _kill(handle: int) -> bool:
    """Kill a process by its pidfd and close the pidfd; return whether the process existed."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
