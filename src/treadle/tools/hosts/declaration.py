"""The declaration of a tool's host, and the interface that starts its process.

`Subprocess` is always available. A host with stronger confinement derives from it:

    class Confined(Subprocess):
        declared = "..."                          the value of `ToolSpec.host`, found without a look at the machine
        level                                     the level in force, for results
        def launch(self, command, env, ...)       wraps the command line, or raises `HostUnavailable`
        Launch(prepare=("module:function", data)) called in the worker, under its limits, before any code of the tool

If a level is not available, `launch` or the preparation must raise, before the tool runs. A tool never runs at a level
weaker than its declaration.

The process imports the module of the function with its host declarations. They are inert there: tools in that process
start no further process. Declared paths and names are not checked, because they may not exist there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from treadle.core.data import frozen, set_field
from treadle.core.messages import Json
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError
from treadle.tools.hosts.pinned import Pin

if TYPE_CHECKING:
    from pathlib import Path

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "TZ", "USER")
"""Environment variables that a tool's process inherits, in addition to those that its host names."""


_inert: bool = False


def make_inert() -> None:
    """Make host declarations inert in this process, a tool's: they are not checked and start no process."""
    global _inert  # noqa: PLW0603  no variable of the environment: programs that the function starts would have it
    _inert = True


def is_inert() -> bool:
    """Return whether this is a tool's process."""
    return _inert


_LEAST: Final = {"open_files": 8, "processes": 8}
"""The least that a function needs to run. A lower limit would fail every call."""

_UNITS: Final = {"memory": " of bytes", "file_bytes": " of bytes", "answer_bytes": " of bytes"}

_TOO_LARGE: Final = 1 << 63
"""An upper bound for every limit: systems have 64-bit limits."""


def is_list(value: Any) -> bool:
    """Return whether a declared value is a list, not a text."""
    return isinstance(value, Collection) and not isinstance(value, (str, bytes))


@frozen(kw_only=True)
class Launch:
    """How to start a tool's process.

    Args:
        command: the argument of `launch`, or a launcher's command line that ends in it. A launcher must pass on the
            file descriptors that the line names.
        env: all its environment variables.
        pass_fds: further descriptors that the line names. They are closed here after the start.
        prepare: a function as `module:name`, and its argument. It is called in the worker before any code of the tool.
        release: called after the process has ended, perhaps several times.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    pass_fds: tuple[int, ...] = ()
    prepare: tuple[str, Json] | None = None
    release: Callable[[], None] | None = None


@frozen(kw_only=True)
@explains_arguments
class Subprocess:
    """Run each call in a new process, which is killed with all its children when the call is over.

    It is not a sandbox. The process can read the user's files and use the network. It can also kill its supervisor, and
    so outlive the call.

    Args:
        memory: bytes of address space of each process; None for no limit.
        cpu_seconds: CPU seconds of each process; None for no limit.
        processes: processes and threads in addition to those that the system runs at the start; None for no limit.
            It does not bind root.
        file_bytes: the size of the largest file, in bytes; None for no limit.
        open_files: file descriptors; None for no limit.
        answer_bytes: the largest answer or progress value, in bytes of JSON.
        env: names of environment variables that the process inherits in addition to `INHERITED`.
        spare: whether a process with the tool's module loaded waits up to half a minute for the next call.
    """

    memory: int | None = 4 << 30
    cpu_seconds: int | None = 600
    processes: int | None = 256
    file_bytes: int | None = 1 << 30
    open_files: int | None = 256
    answer_bytes: int = 10_000_000
    env: Sequence[str] = ()
    spare: bool = True

    def __post_init__(self) -> None:
        if _inert:
            return
        kind = type(self).__name__
        for name in ("memory", "cpu_seconds", "processes", "file_bytes", "open_files", "answer_bytes"):
            value: Any = getattr(self, name)
            if value is None and name != "answer_bytes":
                continue
            least = _LEAST.get(name, 1)
            if type(value) is not int or value < least or value >= _TOO_LARGE:
                raise ConfigurationError(
                    f"{kind}({name}=...) takes a whole number{_UNITS.get(name, '')} from {least} on, below 2**63, "
                    f"not {value!r:.80}"
                )
        env: Any = self.env
        if not is_list(env) or isinstance(env, dict) or not all(isinstance(name, str) for name in env):
            raise ConfigurationError(
                f"{kind}(env=...) takes names of variables, such as ('PROXY',), not {env!r:.80}"
            )
        set_field(self, "env", tuple(env))

    @property
    def declared(self) -> str:
        """The value of `ToolSpec.host`."""
        return "subprocess"

    @property
    def level(self) -> str:
        """The level that results record."""
        return "subprocess"

    def launch(
        self, command: tuple[str, ...], env: dict[str, str], folder: Path, *, module: str, script: str | None
    ) -> Launch:
        """Return how to start a process.

        Args:
            command: the command line to run, unchanged. The descriptors that it names must stay open.
            env: its environment variables.
            folder: its private working folder, which exists, and is deleted after the call.
            module: the module of the tool's function, which the process imports.
            script: the path of the driver's script, if it defines the function.

        Raises:
            HostUnavailable: this machine lacks the declared level.
        """
        return Launch(command=command, env=env)

    def pins(self, module: str, script: str | None) -> tuple[Pin, ...]:
        """Return the targets of the declared paths. A spare with other targets is not used.

        Args:
            module: the module of the tool's function.
            script: the path of the driver's script, if it defines the function.

        Raises:
            HostUnavailable: a path does not match its declaration.
        """
        return ()

    def limits(self) -> dict[str, int]:
        """Return its limits, by their names in `resource`."""
        named = {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
        }
        return {"RLIMIT_CORE": 0} | {name: value for name, value in named.items() if value is not None}

    def environment(self, present: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment variables of a process, without those for its private folder."""
        return {name: present[name] for name in (*INHERITED, *self.env) if name in present}


def interpreter(*arguments: str) -> tuple[str, ...]:
    """Return a command line for this interpreter, isolated from the environment, with the same bytecode cache."""
    options = ["-I"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    # The folder is resolved, because a confined process may not see the folders on the way to it. The name is
    # unchanged: the interpreter finds its virtual environment by its own path.
    folder, name = os.path.split(sys.executable)
    return (os.path.join(os.path.realpath(folder), name), *options, *arguments)  # noqa: PTH118
