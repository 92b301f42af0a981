"""The private folders of tools' processes: none is left for long, and none is deleted that is in use."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.tools.hosts.test_escapes import need
from treadle.tools.hosts.private_folder import PREFIX, YOUNG, PrivateFolder, sweep


def grown_old(folder: Path) -> Path:
    """Return a folder that seems to have been made a while ago."""
    before = time.time() - 2 * YOUNG
    os.utime(folder, (before, before))
    return folder


def test_folders_of_drivers_that_are_gone_stayed_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used, released = PrivateFolder(), PrivateFolder()
    (released.path / "file").write_text("x")
    released.release()
    open_to_others = tmp_path / f"{PREFIX}open"
    open_to_others.mkdir(mode=0o755)
    for folder in (used.path, released.path, open_to_others):
        grown_old(folder)
    (tmp_path / f"{PREFIX}young").mkdir(mode=0o700)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (tmp_path / f"{PREFIX}link").symlink_to(grown_old(outside))
    sweep()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {used.path.name, f"{PREFIX}open", f"{PREFIX}young", f"{PREFIX}link", "outside"}
    used.release()
    sweep()
    assert not used.path.exists()


DRIVER = """
import os, signal, sys, tempfile
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.tools import Sandbox
from tests.tools.hosts.confined_tools import inside

made = tool(inside, host=Sandbox(by="bubblewrap"))
with Runner("memory:").sync as runner:
    agent = Agent(ScriptedModel([call("inside"), text("Done.")]), tools=[made])
    print(runner.run(agent, "Go.").tool_executions[0].outcome, flush=True)
    if sys.argv[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_driver_left_the_folder_of_the_spare_that_bubblewrap_confined(killed: bool, tmp_path: Path) -> None:
    need("bubblewrap")
    command = [sys.executable, "-c", DRIVER]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())}

    def run(*arguments: str) -> list[Path]:
        done = subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "ok\n", done.stderr
        return list(tmp_path.glob(f"{PREFIX}*"))

    for folder in run("killed") if killed else []:
        grown_old(folder)
    assert run() == []
