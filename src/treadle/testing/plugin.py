"""Pytest fixtures for tests of agents. Put `from treadle.testing.plugin import *` into a `conftest.py`.

Only this module and the conformance suites of `treadle.testing` need pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from treadle.testing import boundaries
from treadle.testing.boundaries import CrashReport

__all__ = ["crash_at_every_boundary"]

CrashAtEveryBoundary: TypeAlias = Callable[..., CrashReport]
"""`treadle.testing.boundaries.crash_at_every_boundary`, which also fails the test after a broken promise."""


@pytest.fixture
def crash_at_every_boundary() -> CrashAtEveryBoundary:
    """Kill a task of an agent at each boundary, resume and audit it; print the hits, and fail on violations.

    The arguments and the report are those of `treadle.testing.boundaries.crash_at_every_boundary`.
    """

    def check(agent: str, input: str, **options: Any) -> CrashReport:
        report = boundaries.crash_at_every_boundary(agent, input, **options)
        print(report)  # noqa: T201  pytest shows it with a failing test, or with -rP
        assert not report.broken, "\n".join(report.broken)
        return report

    return check
