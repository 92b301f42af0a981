"""Hundreds of hostile records through every loader import nothing, open nothing, start nothing, and lose nothing."""

import json
import random
import sys
from pathlib import Path

import pytest

from tests.forked import completed

ROOT = Path(__file__).parents[2]
STEP = 12


def report(folder: Path, store: str, first: int, step: int) -> int:
    """Run the records from the first on, and return how many there were."""
    command = [
        sys.executable,
        "-m",
        "tests.attack.hostile_records",
        str(folder),
        store,
        str(first),
        str(step),
    ]
    done = completed(command, cwd=ROOT, timeout=600, check=True)
    told = json.loads(done.stdout)
    assert (told["heard"], told["problems"], told["kept"]) == ({}, [], True), command
    return told["records"]


def test_no_loader_obeys_a_record_of_a_sample(tmp_path: Path) -> None:
    assert report(tmp_path, str(tmp_path / "journal.db"), random.randrange(STEP), STEP) > 15


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_loader_obeys_a_record(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    store = str(tmp_path / "journal.db")
    if kind == "postgresql":
        store = request.getfixturevalue("postgres").in_schema("hostile_records")
    assert report(tmp_path, store, 0, 1) >= 200
