"""The example of CONTRIBUTING.md: its diffs, applied to a copy of the package, give a verb to every face."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]
DIFFS = [block.code for block in blocks(ROOT / "CONTRIBUTING.md") if block.language == "diff"]
FACES = [
    *(["by code", "ann"], ["by a handle", "ann"]),
    *(["without asyncio", "ann"], ["by a handle without asyncio", "ann"]),
    *(["by a client", "ann"], ["by a handle of a client", "ann"]),
    ["by the command line", "ann"],
]


def applied(diff: str, root: Path) -> Path:
    """Apply a diff that has a path, and places without line numbers; return the path."""
    path, places = re.fullmatch(r"--- (\S+)\n(.*)", diff, re.DOTALL).groups()
    file = root / path
    text = file.read_text(encoding="utf-8")
    for place in places.split("\n@@\n"):
        lines = [(line[:1], line[1:] + "\n") for line in place.rstrip("\n").split("\n")]
        before = "".join([line for sign, line in lines if sign != "+"])
        assert text.count(before) == 1, f"{path} has {text.count(before)} places like this one:\n{before}"
        text = text.replace(before, "".join([line for sign, line in lines if sign != "-"]))
    file.unlink()
    file.write_text(text, encoding="utf-8")
    return file


def test_an_event_with_a_verb_is_added_in_four_files_and_has_every_face(tmp_path: Path):
    shutil.copytree(ROOT / "src" / "treadle", tmp_path / "src" / "treadle")  # with the compiled modules
    assert len({applied(diff, tmp_path) for diff in DIFFS}) == 4
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "src"), str(ROOT)])}
    completed = subprocess.run(
        [sys.executable, "-m", "tests.docs.annotate", str(tmp_path / "journal.db")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.count("a note was added") == len(FACES)
    (state, package), *notes = json.loads(completed.stdout.splitlines()[-1])
    assert (state, notes) == ("completed", FACES)
    assert package == str(tmp_path / "src" / "treadle" / "__init__.py")
