"""A process that the operating system confines. It reads and writes only declared paths, and has no network.

Theory of operation
-------------------

`Sandbox` is a `Subprocess` that its command line or its first code confines. There are two mechanisms. A call uses the
first one that this machine has and that enforces the whole profile:

    bubblewrap   the process gets its own file system, process ids, network and users (`bubblewrap`); a filter of
                 system calls denies the rest (`seccomp`)
    Landlock     the process keeps the machine's, and can open only declared paths (`landlock`); the filter denies
                 sockets, shared memory, new sessions, and changes of modes, owners and times

A mechanism that lacks a part of the profile is not used. If none is left, `HostUnavailable` names the missing part of
each, and the tool does not run. A mechanism is tested, not inferred from versions: bubblewrap runs once with a profile.

`RLIMIT_NPROC` limits the processes of the new user namespace, or, with Landlock, all of the user's. It does not bind
root: then a control group limits them (`cgroup`). Without one, a profile with such a limit is not available.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from treadle.core.data import frozen, set_field
from treadle.core.unknown_names import explains_arguments, near_name
from treadle.errors import ConfigurationError, HostUnavailable
from treadle.tools.hosts import bubblewrap, cgroup, landlock, seccomp
from treadle.tools.hosts.bubblewrap import (
    code_paths,
    interpreter_paths,
    loaded_from,
    machine_paths,
    outermost,
)
from treadle.tools.hosts.declaration import Launch, Subprocess, is_inert, is_list
from treadle.tools.hosts.pinned import Pin, pinned

Way = Literal["bubblewrap", "landlock"]
WAYS: Final[tuple[Way, ...]] = ("bubblewrap", "landlock")

DISK: Final = 256 << 20
"""Default size of each folder in memory, in bytes."""

_profiles: Final[set[str]] = set()
"""The files that profiles were read from. A sandbox that may write one could widen itself."""

_NEVER: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""Folders of devices, processes and services. A sandbox with one of them would confine nothing."""

# If memory runs out, the kernel kills a program of a model before the process that runs the agent.
_START: Final = (
    "echo 1000 > /proc/self/oom_score_adj; "
    '[ -z "$1" ] || echo 0 > "$1" || { echo "it cannot join its control group"; exit 126; }; shift; exec "$@"'
)


@frozen(kw_only=True)
@explains_arguments
class Sandbox(Subprocess):
    """Run each call in a new process that the operating system confines. If it cannot, do not run the call.

    The process sees the machine's programs and libraries, and the interpreter with its packages. It also sees the
    tool's code and the declared paths. Relative paths start at this process's working folder when the sandbox is made.

    Args:
        folder: the working folder, writable and kept; None for an empty one that is deleted after the call.
        read: files and folders to read.
        write: folders to read and write.
        network: whether it may use the network, including this machine's loopback.
        disk: the size of each of its folders in memory, in bytes; None for 256 MiB. A number requires bubblewrap.
        by: the mechanism, `bubblewrap` or `landlock`; None for the first one that works on this machine.
        memory, cpu_seconds, processes, file_bytes, open_files, answer_bytes, env, spare: as in `Subprocess`.

    Raises:
        ConfigurationError: an argument is not valid, or a declared folder would make the confinement useless.
    """

    memory: int | None = 2 << 30
    cpu_seconds: int | None = 120
    processes: int | None = 64
    file_bytes: int | None = 256 << 20
    folder: str | os.PathLike[str] | None = None
    read: Sequence[str | os.PathLike[str]] = ()
    write: Sequence[str | os.PathLike[str]] = ()
    network: bool = False
    disk: int | None = None
    by: Way | None = None

    def __post_init__(self) -> None:
        if is_inert():
            return
        Subprocess.__post_init__(self)
        network: Any = self.network
        if not isinstance(network, bool):
            raise ConfigurationError(
                f"Sandbox(network=...) takes True or False, not {network!r:.80}: a sandbox has all of the network or "
                "none; to reach some hosts only, write another tool with treadle.tools.http_client"
            )
        disk: Any = self.disk
        if disk is not None and (type(disk) is not int or disk < 1):
            raise ConfigurationError(
                f"Sandbox(disk=...) takes a whole number of bytes from 1 on, not {disk!r:.80}"
            )
        if self.by is not None and self.by not in WAYS:
            raise ConfigurationError(f"Sandbox(by=...) takes 'bubblewrap' or 'landlock', not {self.by!r:.80}")
        folder = None if self.folder is None else _declared("folder", [self.folder])[0]
        write = _declared("write", self.write)
        if folder is not None and folder not in write:
            write = (*write, folder)
        read = _declared("read", self.read)
        for outer in write:
            for inner in (*read, *write):
                if inner != outer and inner.startswith(outer + "/"):
                    raise ConfigurationError(
                        f"Sandbox: {inner} is in {outer}, which is writable: a call could replace it by a link, which "
                        "the next call would follow"
                    )
        if both := sorted(set(read) & set(write)):
            raise ConfigurationError(f"Sandbox: {both[0]} is in read and in write; write holds reading")
        for name, value in (("folder", folder), ("read", read), ("write", write)):
            set_field(self, name, value)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], name: str) -> Sandbox:
        """Return a profile from a TOML file: `[sandbox.NAME]`, or `[tool.treadle.sandbox.NAME]` in pyproject.toml.

        Its keys are the arguments of `Sandbox`. Relative paths start at the folder of the file.

        Raises:
            ConfigurationError: the file cannot be read, lacks the profile, or the profile is not valid.
        """
        if is_inert():
            return cls()
        path = Path(path)
        _profiles.add(os.path.realpath(path))
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from error
        table_name = "tool.treadle.sandbox" if path.name == "pyproject.toml" else "sandbox"
        table: Any = document
        for key in table_name.split("."):
            table = cast("dict[str, Any]", table).get(key, {}) if isinstance(table, dict) else {}
        profile: Any = cast("dict[str, Any]", table).get(name) if isinstance(table, dict) else None
        if not isinstance(profile, dict):
            profile_names = (
                ", ".join(cast("dict[str, Any]", table)) if isinstance(table, dict) and table else "none"
            )
            raise ConfigurationError(f"{path} has no profile [{table_name}.{name}]; it has {profile_names}")
        return cls._from_table(
            cast("dict[str, Any]", profile), f"{path}: [{table_name}.{name}]", path.absolute().parent
        )

    @classmethod
    def _from_table(cls, profile: dict[str, Any], label: str, base: Path) -> Sandbox:
        field_names = [each.name for each in fields(cast("Any", cls))]
        arguments = dict(profile)
        for key in profile:
            if key not in field_names:
                near = near_name(key, field_names)
                raise ConfigurationError(
                    f"{label} has no key {key!r}" + (f": did you mean {near!r}?" if near else "")
                )
        for key in ("read", "write"):
            paths = arguments.get(key, [])
            if not isinstance(paths, list) or not all(
                isinstance(each, str) for each in cast("list[Any]", paths)
            ):
                raise ConfigurationError(f"{label} {key} must be a list of paths, got {paths!r:.80}")
            arguments[key] = [base / each for each in cast("list[str]", paths)]
        if "folder" in arguments:
            arguments["folder"] = base / str(arguments["folder"])
        try:
            return cls(**arguments)
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from None

    @property
    def declared(self) -> str:
        return "sandbox with network" if self.network else "sandbox"

    @property
    def confines(self) -> bool:
        """Whether a call cannot change anything outside, since it has neither network nor a writable folder."""
        return not (self.network or self.write or self.folder)

    @property
    def problem(self) -> str | None:
        """The reason why this machine cannot provide the sandbox; None if it can."""
        try:
            self._way()
        except HostUnavailable as error:
            return str(error)
        return None

    @property
    def level(self) -> str:
        network = "network" if self.network else "no network"
        try:
            way = self._way()
        except HostUnavailable:
            return "sandbox: not to be had here"
        return f"sandbox: {'Landlock' if way == 'landlock' else way}, {network}"

    def limits(self) -> dict[str, int]:
        # A control group sets the process limit, or else `confined`, which counts the processes that already run.
        return {name: value for name, value in Subprocess.limits(self).items() if name != "RLIMIT_NPROC"}

    def environment(self, present: Any = os.environ) -> dict[str, str]:
        return {**Subprocess.environment(self, present), "LOGNAME": "sandbox", "USER": "sandbox"}

    def launch(
        self, command: tuple[str, ...], env: dict[str, str], folder: Path, *, module: str, script: str | None
    ) -> Launch:
        way, code, pins = self._way(), code_paths(module, script), self.pins(module, script)
        visible_paths = (*machine_paths(network=self.network), *outermost((*interpreter_paths(), *code)))
        read = list(dict.fromkeys((*visible_paths, *cast("tuple[str, ...]", self.read))))
        group, release = self._group()
        processes = self.processes if cgroup.binds_rlimit() else None
        start = ("/bin/sh", "-c", _START, "sandbox", group)
        program = seccomp.program(namespaces=way == "bubblewrap", network=self.network)
        working = str(self.folder or folder)
        if way == "landlock":
            confinement = {
                "folder": working,
                "read": read,
                "write": [*cast("tuple[str, ...]", self.write), str(folder)],
                "pins": pins,
                "network": self.network,
                "processes": processes,
                "filter": base64.b64encode(program).decode(),
            }
            return Launch(
                command=(*start, *command),
                env={**env, "HOME": working},
                prepare=("treadle.tools.hosts.confined:by_landlock", confinement),
                release=release,
            )
        handle = _in_memory(program)
        line = bubblewrap.command(
            shutil.which(bubblewrap.NAME) or bubblewrap.NAME,
            folder=working,
            read=read,
            write=cast("tuple[str, ...]", self.write),
            network=self.network,
            disk=self.disk or DISK,
            filter=handle,
        )
        return Launch(
            command=(*start, *line, *command),
            env={**env, "HOME": working, "TMPDIR": "/tmp"},  # noqa: S108  its own
            pass_fds=(handle,),
            prepare=("treadle.tools.hosts.confined:by_namespaces", {"processes": processes, "pins": pins}),
            release=release,
        )

    def pins(self, module: str, script: str | None) -> tuple[Pin, ...]:
        """Return the targets of the declared paths. Raises if a writable folder contains the driver's code."""
        pins: list[Pin] = []
        for path in cast("tuple[str, ...]", (*self.read, *self.write)):
            try:
                pins.append(pinned(path))
            except OSError as error:
                raise HostUnavailable(
                    f"the sandbox lacks {path}: it is not there, or leads to another place by now "
                    f"({error.strerror})"
                ) from None
        self._check_code(module, script)
        return tuple(pins)

    def _check_code(self, module: str, script: str | None) -> None:
        """Raise if a writable folder contains code or profiles that this process loads."""
        places = [*loaded_from(code_paths(module, script)), *_profiles] if self.write else []
        for folder in cast("tuple[str, ...]", self.write):
            for path in places:
                if path == folder or path.startswith(folder + "/"):
                    raise HostUnavailable(
                        f"the sandbox may write {folder}, from which this process loads code ({path}): a call could "
                        "leave code there that runs outside; declare a folder below it"
                    )

    def _group(self) -> tuple[str, Any]:
        if self.processes is None or cgroup.binds_rlimit():
            return "", None
        parent_group = cgroup.parent()
        assert parent_group is not None  # guaranteed by _lack()
        return cgroup.make_group(parent_group, self.processes)

    def _way(self) -> Way:
        """Return the mechanism for this profile on this machine.

        Raises:
            HostUnavailable: no mechanism enforces the whole profile.
        """
        lacks: list[str] = []
        for way in WAYS if self.by is None else (self.by,):
            lack = self._lack(way)
            if lack is None:
                return way
            lacks.append(f"{way} lacks {lack}")
        raise HostUnavailable(f"the sandbox is not available here, so nothing ran: {'; '.join(lacks)}")

    def _lack(self, way: Way) -> str | None:
        """Return the part of this profile that a mechanism lacks; None if it enforces all of it."""
        lack = lacking(way)
        if (
            lack is None
            and self.processes is not None
            and not cgroup.binds_rlimit()
            and cgroup.parent() is None
        ):
            lack = (
                "a limit of processes for root: there is no control group that may be written; run the driver as "
                "another user, or declare processes=None"
            )
        if lack is None and way == "landlock" and self.disk is not None:
            lack = "a limit for all files of a folder: declare disk=None"
        return lack


def lacking(way: Way) -> str | None:
    """Return the missing requirement of a mechanism on this machine; None if it has everything."""
    problem = seccomp.missing()
    if problem is not None:
        return problem
    if way == "bubblewrap":
        program = shutil.which(bubblewrap.NAME)
        return (
            "the program bwrap (apt-get install bubblewrap)"
            if program is None
            else _bubblewrap_problem(program)
        )
    version = landlock.version()
    if version == 0:
        return "Landlock in the kernel, or it is switched off"
    if version < landlock.NEEDED:
        return f"version {landlock.NEEDED} of Landlock (Linux 6.12); this kernel has version {version}"
    return None


@cache
def _bubblewrap_problem(program: str) -> str | None:
    """Run bubblewrap once, as for a call, and return its error if that fails."""
    handle = _in_memory(seccomp.program(namespaces=True, network=False))
    try:
        line = bubblewrap.command(
            program,
            folder="/tmp/work",  # noqa: S108  a path inside the sandbox
            read=machine_paths(network=False),
            write=(),
            network=False,
            disk=1 << 20,
            filter=handle,
        )
        tried = subprocess.run(
            (*line, "/bin/true"),
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(handle,),
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a bubblewrap that runs: {error}"
    finally:
        os.close(handle)
    if tried.returncode == 0:
        return None
    text = tried.stderr.decode(errors="replace").strip() or f"exit code {tried.returncode}"
    return f"namespaces, or version 0.8 of bubblewrap: {text[:300]}"


def _in_memory(data: bytes) -> int:
    """Return the descriptor of an in-memory file with this content, at its start."""
    handle = os.memfd_create("filter")
    os.write(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _declared(name: str, paths: Any) -> tuple[str, ...]:
    """Return declared paths, resolved; raises `ConfigurationError`."""
    if not is_list(paths):
        raise ConfigurationError(
            f"Sandbox({name}=...) takes a list of paths, such as {name}=['data'], not {paths!r:.80}"
        )
    resolved: list[str] = []
    for each in paths:
        if (
            not isinstance(each, (str, os.PathLike))
            or not str(cast("Any", each))
            or "\0" in str(cast("Any", each))
        ):
            raise ConfigurationError(f"Sandbox({name}=...) takes paths, not {each!r:.80}")
        path = os.path.realpath(cast("Any", each))
        if not Path(path).exists():
            raise ConfigurationError(f"Sandbox({name}=...): there is no {path}")
        if name != "read" and not Path(path).is_dir():
            raise ConfigurationError(f"Sandbox({name}=...): {path} is not a folder")
        for never in () if path.startswith("/dev/shm/") else _NEVER:  # noqa: S108  files in memory, and no devices
            if path == never or path.startswith(never + "/") or never.startswith(path.rstrip("/") + "/"):
                raise ConfigurationError(
                    f"Sandbox({name}=...): {path} holds or is part of {never}, where devices, processes and services "
                    "of the machine are"
                )
        resolved.append(path)
    return tuple(dict.fromkeys(resolved))
