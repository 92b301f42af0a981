"""A tool's process as the driver sees it: start it, exchange messages, limit its output, and kill it.

The driver has three descriptors for each process. The channel carries frames in both directions. On the control socket
the supervisor reports how the worker ended; closing it ends everything. The third is the pipe of printed output. All
three are read without blocking, so a process cannot stall the event loop. A process has its own channel and serves one
call, so its answer cannot be confused with that of another call.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from treadle.core.codec import flaw
from treadle.core.data import frozen
from treadle.core.redaction import Secrets
from treadle.errors import HostUnavailable, ToolError, ToolOutcomeUnknown
from treadle.tools.flood import MAX_PARTS, parts_of
from treadle.tools.hosts.child import packed
from treadle.tools.hosts.declaration import Subprocess, interpreter
from treadle.tools.hosts.pinned import Pin
from treadle.tools.hosts.private_folder import PrivateFolder
from treadle.tools.processes import BoundedOutput

_CHILD: Final = str(Path(__file__).with_name("child.py"))

LOADING: Final = 60.0
"""Seconds in which a process must load the tool's module."""

ENDING: Final = 1.5
"""Seconds in which a supervisor must kill the rest. Then the driver kills its group."""

KEPT: Final = 16_000
"""Most bytes kept of a function's printed output: half from the start, half from the end."""

SHOWN: Final = 2_000
"""Most characters of printed output in an error message, from the end."""

_LONGEST_FORM: Final = 8
"""Most characters that one character of a secret becomes in another encoding."""

_CHUNK: Final = 1 << 18
_QUEUED: Final = 64
"""Most unread messages; above it, reading pauses."""

_QUEUED_BYTES: Final = 1 << 20
"""Most bytes of unread messages, not counting the last one; above it, reading pauses."""

_LARGE: Final = 1 << 16
"""Messages above this size, in bytes, are parsed in a thread."""


@frozen
class Loaded:
    """The code and environment that a process loads before its call. It is the key of a spare.

    Args:
        host: its declaration.
        module: the module of the function.
        script: the path of the driver's script, if it defines the function.
        path: its `sys.path`.
        env: its environment variables.
        pins: the targets of the host's declared paths.
        version: the version of the module's file.
    """

    host: Subprocess
    module: str
    script: str | None
    path: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    pins: tuple[Pin, ...] = ()
    version: tuple[int, ...] = ()

    def is_of_the_tool_of(self, other: Loaded) -> bool:
        """Return whether both are for the same module and host. The module's file may have changed in between."""
        return (self.host, self.module, self.script) == (other.host, other.module, other.script)


class ProcessGone(Exception):
    """The process ended without an answer; the text says how."""


_all: weakref.WeakSet[ToolProcess] = weakref.WeakSet()


class ToolProcess:
    """One process, from its start until it and all its children are gone.

    Args:
        loaded: the module and environment to load.

    Raises:
        HostUnavailable: it cannot be started as declared.
    """

    def __init__(self, loaded: Loaded) -> None:
        if not hasattr(os, "fork"):
            raise HostUnavailable("a tool with host=Subprocess(...) needs a system with fork: Linux or macOS")
        self.loaded = loaded
        self.started = time.monotonic()
        self.ready = False
        self._limit = loaded.host.answer_bytes + 1_000
        self._data = bytearray()
        self._messages: deque[bytes] = deque()
        self._waiting_bytes = 0
        self.received_bytes = 0
        self.received_secrets: list[str] = []
        """the secrets that the process received"""
        self._problem: str | None = None
        self._release: Callable[[], None] | None = None
        self._status: bytearray = bytearray()
        self._over = self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._printed = BoundedOutput(KEPT)
        self._folder = PrivateFolder()
        self._channel, channel = socket.socketpair()
        self._control, control = socket.socketpair()
        self._output, output = os.pipe()
        try:
            self._start(channel.fileno(), control.fileno(), output)
        except BaseException:
            self._close()
            self._folder.remove()
            raise
        finally:
            channel.close()
            control.close()
            os.close(output)
        _all.add(self)

    def _start(self, channel: int, control: int, output: int) -> None:
        loaded = self.loaded
        folder = str(self._folder.path)
        command = interpreter(_CHILD, str(control), str(channel))
        env = dict(loaded.env) | {"TMPDIR": folder}
        launch = loaded.host.launch(
            command, env, self._folder.path, module=loaded.module, script=loaded.script
        )
        self._release = launch.release
        try:
            self._process = subprocess.Popen(
                launch.command,
                cwd=folder,
                env=launch.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(channel, control, *launch.pass_fds),
                start_new_session=True,
            )
        finally:
            for fd in launch.pass_fds:
                os.close(fd)
        setup = {
            "path": loaded.path,
            "module": loaded.module,
            "script": loaded.script,
            "limits": loaded.host.limits(),
            "prepare": launch.prepare,
            "folder": folder,
            "answer_bytes": loaded.host.answer_bytes,
        }
        for end in (self._channel, self._control):
            end.setblocking(False)
        os.set_blocking(self._output, False)
        with suppress(OSError):  # it has ended: receive() reports it
            self._channel.sendall(packed(setup))

    @property
    def pid(self) -> int:
        """The id of the started process: the launcher or the supervisor."""
        return self._process.pid

    def is_over(self) -> bool:
        """Return whether it has ended, or belongs to another event loop."""
        is_of_another = self._loop is not None and self._loop is not asyncio.get_running_loop()
        return is_of_another or self._process.poll() is not None

    @property
    def is_closed(self) -> bool:
        """Return whether its descriptors are closed."""
        return self._output == -1

    # ----------------------------------------------------------------------------------- its messages

    async def load(self) -> None:
        """Wait until it has loaded the tool's module. Before that, the tool's function has not run.

        Raises:
            ToolError: loading failed or timed out.
        """
        if self.ready:
            return
        seconds = max(0.0, LOADING + self.started - time.monotonic())
        try:
            async with asyncio.timeout(seconds):
                message = await self.receive()
        except TimeoutError:
            raise ToolError(
                f"its process did not load its module in {LOADING:g} s, so it did not run"
            ) from None
        except ProcessGone as gone:
            raise ToolError(f"its process ended before it ran: {gone}") from None
        if message.get("ready") is not True:
            raise ToolError(_text(message, "failed", "its process could not be prepared"))
        self.ready = True

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. It is dropped if the process has ended."""
        self._attach()
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._channel, packed(message))

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            ProcessGone: the process ended.
            ToolOutcomeUnknown: the process broke the protocol.
        """
        self._attach()
        while not self._messages:
            if self._problem is not None:
                raise ToolOutcomeUnknown(self._problem)
            if self._over and not self._paused:
                raise ProcessGone(self.how_it_ended())
            if self._over:
                self._paused = False
                self._drain()
                continue
            self._resume()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._messages.popleft()
        self._waiting_bytes -= len(data)
        self.received_bytes += len(data)
        return await asyncio.to_thread(_message, data) if len(data) > _LARGE else _message(data)

    def _attach(self) -> None:
        """Register the descriptors with the running event loop."""
        if self._loop is not None or self._over:
            return
        self._loop = loop = asyncio.get_running_loop()
        loop.add_reader(self._channel, self._read_channel)
        loop.add_reader(self._control, self._read_control)
        loop.add_reader(self._output, self._read_output)

    def _resume(self) -> None:
        if self._paused and self._loop is not None:
            self._paused = False
            self._loop.add_reader(self._channel, self._read_channel)

    def _read_channel(self) -> None:
        try:
            data = self._channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._stop_reading(self._channel)
            return
        self._data += data
        self._take_frames()
        self._wake()

    def _take_frames(self) -> None:
        data, at = self._data, 0
        while self._problem is None and len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if size > self._limit:
                self._problem = (
                    f"the tool's process sent {size:,} bytes at once, and may send {self._limit:,}"
                )
                break
            if len(data) - at - 4 < size:
                break
            self._messages.append(bytes(data[at + 4 : at + 4 + size]))
            self._waiting_bytes += size
            at += 4 + size
        del data[:at]
        is_full = len(self._messages) > _QUEUED or self._waiting_bytes > _QUEUED_BYTES
        if self._problem is not None or is_full:
            self._stop_reading(self._channel)
            self._paused = self._problem is None

    def _read_control(self) -> None:
        """Read how the worker ended. All that it sent is readable by then."""
        try:
            data = self._control.recv(100)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._status += data
        if data and b"\n" not in self._status:
            return
        self._stop_reading(self._control)
        self._over = True
        if not self._paused:
            self._drain()
        self._wake()

    def _drain(self) -> None:
        """Read the rest of an ended process's data, up to a limit, since other processes may hold the channel open."""
        for _ in range(1 + self._limit // _CHUNK):
            try:
                data = self._channel.recv(_CHUNK)
            except OSError:
                break
            if not data:
                break
            self._data += data
        self._take_frames()
        self._read_output()

    def _read_output(self) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._printed.add(data)
        else:
            self._stop_reading(self._output)

    def _stop_reading(self, end: socket.socket | int) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(end)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # --------------------------------------------------------------------------------------------- end

    def kill(self) -> None:
        """Make the supervisor kill all of it at once. Works in any thread, also without an event loop."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Kill all of it without an event loop. Blocks briefly."""
        self.kill()
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        if self._folder.path.exists():
            self._folder.remove()

    async def end(self) -> None:
        """Kill all of it, and wait until it is gone."""
        self.kill()
        try:
            self._attach()
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDING):
                    while not self._over:
                        self._waiter = asyncio.get_running_loop().create_future()
                        await self._waiter
                    pause = 0.0005
                    while self._process.poll() is None:
                        await asyncio.sleep(pause)
                        pause *= 2
        finally:
            self.kill_now()
        if self._folder.path.exists():
            await asyncio.to_thread(self._folder.remove)

    def kill_now(self) -> None:
        """Kill the remaining processes directly, and close all descriptors."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
        self._close()

    def forget(self) -> None:
        """Close the descriptors in a forked child. Otherwise the driver would seem to live as long as the child."""
        # By their objects: a bare number would be closed again later, when it belongs to another file.
        self._channel.close()
        self._control.close()
        if self._output != -1:
            os.close(self._output)
            self._output = -1
        self._over = True
        self._folder.release()

    def _close(self) -> None:
        for end in (self._channel, self._control, self._output):
            if end == -1 or (isinstance(end, socket.socket) and end.fileno() == -1):
                continue
            self._stop_reading(end)
            os.close(end) if isinstance(end, int) else end.close()
        self._output = -1
        self._over = True
        self._folder.release()
        if self._release is not None:
            self._release()

    def how_it_ended(self) -> str:
        """Return how the worker ended, and the end of its printed output."""
        try:
            status = int(self._status)
        except ValueError:
            ending = "it was killed with its supervisor"
        else:
            number = os.waitstatus_to_exitcode(status)
            ending = f"exit code {number}" if number >= 0 else self._signal(-number)
        text = self._printed_at_last().strip()
        return f"{ending}; it printed: {text}" if text else ending

    def _printed_at_last(self) -> str:
        """Return the end of the printed output. Secrets are masked before the cut, which could leave a part of one."""
        text, is_cut = self._printed.ending()
        if self.received_secrets:
            text = Secrets(declared=self.received_secrets).hide(text, deep=True)
            if is_cut:  # the text may begin with the end of a secret, in any encoding
                text = text[_LONGEST_FORM * max(map(len, self.received_secrets)) :]
        return text[-SHOWN:]

    def _signal(self, number: int) -> str:
        """Return the name of a signal, and the limit that may have sent it."""
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        seconds = self.loaded.host.cpu_seconds
        if number not in (signal.SIGKILL, signal.SIGXCPU) or seconds is None:
            return f"killed by {name}"
        used = f"used its {seconds} s of CPU (cpu_seconds= of its host)"
        if number == signal.SIGXCPU:
            return f"killed by {name}: it {used}"
        return f"killed by {name}: perhaps it {used}, or this machine had no memory left"


def _message(data: bytes) -> dict[str, Any]:
    """Return the message in a frame.

    Raises:
        ToolOutcomeUnknown: the frame is not a valid message.
    """
    if parts_of(data) > MAX_PARTS:
        raise ToolOutcomeUnknown(f"the tool's process sent more than {MAX_PARTS:,} objects and lists at once")
    try:
        message: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolOutcomeUnknown(f"the tool's process sent invalid JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise ToolOutcomeUnknown("the tool's process sent an invalid message")
    fields = cast("dict[str, Any]", message)
    if (problem := flaw(fields.get("progress"))) is not None:  # results are checked when they are recorded
        raise ToolOutcomeUnknown(f"the tool's process sent invalid progress: it is {problem}")
    return fields


def _text(message: dict[str, Any], key: str, default: str) -> str:
    text = message.get(key)
    return text if isinstance(text, str) else default


def _forget() -> None:
    for process in list(_all):
        process.forget()
    _all.clear()


@atexit.register
def _end_all() -> None:
    """Kill the remaining processes, such as spares, when this process exits."""
    remaining = [process for process in list(_all) if not process.is_closed]
    for process in remaining:
        process.kill()
    for process in remaining:
        process.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
