"""What tests of tools share: a context, and a way to run a call as a runner does, in a task of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from treadle.ports import ToolContext


@pytest.fixture
def ctx() -> ToolContext[Any]:
    return context()


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def watched(seen: list[Any]) -> ToolContext[Any]:
    return context(seen.append)


def context(on_progress: Callable[[Any], None] | None = None) -> ToolContext[Any]:
    return ToolContext("t1", "th1", "s1", "s1-0", "t1:s1-0", "a", 1, {"user": "u"}, on_progress=on_progress)
