"""What the crash tests share: a warm process to fork trials from, and a maker of trials."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.crash.trials import ROOT, Trials
from tests.forked import Forked
from treadle.testing.crash import fork_server
from treadle.testing.crash.fork_server import ForkServer


@pytest.fixture(scope="package", autouse=True)
def forked_servers() -> Iterator[None]:
    """Fork the warm processes themselves, too: each would import all of Treadle anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "subprocess", SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE))
        yield


@pytest.fixture(scope="package")
def server() -> Iterator[ForkServer]:
    server = ForkServer(
        "tests.crash.golden", "treadle.cli.main", "treadle.testing.crash.child:warm_up", cwd=ROOT
    )
    yield server
    server.close()


@pytest.fixture
def trials(request: pytest.FixtureRequest, tmp_path: Path, server: ForkServer) -> Trials:
    """Trials of the variant that the test is parametrized with, else of the plain one."""
    return Trials(tmp_path, getattr(request, "param", "inline"), server)
