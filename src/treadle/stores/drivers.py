"""Which process this is, and whether the process that owned a task is still alive.

On one host the answer comes from the process table, so a driver that died is succeeded at once. On another host only
its lease can tell.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

LEASE_SECONDS = 60.0
HEARTBEAT_SECONDS = 10.0


@dataclass(slots=True, frozen=True)
class Process:
    """A process as the `drivers` table names it.

    Args:
        key: a fresh id.
        host: the host's name.
        boot: which boot, and which space of process ids (containers share a kernel, not their ids).
        pid: its process id.
        started: when it started, in the kernel's ticks since boot; 0 when the system does not say.
    """

    key: str
    host: str
    boot: str
    pid: int
    started: int


@cache
def _start_of_this(pid: int) -> int:
    """Keyed by process id: a child made by fork inherits what its parent looked up."""
    return start_of(pid) or 0


def this_process() -> Process:
    """Describe the process that asks, under a fresh key."""
    pid = os.getpid()
    return Process(str(uuid4()), socket.gethostname(), _boot(), pid, _start_of_this(pid))


def lease_from_now() -> int:
    """When a lease taken now ends, in microseconds since 1970."""
    return int((time.time() + LEASE_SECONDS) * 1_000_000)


def alive(host: str, boot: str, pid: int, started: int, lease: int) -> bool:
    """Whether the process a `drivers` row describes can still be at work."""
    if lease == 0:
        return False
    if host != socket.gethostname() or boot != _boot():
        return lease > time.time() * 1_000_000
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
    """When a living process started, in ticks since boot; None when it ended or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name may hold spaces and brackets; fields are counted from behind its last bracket.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
