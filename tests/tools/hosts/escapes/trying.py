"""The tool: it tries ways out, each in a process of its own."""

import contextlib
import os
import select
import signal
import tempfile

from tests.tools.hosts.escapes import files, kernel, mounts, network, processes, resources
from tests.tools.hosts.escapes.registry import ESCAPES, SECONDS, World

__all__ = ["files", "kernel", "mounts", "network", "processes", "resources", "try_all"]


def try_all(names: list[str], world: World) -> dict[str, str]:
    """Try ways out, each in a process of its own; return what became of each: `open: ...` or `closed: ...`."""
    return {name: _tried(name, world) for name in names}


def _tried(name: str, world: World) -> str:
    read, write = os.pipe()
    folder = tempfile.mkdtemp(dir=".")
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            os.chdir(folder)
            got = ESCAPES[name](world)
            text = f"open: {got}" if got is not None else "closed: it got nothing"
        except BaseException as error:
            text = f"closed: {type(error).__name__}: {error}"
        os.write(write, text.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(write)
    data = b""
    if select.select((read,), (), (), SECONDS)[0]:
        data = os.read(read, 4096)
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    _reap()
    return data.decode(errors="replace") or f"closed: the process ended with status {status}"


def _reap() -> None:
    """Reap what a way left, as far as it is a child of this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
