"""The servers of a folder: each leaves a note in `.treadle` while it runs, so that other commands find its page.

A server locks its note, and the system removes the lock with the process. So a note without a lock is of a server that
has ended, even if another process uses its port now.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.stores.private_files import PRIVATE_FOLDER, make_folder

FOLDER: Final = Path(PRIVATE_FOLDER) / "servers"


@frozen
class RunningServer:
    """A server of this machine with a page.

    Args:
        url: its URL.
        store: the URL of its store.
        token_file: the file of its token.
    """

    url: str
    store: str
    token_file: str

    @classmethod
    def of(cls, url: str, store: str, token_file: Path) -> RunningServer:
        """Return a server whose token file may be relative to this folder."""
        return cls(url, store, str(token_file.absolute()))


@contextmanager
def noted(server: RunningServer) -> Generator[None]:
    """Keep the note of a server for the duration of a block; without a writable folder there is none."""
    path = FOLDER / f"{os.getpid()}.json"
    try:
        make_folder(FOLDER.parent)
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        new = path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        yield
        return
    with os.fdopen(descriptor, "w", encoding="utf-8") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        json.dump({"url": server.url, "store": server.store, "token_file": server.token_file}, note)
        note.flush()
        new.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_server(store: str) -> RunningServer | None:
    """Return a server with a page that runs on a store, started in this folder; remove notes of ended servers."""
    found = None
    for path in sorted(FOLDER.glob("*.json")) if FOLDER.is_dir() else ():
        with suppress(OSError, ValueError, KeyError), path.open(encoding="utf-8") as note:
            if _is_unlocked(note.fileno()):
                path.unlink(missing_ok=True)
                continue
            fields = cast("dict[str, Any]", json.load(note))
            server = RunningServer(str(fields["url"]), str(fields["store"]), str(fields["token_file"]))
            if server.store == store:
                found = server
    return found


def _is_unlocked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
