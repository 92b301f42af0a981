"""Private folders and files of the user, such as `.treadle` and the server's token in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from treadle.errors import ConfigurationError

PRIVATE_FOLDER: Final = ".treadle"
TOKEN_FILE: Final = Path(PRIVATE_FOLDER) / "server-token"
"""The token of the server of a project: a server makes it, and commands on this machine read it."""


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter, if it is missing; git ignores the contents of `.treadle`."""
    if folder.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.name == PRIVATE_FOLDER:
        (folder / ".gitignore").write_text("*\n")


def private_token(file: Path, instead: str) -> str:
    """Return the token in a file that only the user of this process may read.

    Args:
        file: the file.
        instead: advice for a file of another user.

    Raises:
        ConfigurationError: the file belongs to another user, or other users may read it.
    """
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        mode = stat.S_IMODE(status.st_mode)
        if os.name == "posix" and status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"the token in {file} belongs to another user (uid {status.st_uid}): {instead}"
            )
        if os.name == "posix" and mode & 0o077:
            raise ConfigurationError(
                f"other users may read the token in {file} (mode {mode:o}): chmod 600 it, and make a new token"
            )
        return opened.read().decode("utf-8", "surrogateescape").strip()
