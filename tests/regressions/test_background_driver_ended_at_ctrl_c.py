"""A driver that was started with SIGINT ignored, as a script's background job, ended at its terminal's Ctrl-C."""

import os
import select
import signal
import subprocess
import sys

AGENTS = """
from treadle import Agent, ScriptedModel

agent = Agent(ScriptedModel(["Done."]), name="worker")
"""


def test_a_driver_started_with_sigint_ignored_ends_at_sigterm_alone(tmp_path):
    (tmp_path / "crew.py").write_text(AGENTS)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "treadle",
                "drive",
                "--agent",
                "crew:agent",
                "--store",
                "journal.db",
                "--json",
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert '"driving"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        told_more, _, _ = select.select([process.stdout], [], [], 0.5)
        assert not told_more, process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert '"drained"' in output
