"""Ways to take more than a call may have, and to stay after it."""

import os
import signal
import time
from pathlib import Path

from tests.tools.hosts.escapes.registry import HARMS, World, checked, escape, libc


@escape(closed_anyway=HARMS)
def start_processes_without_end(world: World) -> str | None:
    read, write = os.pipe()
    for count in range(2_000):
        try:
            if os.fork() == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
        except OSError:
            return None if count <= world["processes"] else f"{count} processes"
    return "2000 processes"


@escape(closed_anyway=HARMS)
def take_all_memory(world: World) -> str | None:
    try:
        pieces = bytearray(world["memory"] + (64 << 20))
    except MemoryError:
        return None
    return f"{len(pieces)} bytes"


@escape()
def hold_memory_that_no_limit_counts(world: World) -> str:
    return str(os.memfd_create("memory"))


@escape()
def hold_shared_memory_that_no_limit_counts(world: World) -> str:
    segment = checked(libc.shmget(0, 4096, 0o1600))
    libc.shmctl(segment, 0, None)
    return "held"


@escape(closed_anyway=HARMS)
def write_a_file_without_end(world: World) -> str | None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(Path(world["writable"], "large"), "wb") as file:
        try:
            file.truncate(world["file_bytes"] + 1)
        except OSError:
            return None
    return "too large"


@escape(closed_anyway=HARMS, namespaces_only=True)
def fill_the_folders_in_memory(world: World) -> str | None:
    for folder in (".", "/tmp", "/dev/shm"):
        written = 0
        try:
            for number in range(100):
                with open(f"{folder}/part-{number}", "wb") as file:
                    file.write(bytes(1 << 20))
                written += 1 << 20
                if written > world["disk"]:
                    return f"{folder} holds {written} bytes"
        except OSError:
            continue
    return None


@escape(closed_anyway=HARMS)
def raise_a_limit(world: World) -> str | None:
    import resource

    for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        soft, hard = resource.getrlimit(which)
        try:
            resource.setrlimit(which, (soft + 1, hard + 1))
            return str(which)
        except (OSError, ValueError):
            continue
    return None


@escape(closed_anyway="a limit of the host without a sandbox, too")
def open_files_without_end(world: World) -> str | None:
    try:
        handles = [os.open("/dev/null", os.O_RDONLY) for _ in range(world["open_files"] + 1)]
    except OSError:
        return None
    return str(len(handles))


@escape(closed_anyway="a limit of the host without a sandbox, too")
def leave_a_core_file(world: World) -> str | None:
    os.chdir(world["writable"])
    pid = os.fork()
    if pid == 0:
        os.abort()
    status = os.waitpid(pid, 0)[1]
    files = [name for name in os.listdir(".") if name.startswith("core")]
    return str(files) if files or os.WCOREDUMP(status) else None


@escape(closed_anyway="a host ends it without a sandbox, too")
def stay_after_the_call(world: World) -> None:
    """Leave a process in a session of its own, whose parent is gone; the test looks for it."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(256):
                try:
                    os.close(fd)
                except OSError:
                    continue
            os.execv("/bin/sleep", ["sleep", world["marker"]])
        os._exit(0)
    time.sleep(0.2)
