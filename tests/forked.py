"""Processes of Python that are forked from one that has imported Treadle: to start them anew costs several times more.

`Forked` is `subprocess.Popen` for commands that begin with `sys.executable`, followed by `-m MODULE`, `-c CODE` or the
path of a program. The process that comes of it is its own: it has its own folder, environment, standard streams,
session and signals, may be stopped and killed, and ends as a program does. What it shares with others is what was
imported before it began. So tests of imports and of the time that a start takes use `subprocess`; others may use this.

    test ── Forked(...) ──> server ── fork ──> the process
         <── its id, and how it ended ──┘
"""

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LARGEST = 1 << 17
"""Bytes of the longest request: a command, with the environment."""


def own_the_terminal() -> None:
    """Let Ctrl-C on the terminal of standard input reach this process as a signal; a `preexec_fn`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Forked(subprocess.Popen[Any]):
    """A process of Python that has imported Treadle already; its arguments are those of `subprocess.Popen`."""

    _ending: socket.socket

    def _execute_child(
        self,
        args: Sequence[str | os.PathLike[str]],
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Sequence[int],
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: Any,
        gids: Any,
        uid: Any,
        umask: int,
        start_new_session: bool,
        process_group: Any = -1,
    ) -> None:
        assert args[0] == sys.executable, f"not a command of this Python: {args}"
        assert not pass_fds, "descriptors are not passed on"
        assert preexec_fn in (None, own_the_terminal), "only a terminal is prepared"
        self._ending, ending = socket.socketpair()
        request = {
            "arguments": [os.fspath(argument) for argument in args[1:]],
            "folder": os.fspath(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "session": start_new_session,
            "terminal": preexec_fn is not None,
        }
        streams = [
            given if given != -1 else number for number, given in enumerate((p2cread, c2pwrite, errwrite))
        ]
        try:
            with ending:
                socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, ending.fileno()])
            self.pid = int.from_bytes(self._ending.recv(4), "little")
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, _deadstate: Any = None, **_: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        with self._waitpid_lock:
            if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
                self.returncode = int.from_bytes(self._ending.recv(4), "little", signed=True)
                self._ending.close()
            return self.returncode


def completed(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: Any = None,
    timeout: float = 120,
    check: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a command to its end, as `subprocess.run` does, with all its output captured."""
    pipe = subprocess.PIPE
    stdin = {} if input is None else {"stdin": pipe}
    with Forked(command, **stdin, **{"stdout": pipe, "stderr": pipe, "text": True, **options}) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check and ended.returncode:
        raise AssertionError(f"{command} ended with {ended.returncode}:\n{errors}")
    return ended


_started: list[socket.socket] = []


def _server() -> socket.socket:
    """Return the way to the server of this process, which is started by the first request."""
    if not _started:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, "-m", "tests.forked", str(there.fileno())]
            server = subprocess.Popen(command, cwd=ROOT, pass_fds=[there.fileno()], start_new_session=True)
        _started.append(here)
        atexit.register(_end, here, server, os.getpid())
    return _started[0]


def _end(way: socket.socket, server: "subprocess.Popen[bytes]", owner: int) -> None:
    if os.getpid() == owner:  # and not in a fork of it
        way.close()
        server.wait(10)


# --------------------------------------------------------------------------------------------- in the server


def serve(way: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, and return it in the fork; return None once the process that asks has gone."""
    from treadle.cli.main import app

    app()
    assert threading.active_count() == 1, "a fork would not have the other threads"
    gc.collect()
    gc.freeze()  # else each fork would copy all pages that its own collections look at
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready = select.select([way, *running], [], [])[0]
        for process in ready:
            if process is way:
                continue
            child, ending = running.pop(process)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with ending:
                _tell(ending, code)
            os.close(process)
        if way not in ready:
            continue
        text, descriptors, _, _ = socket.recv_fds(way, LARGEST, 4)
        if not text:
            return None
        child = os.fork()
        if child == 0:
            way.close()
            os.close(descriptors.pop())
            return {**json.loads(text), "streams": descriptors}
        for stream in descriptors[:3]:
            os.close(stream)
        ending = socket.socket(fileno=descriptors[3])
        _tell(ending, child)
        running[os.pidfd_open(child)] = (child, ending)


def _tell(ending: socket.socket, number: int) -> None:
    try:
        ending.sendall(number.to_bytes(4, "little", signed=True))
    except OSError:
        return  # the test has ended


def become(request: dict[str, Any]) -> None:
    """Make a fork what a process is that was just started."""
    if request["session"]:
        os.setsid()
    for target, source in enumerate(request["streams"]):
        os.dup2(source, target)
        os.close(source)
    if request["terminal"]:
        own_the_terminal()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    eager = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115
            number,
            "w",
            encoding="utf-8",
            errors="strict" if number == 1 else "backslashreplace",
            buffering=1 if os.isatty(number) or number == 2 or eager else -1,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def execute(arguments: list[str]) -> None:
    """Run a command of Python: `-m MODULE`, `-c CODE` or a path, with its arguments."""
    import runpy

    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = ["", *inherited]
    kind = arguments[0]
    if kind == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv[:] = arguments[1:]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]  # what `python -m` does itself
    elif kind == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(kind).absolute().parent)
        main.__dict__["__file__"] = kind
        exec(compile(Path(kind).read_text(encoding="utf-8"), kind, "exec"), main.__dict__)


if __name__ == "__main__":
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
        execute(asked["arguments"])
