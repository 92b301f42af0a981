"""The command that prints the table of speed."""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_table_of_speed_holds_the_row_that_was_asked_for() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--rounds", "1", "--rows", "8"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^8 +one streamed text delta +[\d.]+ us", done.stdout, re.MULTILINE), done.stdout
