"""A sample of the soak: each round leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.full
def test_twenty_seconds_of_everything_at_once_leave_nothing_behind() -> None:
    command = [sys.executable, "-m", "bench.soak", "--seconds", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
