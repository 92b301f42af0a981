"""The first code of a tool's process: a supervisor, and the worker that runs the function.

Theory of operation
-------------------

    driver --Popen--> [launcher] --> supervisor --fork--> worker --> all that the function starts
       |                                |  ^                 |
       +------- control socket ---------+  |                 |
       +------- channel (frames) ----------|-----------------+
       +------- output pipe ---------------------------------+

The supervisor only waits for the worker to end, or for the driver's end of the control socket to close. The driver
closes it when the call is over, timed out or cancelled. The kernel closes it when the driver crashes. Then the
supervisor kills the worker's group and all remaining descendants. On Linux it adopts orphans, so it finds a process
with a session of its own too. Last it empties the private folder and reports how the worker ended.

The worker starts a session of its own, sets its limits and runs the launcher's preparation. Only then does it import
the package and the function's module (`tools.worker_process`). On Linux it dies with the supervisor.

This file is run by its path and imports only the standard library. Before the limits hold, no other code may be visible
or run. A frame, in either direction, is four bytes of length, then JSON.
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
"""The function that serves the call. It is a name, because `tools` imports `hosts`."""

CLEANING: Final = 0.5
"""Seconds to kill the worker's descendants and to empty its folder."""


def packed(message: dict[str, Any]) -> bytes:
    """Return a message as a frame."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode()
    return len(data).to_bytes(4, "big") + data


class Channel:
    """The worker's blocking end of the channel to the driver."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, message: dict[str, Any]) -> None:
        """Write a frame; raises `OSError` if the driver is gone."""
        data = memoryview(packed(message))
        while data:
            data = data[os.write(self.fd, data) :]

    def receive(self) -> dict[str, Any] | None:
        """Return the next frame; None if the driver closed the channel."""
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
    """Run the supervisor of a worker."""
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
    """A signal handler without effect. The signal wakes the supervisor."""


def _silence() -> None:
    """Close the output pipe in the supervisor, since only the worker writes to it."""
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
    """Reap ended children; return the worker's status if it is among them."""
    status: int | None = None
    while True:
        try:
            if hasattr(os, "waitid"):
                # The worker stays a zombie until its group is killed, so that its process id is not reused.
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
    for kill in (os.killpg, os.kill):  # the worker may not lead its group yet
        try:
            kill(worker, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _kill_orphans(until: float) -> None:
    """Kill descendants outside the worker's group, until none is left or the time is over."""
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
    """Return the child processes of this process; empty if the system does not list them."""
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
        return  # the driver has ended


def _empty(folder: str) -> None:
    """Empty and delete the private folder. The driver deletes the rest."""
    try:
        os.rmdir(folder)  # noqa: PTH106
    except FileNotFoundError:
        return
    except OSError:
        import shutil

        try:
            shutil.rmtree(folder, ignore_errors=True)
        except RecursionError:
            return  # nested too deep for shutil: the driver deletes it with rm


# -------------------------------------------------------------------------------------------- the worker


def _work(channel: Channel, setup: dict[str, Any], supervisor: int) -> NoReturn:
    """Become the worker: apply the confinement, then load foreign code."""
    try:
        os.setsid()
        _process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(0)  # the supervisor ended before the death signal was set
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
    """Set limits by their names in `resource`, at most to the current hard limit."""
    import resource

    for name, value in limits.items():
        which = getattr(resource, name, None)
        if which is None:
            continue  # this system lacks the limit
        if name == "RLIMIT_NPROC":
            value += _tasks_running()
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def limit_behind(error: BaseException, limits: dict[str, int]) -> str:
    """Return a suffix for an error's text that names the limit behind it; empty for other errors."""
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
    """Return how many threads the system runs. The process limit counts all threads of the user."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return 1_000


def _process_control(option: int, value: int) -> None:
    """Set a Linux property of this process (prctl)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
