"""The first code of a tool's process: a supervisor, and the worker that runs the function.

Theory of operation
-------------------

    driver --Popen--> [launcher] --> supervisor --fork--> worker --> all that the function starts
       |                                |  ^                 |
       +------- control socket ---------+  |                 |
       +------- channel (frames) ----------|-----------------+
       +------- output pipe ---------------------------------+

The supervisor does nothing but wait: for the worker to end, or for the driver's end of the control socket to be closed.
The driver closes it when the call is over, at a deadline, at a cancel; the kernel closes it when the driver crashed,
however it did. Then the supervisor kills the worker's group, and everything else that the worker left: it adopts what
its descendants leave behind (Linux), so that a session of its own hides no process. At last it empties the private
folder and reports how the worker ended.

The worker leads a session of its own, sets its limits, lets the launcher's preparation run, and only then imports the
package and the module of the function (`tools.worker_process`). It dies with the supervisor (Linux).

This file is run by its path and imports the standard library alone, since nothing else can be found, nor is to be run,
before the limits hold. Frames, in both directions: four bytes of length, then JSON.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_SERVE: Final = "treadle.tools.worker_process:serve"
"""What runs the function: it knows tools, and tools know hosts."""

CLEANING: Final = 0.5
"""Seconds in which what the worker left has to be killed, and its folder emptied."""


def packed(message: dict[str, Any]) -> bytes:
    """Return a message as a frame."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode()
    return len(data).to_bytes(4, "big") + data


class Channel:
    """The worker's end of the channel to the driver; blocking."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, message: dict[str, Any]) -> None:
        """Write a frame; raises `OSError` when the driver is gone."""
        data = memoryview(packed(message))
        while data:
            data = data[os.write(self.fd, data) :]

    def receive(self) -> dict[str, Any] | None:
        """Return the next frame; None when the driver wants nothing any more."""
        length = self._read(4)
        data = self._read(int.from_bytes(length, "big")) if length is not None else None
        return None if data is None else json.loads(data)

    def _read(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            piece = os.read(self.fd, min(size - len(data), 1 << 20))
            if not piece:
                return None
            data += piece
        return bytes(data)


def main(control: int, channel_fd: int) -> NoReturn:
    """Be the supervisor of a worker."""
    channel = Channel(channel_fd)
    setup = channel.receive()
    if setup is None:
        os._exit(0)
    _process_control(_PR_SET_CHILD_SUBREAPER, 1)
    wake, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (control, wake, wakes):
            os.close(fd)
        _work(channel, setup, supervisor)
    os.close(channel_fd)
    _silence()
    _supervise(worker, control, wake, setup["folder"])


# ---------------------------------------------------------------------------------------- the supervisor


def _nothing(number: int, frame: Any) -> None:
    """Let a signal wake the supervisor, and do nothing else."""


def _silence() -> None:
    """Let go of the output pipe: only the worker writes to it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):
        os.dup2(nothing, fd)


def _supervise(worker: int, control: int, wake: int, folder: str) -> NoReturn:
    status: int | None = None
    while status is None:
        ready, _, _ = select.select((control, wake), (), ())
        if wake in ready:
            os.read(wake, 4096)
        status = _reap(worker)
        if control in ready:
            break
    if status is None:
        _kill_all(worker)
        status = os.waitpid(worker, 0)[1]
    _kill_orphans(time.monotonic() + CLEANING)
    _tell(control, status)
    _empty(folder)
    os._exit(0)


def _reap(worker: int) -> int | None:
    """Reap what has ended; return the worker's status if it has."""
    status: int | None = None
    while True:
        try:
            if hasattr(os, "waitid"):
                # The worker stays a zombie until its group is killed, so that the group's number is not given away.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None and ended.si_pid == worker:
                    _kill_all(worker)
            pid, ending = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == worker:
            status = ending
            _kill_all(worker)
        elif pid == 0:
            return status


def _kill_all(worker: int) -> None:
    """Kill the worker and its group."""
    for kill in (os.killpg, os.kill):  # it may not lead its group yet
        try:
            kill(worker, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _kill_orphans(until: float) -> None:
    """Kill what left the worker's group, as often as more of it turns up."""
    while True:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        if time.monotonic() > until:
            return
        time.sleep(0.001)


def _children() -> list[int]:
    """Return the processes of which this one is the parent; empty where that cannot be known."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", encoding="ascii") as file:  # noqa: PTH123  pathlib takes its time to import
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _tell(control: int, status: int) -> None:
    try:
        os.write(control, b"%d\n" % status)
    except OSError:
        return  # the driver is gone


def _empty(folder: str) -> None:
    """Delete what is in the private folder, and the folder; the driver deletes what cannot be deleted from here."""
    try:
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return
    except OSError:
        import shutil

        try:
            shutil.rmtree(folder, ignore_errors=True)
        except RecursionError:
            return  # folders may be nested as deep as a program likes; the driver has a program that deletes those


# -------------------------------------------------------------------------------------------- the worker


def _work(channel: Channel, setup: dict[str, Any], supervisor: int) -> NoReturn:
    """Become the worker: confined first, then with code of others in it."""
    try:
        os.setsid()
        _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(0)  # it was gone before that held
        sys.path[:] = setup["path"]
        _limit(setup["limits"])
        if setup["prepare"] is not None:
            name, argument = setup["prepare"]
            _function(name)(argument)
        serve = _function(_SERVE)
    except BaseException as error:  # noqa: BLE001  the function must not run then
        hint = limit_behind(error, setup["limits"])
        channel.send({"failed": f"its process could not be prepared: {type(error).__name__}: {error}{hint}"})
        os._exit(1)
    serve(channel, setup)
    os._exit(0)


def _function(name: str) -> Callable[..., None]:
    """Return a function by `module:name`."""
    from importlib import import_module

    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _limit(limits: dict[str, int]) -> None:
    """Set limits by their name in `resource`, never above what is allowed already."""
    import resource

    for name, value in limits.items():
        which = getattr(resource, name, None)
        if which is None:
            continue  # not every system has each
        if name == "RLIMIT_NPROC":
            value += _tasks_running()
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def limit_behind(error: BaseException, limits: dict[str, int]) -> str:
    """Return which limit of a host an error tells of, as the end of its text; empty for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        names = "memory= or processes="
    elif isinstance(error, MemoryError) or number == errno.ENOMEM:
        names = "memory="
    elif number in (errno.EMFILE, errno.EFBIG):
        names = "open_files=" if number == errno.EMFILE else "file_bytes="
    else:
        return ""
    memory = limits.get("RLIMIT_AS")
    has = f"it has {memory:,} bytes of memory; " if memory is not None and "memory" in names else ""
    return f" (its process reached a limit: {has}raise {names} of its host)"


def _tasks_running() -> int:
    """Return how many threads the system runs: the limit on processes counts all of the user's, wherever they are."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 1_000


def _process_control(option: int, value: int) -> None:
    """Set a property of this process that only Linux has."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
