"""The private folder of a tool's process: made before the start, deleted after the end.

The supervisor empties it if it can. A supervisor in namespaces of its own cannot see it, so the driver deletes it. A
crashed driver leaves it behind. Therefore the driver holds a lock on each folder. The kernel releases the lock when the
driver ends or crashes. The next driver of this user deletes unlocked folders when it starts its first process.
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
"""Seconds in which a new folder is left alone, since it is made a moment before it is locked."""

_swept = threading.Event()


class PrivateFolder:
    """A new folder, locked until it is released."""

    def __init__(self) -> None:
        if not _swept.is_set():
            _swept.set()
            threading.Thread(target=sweep, name="treadle-tools: sweep", daemon=True).start()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # no locks on this file system: only this driver deletes it
            fcntl.flock(self._lock, fcntl.LOCK_SH)

    def release(self) -> None:
        """Release the lock; may be called again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def remove(self) -> None:
        """Delete the folder with its content; blocks."""
        _remove(self.path)


def sweep() -> None:
    """Delete leftover folders of this user's drivers from the folder for temporary files."""
    with os.scandir(tempfile.gettempdir()) as entries:
        names = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in names:
        with suppress(OSError):  # locked, another user's, or gone
            _sweep_one(path)


def _sweep_one(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        is_old = time.time() - status.st_mtime > YOUNG
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != stat.S_IRWXU or not is_old:
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(Path(path))
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    # By a program, because shutil.rmtree fails on deeply nested folders.
    remove = ("/bin/rm", "-rf", "--", str(folder))
    subprocess.run(remove, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
