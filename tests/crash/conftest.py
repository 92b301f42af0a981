"""What the crash tests share: a warm process to fork trials from, and a maker of trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.trials import ROOT, Trials
from treadle.testing.crash.fork_server import ForkServer


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
