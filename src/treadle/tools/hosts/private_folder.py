"""The private folder of a tool's process: made before it starts, and deleted when it is gone, or later.

The supervisor empties it where it can. In namespaces of its own it cannot see it, and then a driver that is killed
leaves it. So each folder is locked for as long as its driver needs it. The kernel frees the lock of a driver that is
gone, however it went, and the first process that the next driver of this user starts deletes what is not locked.
"""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "treadle-tool-"

YOUNG: Final = 60.0
"""Seconds in which a folder is left alone: between its making and its lock is a moment."""

_swept = threading.Event()


class PrivateFolder:
    """A new folder that is locked until it is released."""

    def __init__(self) -> None:
        if not _swept.is_set():
            _swept.set()
            threading.Thread(target=sweep, name="treadle-tools: sweep", daemon=True).start()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # a file system without locks: it is deleted by its driver alone
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let go of the lock; more than once is fine."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def remove(self) -> None:
        """Delete it with all that is in it; blocks."""
        _remove(self.path)


def sweep() -> None:
    """Delete the folders in the folder for temporary files that drivers of this user left."""
    with os.scandir(tempfile.gettempdir()) as entries:
        names = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in names:
        with suppress(OSError):  # it is locked, of another user, or gone
            _sweep_one(path)


def _sweep_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        is_old = time.time() - found.st_mtime > YOUNG
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != stat.S_IRWXU or not is_old:
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(Path(path))
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    # Not by a function of Python, which fails where folders are nested deep.
    remove = ("/bin/rm", "-rf", "--", str(folder))
    subprocess.run(remove, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
