"""Build the command line that starts a program in its own namespaces, with bubblewrap.

The program sees a file system of its own: the machine's programs and libraries, the interpreter, the declared paths,
and temporary folders in memory. It has its own process ids, network, shared memory and users.

Three things differ from bubblewrap's defaults. All of `/proc` is read-only: the driver may be root, who may write files
such as `/proc/sys/kernel/core_pattern` from a user namespace, even without a capability. `/dev` is a folder in
memory without a limit, so it is read-only, with a limited `/dev/shm`. A program that shares the driver's network cannot
use unix sockets: the filter denies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

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
    """Return the start of a command line; the program and its arguments follow.

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
