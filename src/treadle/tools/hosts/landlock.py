"""Landlock of Linux: restrict a process and its children in files, TCP, signals and abstract sockets.

Landlock restricts opening and changing files. It leaves their names, sizes and times visible, and the ids of other
processes. A filter of system calls covers the rest (`seccomp`).
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from errno import ENOSYS, EOPNOTSUPP
from functools import cache
from typing import Any, Final

from treadle.tools.hosts.pinned import Pin, check_pinned

NEEDED: Final = 6
"""The first version of Landlock that restricts signals and abstract sockets (Linux 6.12)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH: Final = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_ALL_FILES: Final = (1 << 16) - 1
_ALL_TCP: Final = 3
_ALL_SCOPES: Final = 3
_OF_A_FILE: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING: Final = _EXECUTE | _READ_FILE | _READ_DIR
_WRITING: Final = _ALL_FILES & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("tcp", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


@cache
def version() -> int:
    """Return the kernel's version of Landlock; 0 if it has none or has it disabled."""
    if sys.platform != "linux":
        return 0
    abi_version = libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi_version < 0:
        if ctypes.get_errno() in (ENOSYS, EOPNOTSUPP):
            return 0
        check("Landlock", abi_version)
    return abi_version


def restrict(read: Iterable[str], write: Iterable[str], *, network: bool, pins: Iterable[Pin] = ()) -> None:
    """Restrict this process and all its children permanently. It must already have set `no_new_privs`.

    Args:
        read: files and folders to read and execute.
        write: files and folders that may also be changed.
        network: whether TCP stays unrestricted.
        pins: expected targets of some of the paths.

    Raises:
        OSError: the kernel refused the restriction, or a path has another target.
    """
    # No rule names a port. If TCP is restricted, all of it is denied.
    ruleset = _Ruleset(_ALL_FILES, 0 if network else _ALL_TCP, _ALL_SCOPES)
    handle = libc().syscall(
        _CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0
    )
    check("a ruleset", min(handle, 0))
    try:
        for path in read:
            _allow(handle, path, _READING, pins)
        for path in write:
            _allow(handle, path, _WRITING, pins)
        for path in filter(os.path.exists, _DEVICES):
            _allow(handle, path, _READ_FILE | _WRITE_FILE)
        check("Landlock", libc().syscall(_RESTRICT_SELF, handle, 0))
    finally:
        os.close(handle)


def _allow(ruleset: int, path: str, rights: int, pins: Iterable[Pin] = ()) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        check_pinned(path, status, pins)
        if not stat.S_ISDIR(status.st_mode):
            rights &= _OF_A_FILE
        rule = _PathBeneath(rights, handle)
        check(path, libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(handle)


@cache
def libc() -> Any:
    """Return the C library, with errno kept per call."""
    return ctypes.CDLL(None, use_errno=True)


def check(label: str, result: int) -> None:
    """Raise `OSError` with the current errno unless the result of a system call is 0."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{label}: {os.strerror(number)}")
