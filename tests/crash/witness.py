"""What tools did to the world, with processes killed meanwhile: a line for each effect, in the file EFFECTS."""

from __future__ import annotations

import fcntl
import os
import random
import time
from pathlib import Path

VARIABLE = "EFFECTS"
PAUSES = "PAUSES"
"""The variable that holds how many seconds a tool may take before its effect, and again after it."""


def effects() -> Path:
    return Path(os.environ[VARIABLE])


def act(name: str, key: str) -> str:
    """Do to the world what a tool does."""
    pause = float(os.environ.get(PAUSES, "0"))
    time.sleep(random.random() * pause)
    file = os.open(effects(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{name} {key}\n".encode())
    os.close(file)
    time.sleep(random.random() * pause)
    return f"{name} done"


def happened(key: str) -> bool:
    """Whether an effect has happened, once no process of a tool is at work any more."""
    wait_until_alone()
    with (effects().with_suffix(".busy")).open("a") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        return effects().exists() and key in effects().read_text().split()


def wait_until_alone(seconds: float = 20.0) -> None:
    """Wait until what a killed driver had started is gone; it has to be, soon."""
    deadline = time.monotonic() + seconds
    while left := strangers():
        assert time.monotonic() < deadline, f"left behind by a killed driver: {left}"
        time.sleep(0.005)


def strangers() -> list[int]:
    """Return the processes that tools of another driver run in: they were started with our file, and not by us."""
    wanted, found = f"{VARIABLE}={effects()}".encode(), list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            carries = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if carries and os.getpid() not in ancestors(int(folder.name)):
            found.append(int(folder.name))
    return found


def ancestors(pid: int) -> list[int]:
    """Return a process and those that it comes from."""
    line = [pid]
    while line[-1] > 1:
        try:
            stat = Path(f"/proc/{line[-1]}/stat").read_text()
        except OSError:
            break
        line.append(int(stat.rpartition(")")[2].split()[1]))
    return line
