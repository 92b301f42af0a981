"""The modules of the page for Node, which takes them for modules only beside a file that says so."""

from __future__ import annotations

import shutil
from pathlib import Path

from treadle.server.page import FOLDER

NODE = shutil.which("node")
HERE = Path(__file__).parent


def command(check: str, folder: Path, *arguments: str) -> list[str]:
    """Return the command that runs a check on a copy of the page in a folder."""
    assert NODE is not None, "the test is skipped without it"
    page = folder / "page"
    shutil.copytree(FOLDER, page)
    (page / "package.json").write_text('{"type": "module"}')
    return [NODE, str(HERE / check), str(page), *arguments]
