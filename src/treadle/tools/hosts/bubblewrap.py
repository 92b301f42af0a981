"""Build the command line that starts a program in its own namespaces, with bubblewrap.

The program has its own file system: the machine's programs and libraries, the interpreter, the declared paths, and
temporary folders in memory. It has its own process ids, network, shared memory and users.

Three things differ from bubblewrap's defaults. All of `/proc` is read-only. The driver may be root, who may write
`/proc/sys/kernel/core_pattern` and the like from a user namespace, even without a capability. `/dev` is a folder in
memory without a limit, so it is read-only, with a limited `/dev/shm`. If a program shares the driver's network, the
filter denies it unix sockets.

Every confined program can read the machine's programs and libraries, and the tool's code.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

_PROGRAMS: Final = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/sbin", "/nix/store", "/gnu/store")
_SETTINGS: Final = (
    # Parts of /etc without secrets, one by one: a driver that runs as root could read all of /etc.
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/timezone", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/ca-trust/extracted", "/etc/crypto-policies"),
)
_NETWORK: Final = (
    *(
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/nsswitch.conf",
        "/etc/services",
        "/etc/protocols",
        "/etc/gai.conf",
    ),
    "/etc/host.conf",
)


def machine_paths(*, network: bool) -> list[str]:
    """Return the machine's existing programs, libraries and settings."""
    return [path for path in (*_PROGRAMS, *_SETTINGS, *(_NETWORK if network else ())) if Path(path).exists()]


@cache
def interpreter_paths() -> tuple[str, ...]:
    """Return the paths of this interpreter, its packages and its bytecode cache."""
    executable = os.path.realpath(sys.executable)
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, executable, *site.getsitepackages()}
    paths.add(str(Path(__file__).parents[2]))  # this package: it may be an editable install
    paths.update({site.getusersitepackages()} & set(sys.path))
    paths |= {os.path.realpath(path) for path in paths}  # the links that lead there may be invisible
    paths = {
        path for path in paths if path != "/" and ".." not in path.split("/")
    }  # such an interpreter uses the machine's programs
    if sys.pycache_prefix is not None:
        paths |= {sys.pycache_prefix + path for path in paths}
    return tuple(outermost(path for path in paths if Path(path).exists()))


def code_paths(module: str, script: str | None) -> list[str]:
    """Return the files of a tool's module: its script, its file, or its whole top-level package.

    Args:
        module: the module's name.
        script: the path of the driver's script, if it defines the function.
    """
    if script is not None:
        return [script]
    loaded = sys.modules.get(module.partition(".")[0])
    packages = getattr(loaded, "__path__", None)
    files = list(packages) if packages is not None else [getattr(loaded, "__file__", None)]
    return [file for file in files if isinstance(file, str) and Path(file).exists()]


def loaded_from(code: Iterable[str]) -> list[str]:
    """Return the modules and programs from which this process loads code, now and after a restart.

    Args:
        code: the files of a tool's module.
    """
    places = (*interpreter_paths(), *sys.path, *os.get_exec_path(), *code, *sorted(set(_loaded())))
    return [os.path.realpath(path) for path in places]


def _loaded() -> Iterator[str]:
    """Yield the folders of all loaded modules, and of files to which they link."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})  # not getattr: some modules compute attributes
        file, folders = names.get("__file__"), names.get("__path__")
        if isinstance(file, str):
            yield os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120  there may be thousands
            if os.path.islink(file):  # noqa: PTH114
                yield file
        if isinstance(folders, Iterable):
            yield from (str(folder) for folder in cast("Iterable[Any]", folders))


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not inside another of the paths."""
    outer_paths: list[str] = []
    for path in sorted({str(Path(path).absolute()) for path in paths}, key=len):
        if not any(
            path == outer or path.startswith(outer.rstrip("/") + "/") for outer in (*outer_paths, "/usr")
        ):
            outer_paths.append(path)
    return outer_paths


NAME: Final = "bwrap"

_UNSHARED: Final = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"),
    *("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_TOP: Final = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")
"""Links into `/usr` on most systems, real folders on others."""


def command(
    program: str,
    *,
    folder: str,
    read: Sequence[str],
    write: Sequence[str],
    network: bool,
    disk: int,
    filter: int,
) -> list[str]:
    """Return the start of a command line. The program and its arguments follow.

    Args:
        program: the path of bubblewrap.
        folder: the working folder: one of `write`, or a path for an empty folder in memory.
        read: files and folders that may be read.
        write: folders that may be read and written.
        network: whether the program shares the network of this machine.
        disk: the size of each folder in memory, in bytes.
        filter: the descriptor of the filter of system calls.
    """
    size = ("--size", str(disk), "--tmpfs")
    line = [program, *_UNSHARED, *(("--share-net",) if network else ()), "--seccomp", str(filter)]
    line += ("--proc", "/proc", "--remount-ro", "/proc")
    line += ("--dev", "/dev", *size, "/dev/shm", "--remount-ro", "/dev", *size, "/tmp")  # noqa: S108  its own
    for link in _TOP:
        if Path(link).is_symlink():
            line += ("--symlink", str(Path(link).readlink()), link)
    mounts: list[tuple[str, tuple[str, ...]]] = [(path, ("--ro-bind", path, path)) for path in read]
    mounts += [(path, ("--bind", path, path)) for path in write]
    if folder not in write:
        mounts.append((folder, (*size, folder)))
    for path, mount in sorted(mounts, key=lambda each: Path(each[0]).parts):  # a folder before its content
        if not (path in _TOP and Path(path).is_symlink()):
            line += mount
    return [*line, "--remount-ro", "/", "--chdir", folder, "--"]
