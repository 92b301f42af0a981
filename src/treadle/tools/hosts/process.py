"""A tool's process as the driver sees it: started, spoken with, bounded in all it sends, and ended with all it left.

The driver has three descriptors of each: the channel, over which frames go both ways; the control socket, by which the
supervisor reports how the worker ended, and whose closing ends everything; and the pipe of what the function prints.
All three are read as they come, so nothing that a process does or leaves undone holds the event loop. A process has its
own channel, and takes one call, so no answer can be taken for that of another call.
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
"""Seconds in which a process has to load the tool's module."""

ENDING: Final = 1.5
"""Seconds in which a supervisor has to end the rest; then its group is killed from here."""

KEPT: Final = 16_000
"""How many bytes of what a function prints are kept, one half from the start and the other from the end."""

SHOWN: Final = 2_000
"""How many characters of it an error message has, from the end."""

_LONGEST_FORM: Final = 8
"""How many characters one of a secret may become where it is written in another form."""

_CHUNK: Final = 1 << 18
_QUEUED: Final = 64
"""How many messages may wait to be looked at before nothing more is read."""

_QUEUED_BYTES: Final = 1 << 20
"""How many bytes of messages may wait so, beside the last message."""

_LARGE: Final = 1 << 16
"""A message of more bytes is read and checked in a thread."""


@frozen
class Loaded:
    """What a process has loaded before its call: the key of a spare.

    Args:
        host: its declaration.
        module: the module of the function.
        script: the path of the script that the driver runs, if the function is defined there.
        path: where modules are looked for.
        env: its environment variables.
        pins: what the declared paths of the host lead to.
        version: that of the file of the module.
    """

    host: Subprocess
    module: str
    script: str | None
    path: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    pins: tuple[Pin, ...] = ()
    version: tuple[int, ...] = ()

    def is_of_the_tool_of(self, other: Loaded) -> bool:
        """Whether both are for tools of the same module and host; its files may have changed since."""
        return (self.host, self.module, self.script) == (other.host, other.module, other.script)


class ProcessGone(Exception):
    """A process ended without an answer; the text says how."""


_all: weakref.WeakSet[ToolProcess] = weakref.WeakSet()


class ToolProcess:
    """One process, from its start until it and all it started are gone.

    Args:
        loaded: what it is to load.

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
        self.given: list[str] = []
        """the secrets that it was given"""
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
        with suppress(OSError):  # it has ended, which is noticed where its answer is read
            self._channel.sendall(packed(setup))

    @property
    def pid(self) -> int:
        """The id of the process that was started: the launcher's or the supervisor's."""
        return self._process.pid

    def is_over(self) -> bool:
        """Whether it has ended, or cannot be used in this event loop."""
        is_of_another = self._loop is not None and self._loop is not asyncio.get_running_loop()
        return is_of_another or self._process.poll() is not None

    @property
    def is_closed(self) -> bool:
        """Whether it has no descriptors any more."""
        return self._output == -1

    # ----------------------------------------------------------------------------------- what it sends

    async def load(self) -> None:
        """Wait until it has loaded the tool's module; nothing of the tool has run before.

        Raises:
            ToolError: it has not, and is not going to.
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
        """Send a message; one to a process that is gone is dropped."""
        self._attach()
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._channel, packed(message))

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            ProcessGone: the process ended.
            ToolOutcomeUnknown: it sent what is no message.
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
        """Let the event loop that runs read the descriptors."""
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
        """Read how the worker ended; by then all that it sent can be read."""
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
        """Read what a process sent before it ended, and no more: others may hold the channel open."""
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
        """Have the supervisor end all of it: at once, from any thread, also without an event loop."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Kill all of it where no event loop runs any more; blocks for a moment."""
        self.kill()
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        if self._folder.path.exists():
            self._folder.remove()

    async def end(self) -> None:
        """Kill all of it, and return when it is gone."""
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
        """Kill what still runs from here, and close all descriptors."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
        self._close()

    def forget(self) -> None:
        """In a forked child: close the descriptors, else the parent seems to live as long as the child."""
        # By their objects: a number closed alone is closed again later, when it is that of another file.
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
        """Return how the worker ended, and the end of what it printed."""
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
        """Return the end of what was printed; secrets are hidden before it is cut, else a part of one could stay."""
        text, is_cut = self._printed.ending()
        if self.given:
            text = Secrets(declared=self.given).hide(text, deep=True)
            if is_cut:  # the end of a secret may stand first, in any form
                text = text[_LONGEST_FORM * max(map(len, self.given)) :]
        return text[-SHOWN:]

    def _signal(self, number: int) -> str:
        """Return what a signal's number means, and which limit may have sent it."""
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
        ToolOutcomeUnknown: there is none that can be used.
    """
    if parts_of(data) > MAX_PARTS:
        raise ToolOutcomeUnknown(f"the tool's process sent more than {MAX_PARTS:,} objects and lists at once")
    try:
        message: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolOutcomeUnknown(f"the tool's process sent what is no JSON: {type(error).__name__}") from None
    if not isinstance(message, dict):
        raise ToolOutcomeUnknown("the tool's process sent what is no message")
    fields = cast("dict[str, Any]", message)
    if (problem := flaw(fields.get("progress"))) is not None:  # a result is looked at where it is recorded
        raise ToolOutcomeUnknown(f"the tool's process sent what is no progress: it is {problem}")
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
    """End what still waits for a call when this process ends: spares."""
    left = [process for process in list(_all) if not process.is_closed]
    for process in left:
        process.kill()
    for process in left:
        process.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
