"""Folders for files of the user's own, such as `.treadle`."""

from __future__ import annotations

from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter, if it is missing; git ignores what is in a `.treadle`."""
    if folder.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.name == ".treadle":
        (folder / ".gitignore").write_text("*\n")
