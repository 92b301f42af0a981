"""Which tests enter which functions, and what each test costs: recorded once by a run of all of them."""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import sources

SITE = Path(__file__).parent / "site"
LEFT_OUT = ("bench", "chaos", "crash", "deploy", "docs", "typing", "mutants")
"""Folders of tests that count calls, run for long, or prove nothing about a mutant."""


def options(seed: int) -> list[str]:
    """Return the arguments of pytest that all runs share: the same tests are chosen, and examples of properties."""
    ignored = [f"--ignore=tests/{folder}" for folder in LEFT_OUT]
    ignored += ["--ignore=tests/test_project.py", "--ignore=tests/environments.py"]
    return ["-q", "-n", "0", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", *ignored]


def cpu() -> float:
    """Return the seconds of processor time of this process and of its ended children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


class Recording:
    """A plugin of pytest that writes a line for each test: what it entered, what it took, and whether it passed."""

    def __init__(self, entered: mmap.mmap, out: Any) -> None:
        self._entered, self._out = entered, out
        self._failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._entered[:] = bytes(sources.SIZE)
        self._failed = False
        used, began = cpu(), time.monotonic()
        result = yield
        whole, at, places = self._entered[:], -1, []
        while (at := whole.find(1, at + 1)) >= 0:
            places.append(at)
        record = {
            "test": item.nodeid,
            "cpu": round(cpu() - used, 4),
            "wall": round(time.monotonic() - began, 4),
            "passed": not self._failed,
            "entered": places,
        }
        print(json.dumps(record), file=self._out, flush=True)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._failed = True


def environment(variable: str, value: str) -> None:
    """Let the processes that tests start do as this one does."""
    os.environ[variable] = value
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), *(path for path in before if path)])


def record(path: Path, seed: int, tests: Sequence[str]) -> None:
    """Run the tests and write what each of them entered; this process is of no use for anything else afterwards."""
    map_of_bytes = path.with_suffix(".entered")
    map_of_bytes.write_bytes(bytes(sources.SIZE))
    environment(sources.MAP, str(map_of_bytes.absolute()))
    assert not any(name.startswith(sources.ROOMS) for name in sys.modules)
    sources.install()
    entered = sources.Loader.entered
    assert entered is not None
    with path.open("w") as out:
        pytest.main([*options(seed), *tests], plugins=[Recording(entered, out)])
