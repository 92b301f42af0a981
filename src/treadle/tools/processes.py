"""Run programs for tools. They end with the call that started them, and with this process.

A program runs in its own session, so that it and its children form one process group. A small watcher process, one for
each driver process, kills these groups if the driver crashes.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import IO, Final

from treadle.core.data import frozen
from treadle.errors import ToolError
from treadle.tools.threads import Job, current_job, in_thread

GRACE: Final = 0.5
"""Seconds between SIGTERM and SIGKILL."""

TICK: Final = 0.05
"""Seconds between two checks whether a silent program has ended or must stop."""

MAX_BYTES: Final = 1_000_000
"""Default limit of each captured output, in bytes."""

SHOWN: Final = 2_000
"""Most characters of the output's end in an error message."""

_CHUNK: Final = 65_536

# The program starts after it reads a line, which is written once the watcher knows its group. If this process crashes
# before that, the program never starts. So no crash leaves it running.
GATE: Final = 'read -r _ && exec "$@"'

Argument = str | os.PathLike[str]


@frozen
class ProcessResult:
    """How a program ended.

    Args:
        exit_code: its exit code, or the negative number of the signal that killed it.
        stdout: its output as text. Bytes that are not UTF-8 are replaced, and a cut in the middle is marked.
        stderr: its error output, in the same form.
    """

    exit_code: int
    stdout: str
    stderr: str


async def run_process(
    program: Argument,
    *arguments: Argument,
    cwd: Argument | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    max_bytes: int = MAX_BYTES,
) -> ProcessResult:
    """Run a program without a shell, and return its exit code and outputs.

    The program's group is ended if the caller is cancelled or the timeout passes. It is also ended if the program exits
    before others in its group. It gets SIGTERM, and SIGKILL half a second later. If this process crashes, the group is
    killed.

    Args:
        program: its name or path.
        arguments: its arguments, one by one. They are passed on unchanged.
        cwd: its working directory. The default is that of this process.
        env: all its environment variables. The default is those of this process.
        input: its standard input, empty by default.
        timeout: seconds that it may take; None for no limit.
        check: whether an exit code other than 0 is an error.
        max_bytes: most bytes kept of stdout, and of stderr: half from the start, half from the end.

    Raises:
        ToolError: the program timed out, or its exit code was not 0. The message has the end of its output.
        OSError: the working directory or `/bin/sh` does not exist. For an unknown program the exit code is 127.
    """
    running = _Program((program, *arguments), cwd, env, input, timeout, max_bytes)
    served: list[Job[ProcessResult]] = []

    def work(job: Job[ProcessResult]) -> ProcessResult:
        served.append(job)
        return running.run(lambda: job.stopping, check=check)

    result = await in_thread(work, tool=running.name, task_id="", call_id="")
    if served[0].stopping:
        raise asyncio.CancelledError  # the program had just ended, but its caller is cancelled
    return result


def run_process_sync(
    program: Argument,
    *arguments: Argument,
    cwd: Argument | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout: float | None = None,
    check: bool = True,
    max_bytes: int = MAX_BYTES,
) -> ProcessResult:
    """Run a program as `run_process` does, for sync tools.

    It raises `asyncio.CancelledError` in the tool's thread when the tool's call is cancelled. Threads that the tool
    starts are cancelled only if they run in a copy of the tool's context.
    """
    job = current_job.get()
    running = _Program((program, *arguments), cwd, env, input, timeout, max_bytes)
    return running.run(lambda: job is not None and job.stopping, check=check)


# ------------------------------------------------------------------------------------------- one program


class BoundedOutput:
    """The first and last bytes of an output of any length."""

    def __init__(self, limit: int) -> None:
        self._head_limit, self._tail_limit = limit - limit // 2, limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._length = 0

    def add(self, data: bytes) -> None:
        self._length += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._tail_limit + _CHUNK:
            del self._tail[: len(self._tail) - self._tail_limit]

    def text(self) -> str:
        tail = self._tail[max(0, len(self._tail) - self._tail_limit) :]
        cut = self._length - len(self._head) - len(tail)
        if not cut:
            return (self._head + tail).decode(errors="replace")
        note = f"\n[... {cut:,} bytes were cut here ...]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")

    def ending(self) -> tuple[str, bool]:
        """Return the contiguous end of the output, and whether earlier output was cut."""
        is_cut = self._length > len(self._head) + min(len(self._tail), self._tail_limit)
        data = self._tail[-self._tail_limit :] if is_cut else self._head + self._tail
        return data.decode(errors="replace"), is_cut


class _Program:
    """One program, from its start until it is reaped and its group is killed."""

    def __init__(
        self,
        command: tuple[Argument, ...],
        cwd: Argument | None,
        env: Mapping[str, str] | None,
        input: str | bytes | None,
        timeout: float | None,
        max_bytes: int,
    ) -> None:
        self.name = PurePath(command[0]).name
        self._command, self._cwd, self._env, self._timeout = command, cwd, env, timeout
        self._input = memoryview(b"\n" + (input.encode() if isinstance(input, str) else input or b""))
        self._outputs = BoundedOutput(max_bytes), BoundedOutput(max_bytes)
        self._selector: selectors.BaseSelector

    def run(self, asked_to_stop: Callable[[], bool], *, check: bool) -> ProcessResult:
        """Run the program in the calling thread."""
        if asked_to_stop():
            raise asyncio.CancelledError
        process = self._start()
        try:
            stopped = self._attend(process, asked_to_stop)
        finally:
            kill_group(process)
            exit_code = process.wait()
            self._read_remaining()
            self._close(process)
        if asked_to_stop():
            raise asyncio.CancelledError
        result = ProcessResult(exit_code, *(output.text() for output in self._outputs))
        if stopped:
            raise ToolError(
                f"{self.name} took longer than {self._timeout:g} s and was stopped{_output_end(result)}"
            )
        if check and exit_code:
            ending = f"exit code {exit_code}" if exit_code > 0 else f"signal {-exit_code}"
            raise ToolError(f"{self.name} ended with {ending}{_output_end(result)}")
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        out, errors = self._outputs
        process = subprocess.Popen(
            ("/bin/sh", "-c", GATE, self.name, *self._command),
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        try:
            watcher.add(process.pid)
            read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
            ends = (process.stdin, write, None), (process.stdout, read, out), (process.stderr, read, errors)
            for stream, event, output in ends:
                assert stream is not None
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, event, output)
        except BaseException:
            kill_group(process)
            process.wait()
            self._close(process)
            raise
        return process

    def _attend(self, process: subprocess.Popen[bytes], asked_to_stop: Callable[[], bool]) -> bool:
        """Exchange data until the program ends or must stop, and return whether it timed out."""
        late_at = time.monotonic() + self._timeout if self._timeout is not None else None
        kill_at, is_late, pause = None, False, 0.001
        while True:
            ended = has_ended(process)
            if ended and not self._selector.get_map():
                return is_late
            now = time.monotonic()
            if kill_at is None:
                is_late = not ended and late_at is not None and now >= late_at
                if ended or is_late or asked_to_stop():
                    # The program has ended, but others of its group hold its outputs open.
                    signal_group(process, signal.SIGTERM)
                    kill_at = now + GRACE
            elif now >= kill_at:
                return is_late
            if self._selector.get_map():
                self._exchange(TICK)
            else:
                time.sleep(pause)
                pause = min(2 * pause, TICK)

    def _exchange(self, seconds: float) -> None:
        """Write and read the available data. Wait at most `seconds` for some."""
        for key, _ in self._selector.select(seconds):
            try:
                if key.data is None:
                    self._input = self._input[os.write(key.fd, self._input[:_CHUNK]) :]
                    finished = not self._input
                else:
                    data = os.read(key.fd, _CHUNK)
                    key.data.add(data)
                    finished = not data
            except BlockingIOError:
                continue
            except BrokenPipeError:
                finished = True  # the program closed its input
            if finished:
                self._hang_up(key.fileobj)

    def _read_remaining(self) -> None:
        """Read the data in a killed program's pipes without waiting, since another process may hold them open."""
        for key in list(self._selector.get_map().values()):
            if key.data is None:
                self._hang_up(key.fileobj)
        self._exchange(0)

    def _hang_up(self, stream: object) -> None:
        self._selector.unregister(stream)  # pyright: ignore[reportArgumentType]
        stream.close()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        self._selector.close()
        streams: tuple[IO[bytes] | None, ...] = (process.stdin, process.stdout, process.stderr)
        for stream in streams:
            if stream is not None:
                stream.close()


def _output_end(result: ProcessResult) -> str:
    """Return the end of a program's output, as the end of a sentence."""
    text = (result.stderr.strip() or result.stdout.strip())[-SHOWN:]
    return f": {text}" if text else ", and said nothing"


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a program has ended. Where possible it is not reaped, so that its group id is not reused."""
    if sys.platform == "darwin":
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # already reaped by other code in this process


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a program's process group."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return  # the group is empty, or (macOS) all of it has ended and is not reaped


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a program that is not reaped, and stop watching it."""
    signal_group(process, signal.SIGKILL)
    watcher.remove(process.pid)


# ------------------------------------------------------------------------------------------ the watcher

# Reads lines "+ GROUP" and "- GROUP" until its input closes, then kills the remaining groups. Lines "* MARK" and "/
# MARK" do the same for processes with a mark (`mcp/stdio.py`).
_WATCH: Final = """
trap '' TERM INT HUP QUIT
PATH=/usr/bin:/bin
groups=' ' marks=' '
while read -r sign name; do
  case $sign in
    +) groups="$groups$name " ;;
    -) groups="${groups%% $name *} ${groups#* $name }" ;;
    '*') marks="$marks$name " ;;
    /) marks="${marks%% $name *} ${marks#* $name }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
for mark in $marks; do
  empty=0
  for round in 1 2 3 4 5 6 7 8 9 10 11 12; do
    found=$(grep -ls -- "$mark" /proc/[0-9]*/environ)
    if [ -n "$found" ]; then
      for each in $found; do each=${each#/proc/}; kill -s KILL "${each%/environ}"; done
      empty=0
    else
      empty=$((empty + 1))
      [ $empty -lt 3 ] || break
      sleep 0.02
    fi
  done
done
"""


class Watcher:
    """A small process that kills the groups and marked processes of this process after it ends or crashes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int | str] = set()
        self._marks: set[int | str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        self._watch(self._groups, group, "+")

    def remove(self, group: int) -> None:
        self._ignore(self._groups, group, "-")

    def add_mark(self, mark: str) -> None:
        """Also kill the processes that have a mark."""
        self._watch(self._marks, mark, "*")

    def remove_mark(self, mark: str) -> None:
        self._ignore(self._marks, mark, "/")

    def _watch(self, watched: set[int | str], name: int | str, sign: str) -> None:
        with self._lock:
            watched.add(name)
            if self._process is None or not self._notify_watcher(sign, name):
                self._begin()

    def _ignore(self, watched: set[int | str], name: int | str, sign: str) -> None:
        with self._lock:
            if name in watched:
                watched.remove(name)
                self._notify_watcher(sign, name)

    def end(self) -> None:
        """Close the watcher when this process exits. It then kills the remaining groups."""
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
                self._process.wait()
                self._process = None

    def forget(self) -> None:
        """Close the pipe in a forked child. Otherwise the watcher would wait for the child too."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.returncode = 0  # it is the parent's child, not this process's
        self.__init__()

    def _begin(self) -> None:
        if self._process is not None:
            self._process.wait()
        self._process = subprocess.Popen(
            ("/bin/sh", "-c", _WATCH),
            cwd="/",
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        for group in self._groups:
            self._notify_watcher("+", group)
        for mark in self._marks:
            self._notify_watcher("*", mark)

    def _notify_watcher(self, sign: str, name: int | str) -> bool:
        """Send the watcher a line about a group or a mark. Return False if the watcher is gone."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{sign} {name}\n".encode())
        except BrokenPipeError:
            return False
        return True


watcher = Watcher()
"""The watcher of this process. MCP servers over stdio use it too."""
atexit.register(watcher.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=watcher.forget)
