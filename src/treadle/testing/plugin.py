"""Fixtures of pytest for tests of agents. Put `from treadle.testing.plugin import *` into a `conftest.py`.

This module needs pytest; nothing else in `treadle.testing` but the conformance suites does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from treadle.testing import boundaries
from treadle.testing.boundaries import CrashReport

__all__ = ["crash_at_every_boundary"]

CrashAtEveryBoundary: TypeAlias = Callable[..., CrashReport]
"""Like `treadle.testing.boundaries.crash_at_every_boundary`, and it fails the test if a promise was broken."""


@pytest.fixture
def crash_at_every_boundary() -> CrashAtEveryBoundary:
    """Kill a task of an agent at each of its boundaries, resume and audit it; print what was hit, fail on violations.

    Takes what `treadle.testing.boundaries.crash_at_every_boundary` takes and returns its report.
    """

    def check(agent: str, input: str, **options: Any) -> CrashReport:
        report = boundaries.crash_at_every_boundary(agent, input, **options)
        print(report)  # noqa: T201  pytest shows it with a failing test, or with -rP
        assert not report.broken, "\n".join(report.broken)
        return report

    return check
