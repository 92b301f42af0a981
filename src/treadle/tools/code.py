"""Tools that run programs written by the model: Python, shell, or declared command lines. None is added by default.

Each needs an explicit host: `host=Sandbox(...)`, or `host=Subprocess()` to run without confinement. The model's program
is a separate process on that host, never code in the driver's interpreter.

    agent = Agent(model, tools=[python_tool(host=Sandbox(folder="scratch"))])
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from types import FrameType
from typing import Any, Final, TypeAlias, cast

from treadle.core.messages import Json
from treadle.core.unknown_names import explains_call
from treadle.errors import ConfigurationError, ToolArgumentsInvalid
from treadle.tools.commands import Command, command_problem
from treadle.tools.function import FunctionTool, ToolOptions
from treadle.tools.hosts.declaration import Subprocess
from treadle.tools.hosts.sandbox import Sandbox
from treadle.tools.processes import BoundedOutput

KEPT: Final = 100_000
"""Most bytes kept of each output: half from the start, half from the end."""

LISTED: Final = 100
"""Most files of the working folder that a result lists."""

SECONDS: Final = 60.0
"""Default timeout of a call, in seconds."""

HANGING: Final = 0.5
"""Seconds to read the outputs of a program after it ended. Its children may hold them open."""

CodeTool: TypeAlias = FunctionTool[Any, dict[str, Json], Any]


@explains_call
def python_tool(*, host: Subprocess, name: str = "run_python", timeout: float | None = SECONDS) -> CodeTool:
    """Return a tool that runs a Python program and returns its exit code, its outputs and the files.

    The program can import the packages of this environment. It runs in the host's working folder. Other options are set
    with `tool`: `tool(python_tool(host=...), needs_approval=True)`.

    Args:
        host: where it runs: `Sandbox(...)`, or `Subprocess()`, which confines nothing.
        name: the tool's name for the model.
        timeout: seconds that a call may take; None for no limit.

    Raises:
        ConfigurationError: `host` is neither a `Sandbox` nor a `Subprocess`.
    """
    return FunctionTool(run_python, _options(host, name, timeout))


@explains_call
def shell_tool(*, host: Subprocess, name: str = "run_shell", timeout: float | None = SECONDS) -> CodeTool:
    """Return a tool that runs a script by `/bin/sh`. Arguments and errors are those of `python_tool`."""
    return FunctionTool(run_shell, _options(host, name, timeout))


@explains_call
def command_tool(
    *commands: Command, host: Subprocess, name: str = "run_command", timeout: float | None = SECONDS
) -> CodeTool:
    """Return a tool that runs declared command lines without a shell.

    Args:
        commands: the programs and the roles of their arguments. Any other command line is refused before it starts.
        host: where it runs, as for `python_tool`.
        name: the tool's name for the model.
        timeout: seconds that a call may take; None for no limit.

    Raises:
        ConfigurationError: there is no command, or `host` is not valid.
    """
    if not commands or not all(isinstance(each, Command) for each in cast("tuple[Any, ...]", commands)):
        raise ConfigurationError("command_tool: name at least one Command(...)")
    return _CommandTool(commands, _options(host, name, timeout))


def run_python(code: str) -> dict[str, Json]:
    """Run a Python program in a process of its own.

    Args:
        code: the program; what it prints is returned.
    """
    return _run((sys.executable, "-I", "-"), code)


def run_shell(script: str) -> dict[str, Json]:
    """Run a shell script by /bin/sh.

    Args:
        script: the script; what it prints is returned.
    """
    return _run(("/bin/sh", "-s"), script)


def run_command(command: list[str]) -> dict[str, Json]:
    """Run a program, without a shell.

    Args:
        command: the program and its arguments, one by one.
    """
    return _run(tuple(command), "")


class _CommandTool(FunctionTool[Any, dict[str, Json], Any]):
    """`run_command`, which checks the command line before a call starts."""

    def __init__(self, commands: tuple[Command, ...], options: ToolOptions) -> None:
        lines = "".join(f"\n  {command}" for command in commands)
        described: ToolOptions = {"description": f"Run one of these programs:{lines}"}
        super().__init__(run_command, {**described, **options})
        self._commands = commands

    def with_options(self, options: ToolOptions, frame: FrameType | None = None) -> CodeTool:
        return _CommandTool(self._commands, {**self.options, **options})

    def validate(self, arguments: dict[str, Json]) -> dict[str, Any]:
        converted = super().validate(arguments)
        problem = command_problem(self._commands, cast("Sequence[str]", converted["command"]))
        if problem is not None:
            raise ToolArgumentsInvalid(f"command: {problem}")
        return converted


def _options(host: Any, name: str, timeout: float | None) -> ToolOptions:
    if not isinstance(host, Subprocess):
        raise ConfigurationError(
            f"{name}: say where it runs: host=Sandbox(...), or host=Subprocess(), which confines nothing; "
            f"got {host!r:.80}"
        )
    confined = isinstance(host, Sandbox)
    return {
        "name": name,
        "host": host,
        "timeout": timeout,
        "executes": True,
        # A sandbox without outside effects leaves no unknown outcome: after a crash the call runs again.
        "read_only": confined and host.confines,
        "open_world": not confined or host.network,
    }


def _run(command: tuple[str, ...], text: str) -> dict[str, Json]:
    """Run a program in the working folder, and return its exit code, outputs and files."""
    outputs = BoundedOutput(KEPT), BoundedOutput(KEPT)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
    except OSError as error:
        return {
            "exit_code": 127,
            "stdout": "",
            "stderr": f"{command[0]}: {error.strerror}",
            "files": _files(),
        }
    streams = (process.stdout, process.stderr)
    readers = [
        threading.Thread(target=_read, args=pair, daemon=True) for pair in zip(streams, outputs, strict=True)
    ]
    for reader in readers:
        reader.start()
    assert process.stdin is not None
    try:
        process.stdin.write(text.encode("utf-8", "replace"))
        process.stdin.close()
    except BrokenPipeError:
        pass  # the program closed its input early
    code = process.wait()
    for reader in readers:
        reader.join(HANGING)
    out, err = (output.text() for output in outputs)
    return {"exit_code": code, "stdout": out, "stderr": err, "files": _files()}


def _read(stream: Any, output: BoundedOutput) -> None:
    while data := os.read(stream.fileno(), 65_536):
        output.add(data)


def _files() -> dict[str, Json]:
    """Return the sizes in bytes of at most `LISTED` files below the working folder, by path; nearest first."""
    sizes: dict[str, Json] = {}
    folders = ["."]
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(islice(entries, LISTED), key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] * (len(folders) < LISTED)
                elif len(sizes) < LISTED:
                    # A file name can be any bytes; a result is text.
                    name = os.fsencode(entry.path).removeprefix(b"./").decode(errors="backslashreplace")
                    sizes[name] = entry.stat(follow_symlinks=False).st_size
    return sizes
