"""Events of calls: which journal format a driver must know to read them, and to drive a task on over them."""

import pytest

from treadle.core import events as e

FAILED = e.Failure("subagent", "error", "writer failed", "s1-0")


@pytest.mark.parametrize(
    ("end", "format"),
    [
        (e.ToolEnded("s1", "s1-0"), 1),
        (e.ToolEnded("s1", "s1-0", changes=e.StateChange({"a": 1})), 3),
        (e.ToolEnded("s1", "s1-0", report=e.CallReport("cached")), 5),
        (e.ToolEnded("s1", "s1-0", changes=e.StateChange({"a": 1}), report=e.CallReport("cached")), 5),
    ],
)
def test_an_end_needs_the_format_of_what_it_tells(end: e.ToolEnded, format: int) -> None:
    assert end.format == format


@pytest.mark.parametrize(
    ("stopped", "format_"),
    [
        (e.ToolStopped("s1", "s1-0", "crash"), 1),
        (e.ToolStopped("s1", "s1-0", "error", FAILED), 1),
        (e.ToolStopped("s1", "s1-0", "error", FAILED, failed="t.s1-0"), 5),
    ],
)
def test_a_driver_that_would_go_on_with_a_failed_task_is_kept_away(
    stopped: e.ToolStopped, format_: int
) -> None:
    assert stopped.format == format_
    assert format_ <= e.JOURNAL_FORMAT
