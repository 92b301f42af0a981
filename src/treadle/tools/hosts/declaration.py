"""Where the function of a tool runs, as its author declares it; and how such a process is started.

`Subprocess` is the host that is always there. A host that confines more derives from it:

    class Confined(Subprocess):
        declared = "..."                          what `ToolSpec.host` says, found out without looking at the machine
        level                                     what a result says was in force
        def launch(self, command, env, ...)       wraps the command line, or raises `HostUnavailable`
        Launch(prepare=("module:function", data)) called in the worker, under its limits, before any code of the tool

A level that cannot be had must raise in `launch` or in the preparation: then nothing has run. Nothing ever runs at a
weaker level than was declared.

The process imports the module of the function, and with it the declarations that stand there. They are inert in it: no
tool of that process runs elsewhere, and what they name may not be there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.unknown_names import explains_arguments
from treadle.errors import ConfigurationError
from treadle.tools.hosts.pinned import Pin

if TYPE_CHECKING:
    from pathlib import Path

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "TZ", "USER")
"""The environment variables that a tool's process has of this process, beside those that its host names."""


_inert: bool = False


def make_inert() -> None:
    """Have all declarations of this process, a tool's, check nothing and read nothing: it starts no process by them."""
    global _inert  # noqa: PLW0603  no variable of the environment: programs that the function starts would have it
    _inert = True


def is_inert() -> bool:
    """Return whether this is a tool's process."""
    return _inert


_LEAST: Final = {"open_files": 8, "processes": 8}
"""What a process needs to run any function: with less it fails at each call."""

_UNITS: Final = {"memory": " of bytes", "file_bytes": " of bytes", "answer_bytes": " of bytes"}

_TOO_LARGE: Final = 1 << 63
"""What no limit of a system can be."""


def is_list(value: Any) -> bool:
    """Whether a declared value is a list of some kind, and not one text."""
    return isinstance(value, Collection) and not isinstance(value, (str, bytes))


@frozen(kw_only=True)
class Launch:
    """How a tool's process is started.

    Args:
        command: the command line; the one given to `launch`, or a launcher's that ends in it. The launcher has to pass
            on the descriptors whose numbers stand in it.
        env: all its environment variables.
        pass_fds: further descriptors that the command line names; they are closed here once it has started.
        prepare: a function as `module:name`, and its argument, called in the worker before any code of the tool.
        release: called when the process is gone, perhaps more than once.
    """

    command: tuple[str, ...]
    env: dict[str, str]
    pass_fds: tuple[int, ...] = ()
    prepare: tuple[str, Json] | None = None
    release: Callable[[], None] | None = None


@explains_arguments
@frozen(kw_only=True)
class Subprocess:
    """Each call runs in a new process, which is killed with all it started when the call is over.

    It is no sandbox: the process may read what its user may read, and has the network. It may also kill the supervisor
    that ends it, and so outlive its call.

    Args:
        memory: bytes of address space of each process; None for no limit.
        cpu_seconds: seconds of CPU of each process; None for no limit.
        processes: processes and threads beside those of the system when it starts, where the user is not root; None
            for no limit.
        file_bytes: the size that a file may have; None for no limit.
        open_files: descriptors; None for no limit.
        answer_bytes: the size that an answer, or one value of progress, may have as JSON.
        env: names of environment variables that the process has beside `INHERITED`.
        spare: whether a process with the tool's module loaded waits for the next call, for half a minute.
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
        object.__setattr__(self, "env", tuple(env))

    @property
    def declared(self) -> str:
        """What `ToolSpec.host` says."""
        return "subprocess"

    @property
    def level(self) -> str:
        """What a result says of where its function ran."""
        return "subprocess"

    def launch(
        self, command: tuple[str, ...], env: dict[str, str], folder: Path, *, module: str, script: str | None
    ) -> Launch:
        """Return how to start a process.

        Args:
            command: what has to run in it, unchanged; it names descriptors that have to stay open.
            env: its environment variables.
            folder: its private working directory, which exists and is deleted after the call.
            module: the module of the tool's function, which it imports.
            script: the path of the script that this process runs, if the function is defined there.

        Raises:
            HostUnavailable: this level cannot be had here.
        """
        return Launch(command=command, env=env)

    def pins(self, module: str, script: str | None) -> tuple[Pin, ...]:
        """Return what declared paths lead to now: a process started for something else takes no call.

        Args:
            module: the module of the tool's function.
            script: the path of the script that this process runs, if the function is defined there.

        Raises:
            HostUnavailable: it is not as declared.
        """
        return ()

    def limits(self) -> dict[str, int]:
        """Return its limits by their names in `resource`."""
        named = {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
        }
        return {"RLIMIT_CORE": 0} | {name: value for name, value in named.items() if value is not None}

    def environment(self, present: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the environment variables of a process, without those that name its folder."""
        return {name: present[name] for name in (*INHERITED, *self.env) if name in present}


def interpreter(*arguments: str) -> tuple[str, ...]:
    """Return a command line for this interpreter: isolated from the environment, with the same cache of bytecode."""
    options = ["-I"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix is not None:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    # Its folder as it is: on the way to it may be folders that a confined process does not see. Its name stays, since
    # the interpreter finds its environment by where it is called.
    folder, name = os.path.split(sys.executable)
    return (os.path.join(os.path.realpath(folder), name), *options, *arguments)  # noqa: PTH118
