"""Declared paths as what they lead to: another process may put a link in the place of a path after it was checked.

The driver notes which file or folder each path leads to, part by part, without following links. The process that was
confined compares this with what it got, once that cannot change any more, and before any code of the tool runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from errno import ELOOP
from typing import Final, TypeAlias

Pin: TypeAlias = tuple[str, int, int]
"""A path, and the device and number of what it leads to."""

_PART: Final = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


def pinned(path: str) -> Pin:
    """Return what an absolute path leads to.

    Raises:
        OSError: there is nothing, or a part of the path is a symbolic link.
    """
    handle = os.open("/", _PART)
    try:
        for part in filter(None, path.split("/")):
            inner = os.open(part, _PART, dir_fd=handle)
            os.close(handle)
            handle = inner
        found = os.fstat(handle)
    finally:
        os.close(handle)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(ELOOP, os.strerror(ELOOP), path)
    return path, found.st_dev, found.st_ino


def check_pinned(path: str, found: os.stat_result, pins: Iterable[Pin]) -> None:
    """Raise `PermissionError` if a path that is pinned led to something else."""
    for pin in pins:
        if pin[0] == path and (found.st_dev, found.st_ino) != tuple(pin[1:]):
            raise PermissionError(f"{path} was exchanged for something else while the process was started")
