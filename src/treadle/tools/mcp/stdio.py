"""Servers over stdio, started in their own process group, connected by pipes, and killed with all children.

The transport of the `mcp` package bounds neither lines nor standard error, and leaves grandchildren of a server that
exits. This transport works like `tools/processes.py`. The program waits at a gate until the watcher knows its group. So
the group also ends if this process crashes. Processes that left the group are found by the mark that they inherit in
their environment.

A group is killed as a whole, but a process can leave it. Where `/proc` shows environments, as on Linux, processes with
the mark of an ended program are killed too. A program that clears the environment of its children escapes: only a
sandbox contains a program that hides.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, Final

import anyio
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from treadle.core.data import frozen
from treadle.tools.mcp.traffic import MAX_MESSAGE, Flooded, Traffic, bounded, parsed
from treadle.tools.processes import GATE, has_ended, kill_group, signal_group, watcher

VARIABLE: Final = "TREADLE_STARTED_AS"
"""The environment variable that holds the mark."""

ROUNDS: Final = 12
"""Most scans of `/proc`."""

EMPTY: Final = 3
"""Consecutive empty scans before the search ends. A daemonizing program forks during the search."""

PAUSE: Final = 0.02
"""Seconds between two scans if the last one was empty."""

_PROCESSES: Final = Path("/proc")


def new_mark() -> str:
    """Return a unique mark."""
    return secrets.token_hex(16)


def kill_marked(mark: str) -> int:
    """Kill the processes of this user that have a mark, and return their number."""
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
        # The pidfd is opened first. Otherwise the pid could belong to another process by the time of the kill.
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
    """Kill a process by its pidfd, close the pidfd, and return whether the process existed."""
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


_log = logging.getLogger("treadle.mcp")

GRACE: Final = 1.0
"""Seconds for a server to exit after its input is closed, and again after SIGTERM."""

POLL: Final = 0.02
"""Seconds between two checks whether a server has exited while it is being ended."""

WATCH: Final = 0.25
"""Seconds between two checks whether a server has exited."""

KEPT: Final = 4_000
"""Most bytes kept of the end of standard error."""

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Environment variables that a server inherits from this process. Others must be passed to it."""


_NOT_FOUND: Final = 127
"""The exit code of a shell, including the gate's, if the program is not found."""


@frozen
class ServerProgram:
    """How to start a server.

    Args:
        command: its program and arguments.
        env: environment variables in addition to the inherited ones.
        cwd: its working directory; None for this process's.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None

    def start(self, mark: str) -> subprocess.Popen[bytes]:
        """Start it in its own group. The watcher kills the group and marked processes if this process ends."""
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        watcher.add_mark(mark)
        process = subprocess.Popen(
            ("/bin/sh", "-c", GATE, PurePath(self.command[0]).name, *self.command),
            cwd=self.cwd,
            env={**inherited, **self.env, VARIABLE: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            watcher.add(process.pid)
            assert process.stdin is not None
            process.stdin.write(b"\n")
        except BaseException:
            kill_group(process)
            process.wait()
            raise
        return process


class _Tail(asyncio.Protocol):
    """The end of a server's standard error."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._since = 0

    def begin(self) -> None:
        """Start a new request: later output belongs to it."""
        self._since = 0

    def data_received(self, data: bytes) -> None:
        self._since += len(data)
        self._data += data[-KEPT:]
        if len(self._data) > 2 * KEPT:
            del self._data[:-KEPT]

    def text(self) -> str:
        """Return the end of the output since the last request began, or the end of earlier output if there is none."""
        latest = self._data[-min(self._since, KEPT) :].decode(errors="replace").strip() if self._since else ""
        return latest or self._data[-KEPT:].decode(errors="replace").strip()


class _Input(asyncio.BaseProtocol):
    """A server's input; `writable` is cleared while its pipe is full."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost = False

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.writable.set()


class _Running:
    """A running server with its pipes."""

    def __init__(self, process: subprocess.Popen[bytes], on_lost: Callable[[str], None]) -> None:
        self._process = process
        self._on_lost = on_lost
        self._ending = False
        self._traffic = Traffic()
        self._errors = _Tail()
        self._input = _Input()
        self._output = asyncio.StreamReader(limit=MAX_MESSAGE)
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport
        self.from_server, self.read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.write, self.to_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def open(self) -> None:
        """Connect the pipes."""
        loop, process = asyncio.get_running_loop(), self._process
        protocol = asyncio.StreamReaderProtocol(self._output)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, process.stdout)
        self._transports.append(transport)
        transport, _ = await loop.connect_read_pipe(lambda: self._errors, process.stderr)
        self._transports.append(transport)
        self._stdin, _ = await loop.connect_write_pipe(lambda: self._input, process.stdin)
        self._transports.append(self._stdin)

    async def receive(self) -> None:
        """Pass on the server's messages until it hangs up or breaks a limit."""
        reason = "closed its output"
        try:
            while True:
                line = await self._output.readuntil(b"\n")
                if not line.strip():
                    continue
                if (message := parsed(line)) is None:
                    self._traffic.received_noise(len(line))
                    continue
                self._traffic.received(message, len(line))
                await self.from_server.send(SessionMessage(bounded(message)))
        except asyncio.LimitOverrunError:
            reason = f"wrote a message of more than {MAX_MESSAGE:,} bytes"
        except Flooded as flood:
            reason = str(flood)
        except asyncio.IncompleteReadError:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._wait_for_end(POLL)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            reason = "is no longer read"
        finally:
            self._report_lost(reason)
            self.from_server.close()

    async def send(self) -> None:
        """Write messages to the server."""
        async with self.to_server:
            async for message in self.to_server:
                if self._traffic.is_idle:
                    self._errors.begin()
                self._traffic.sent(message.message)
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._input.writable.wait()
                if self._input.lost:
                    return
                self._stdin.write(data.encode() + b"\n")

    async def watch(self) -> None:
        """Notice that the server exited, even if a child of it keeps its output open."""
        await self._wait_for_end(WATCH)
        await asyncio.sleep(WATCH)
        self._report_lost("ended")
        self.from_server.close()

    async def _wait_for_end(self, pause: float) -> None:
        while not has_ended(self._process):  # noqa: ASYNC110  the end of a process is no event of the loop
            await asyncio.sleep(pause)

    def _report_lost(self, reason: str) -> None:
        if self._ending:
            return
        if has_ended(self._process):
            code = self._reap()
            reason = f"ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}"
            if code == _NOT_FOUND:
                reason += " (a program was not found: install it, or write its path as command=)"
        errors = self._errors.text()
        self._on_lost(f"{reason}; its standard error ends: {errors}" if errors else reason)

    def _reap(self) -> int:
        """Kill the rest of the group, then reap the server and return its exit code.

        Its id may be reused only after that.
        """
        if self._process.returncode is None:
            kill_group(self._process)
        return self._process.wait()

    async def end(self) -> None:
        """End the server and all its children: close its input, then SIGTERM, then SIGKILL."""
        self._ending, process = True, self._process
        self._stdin.close()
        for last in (False, True):
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._wait_for_end(POLL)
            if last or has_ended(process):
                break
            signal_group(process, signal.SIGTERM)
        if process.returncode is None:
            kill_group(process)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._wait_for_end(POLL)
                self._reap()
        for transport in self._transports:
            transport.close()
        for stream in (self.read, self.write, self.from_server, self.to_server):
            stream.close()


@asynccontextmanager
async def stdio_transport(
    program: ServerProgram,
    on_lost: Callable[[str], None],
    on_start: Callable[[subprocess.Popen[bytes]], None],
) -> AsyncGenerator[TransportStreams]:
    """Start a server and connect to it. At the end of the block it and all its children are gone.

    Args:
        program: how to start it.
        on_lost: called with the reason if it exits, hangs up, or breaks a limit.
        on_start: called with its process.

    Raises:
        OSError: its working directory does not exist.
    """
    mark = new_mark()
    try:
        process = program.start(mark)
    except BaseException:
        watcher.remove_mark(mark)
        raise
    on_start(process)
    running = _Running(process, on_lost)
    tasks: Sequence[asyncio.Task[Any]] = ()
    try:
        await running.open()
        tasks = [asyncio.create_task(work()) for work in (running.receive, running.send, running.watch)]
        yield running.read, running.write
    finally:
        ending = asyncio.ensure_future(_end(running, mark))
        try:
            await asyncio.shield(ending)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, ending, return_exceptions=True)


async def _end(running: _Running, mark: str) -> None:
    """End a server with all its children, including those that left its group."""
    try:
        await running.end()
    finally:
        if killed := await asyncio.to_thread(kill_marked, mark):
            _log.info("%d processes that an MCP server left behind were killed", killed)
        watcher.remove_mark(mark)
