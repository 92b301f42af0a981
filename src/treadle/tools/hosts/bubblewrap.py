"""The command that starts a program in namespaces of its own, by bubblewrap.

The program sees a file system made for it: programs and libraries of the machine, the interpreter, what is declared,
and folders in memory that are gone with it. It has process numbers, a network, shared memory and users of its own.

Three things are not as bubblewrap does them by itself. The driver may be root, and files of `/proc` such as
`/proc/sys/kernel/core_pattern` may be written by the user 0 of the machine even without a capability and from within a
user namespace, so all of `/proc` is read-only. `/dev` is a folder in memory without a limit, so it is read-only, with a
limited `/dev/shm`. And the driver's network may be shared, but never its unix sockets: the filter denies them.
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
"""What is a link into `/usr` on most systems, and a folder of its own on others."""


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
    """Return the beginning of a command line; the program and its arguments follow.

    Args:
        program: the path of bubblewrap.
        folder: the working folder: one of `write`, or a path at which an empty folder in memory is made.
        read: files and folders that may be read.
        write: folders that may be read and written.
        network: whether it shares the network of this machine.
        disk: how much each folder in memory holds, in bytes.
        filter: the descriptor of the filter of system calls.
    """
    size = ("--size", str(disk), "--tmpfs")
    line = [program, *_UNSHARED, *(("--share-net",) if network else ()), "--seccomp", str(filter)]
    line += ("--proc", "/proc", "--remount-ro", "/proc")
    line += ("--dev", "/dev", *size, "/dev/shm", "--remount-ro", "/dev", *size, "/tmp")  # noqa: S108  its own
    for place in _TOP:
        if Path(place).is_symlink():
            line += ("--symlink", str(Path(place).readlink()), place)
    mounts: list[tuple[str, tuple[str, ...]]] = [(path, ("--ro-bind", path, path)) for path in read]
    mounts += [(path, ("--bind", path, path)) for path in write]
    if folder not in write:
        mounts.append((folder, (*size, folder)))
    for path, mount in sorted(mounts, key=lambda each: Path(each[0]).parts):  # what is in a folder after it
        if not (path in _TOP and Path(path).is_symlink()):
            line += mount
    return [*line, "--remount-ro", "/", "--chdir", folder, "--"]
