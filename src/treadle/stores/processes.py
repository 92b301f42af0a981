"""Identify this process, and find out whether the driver of a task is still alive.

A driver is alive while its lease lasts. On one host the process table counts too, so the tasks of a crashed driver are
free at once. Those of a stopped driver, or of one on another host, are free when its lease has passed.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

from treadle.core.data import frozen
from treadle.errors import ConfigurationError

LEASE_SECONDS: Final = 60.0
"""Seconds for which a driver counts as alive after its last heartbeat, unless a store sets another number."""

SHORTEST_LEASE: Final = 0.5
LONGEST_LEASE: Final = 86_400.0

HEARTBEATS_PER_LEASE: Final = 6
"""Number of heartbeats in a lease; a driver that is late with some of them keeps its tasks."""


@frozen
class Process:
    """A process as a row of the `drivers` table describes it.

    Args:
        key: a fresh id.
        host: the host's name.
        boot: the boot and the namespace of process ids, since containers share a kernel but not their ids.
        pid: its process id.
        started: its start, in the kernel's ticks since boot; 0 if the system does not report it.
    """

    key: str
    host: str
    boot: str
    pid: int
    started: int


@cache
def _start_of_this(pid: int) -> int:
    """Return the start of this process. Cached by process id, since a child made by fork inherits the cache."""
    return start_of(pid) or 0


def this_process() -> Process:
    """Return this process, under a fresh key."""
    pid = os.getpid()
    return Process(str(uuid4()), socket.gethostname(), _boot(), pid, _start_of_this(pid))


def checked_lease(seconds: float, name: str = "lease_seconds") -> float:
    """Return a lease's length in seconds; raise `ConfigurationError` for an invalid one."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{name} must be a number of seconds, got {seconds!r}")
    if not SHORTEST_LEASE <= seconds <= LONGEST_LEASE:
        raise ConfigurationError(
            f"{name} must be {SHORTEST_LEASE:g} to {LONGEST_LEASE:g} seconds, got {seconds!r}"
        )
    return float(seconds)


def lease_from_now(seconds: float = LEASE_SECONDS) -> int:
    """Return the end of a lease that begins now, in microseconds since 1970."""
    return int((time.time() + seconds) * 1_000_000)


def alive(host: str, boot: str, pid: int, started: int, lease: int) -> bool:
    """Return whether the process of a `drivers` row is alive: its lease lasts and it has not ended."""
    if lease <= time.time() * 1_000_000:
        return False
    if host != socket.gethostname() or boot != _boot():
        return True
    if pid == os.getpid():
        return started == _start_of_this(pid)
    if started:
        return start_of(pid) == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_of(pid: int) -> int | None:
    """Return the start of a living process in ticks since boot; None if it ended or the system does not report it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name may contain spaces and brackets, so fields are counted from its last bracket.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
