"""Pin declared paths to their targets. Another process could replace a path by a link after it was checked.

The driver records the device and inode of each path, opened part by part without following links. The confined process
compares them with its own view, once that can no longer change and before any code of the tool runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from errno import ELOOP
from typing import Final, TypeAlias

Pin: TypeAlias = tuple[str, int, int]
"""A path with the device and inode of its target."""

_PART: Final = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


def pinned(path: str) -> Pin:
    """Return the target of an absolute path.

    Raises:
        OSError: the path does not exist, or a part of it is a symbolic link.
    """
    handle = os.open("/", _PART)
    try:
        for part in filter(None, path.split("/")):
            inner = os.open(part, _PART, dir_fd=handle)
            os.close(handle)
            handle = inner
        status = os.fstat(handle)
    finally:
        os.close(handle)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(ELOOP, os.strerror(ELOOP), path)
    return path, status.st_dev, status.st_ino


def check_pinned(path: str, status: os.stat_result, pins: Iterable[Pin]) -> None:
    """Raise `PermissionError` if a pinned path led to another target."""
    for pin in pins:
        if pin[0] == path and (status.st_dev, status.st_ino) != tuple(pin[1:]):
            raise PermissionError(f"{path} was exchanged for something else while the process was started")
