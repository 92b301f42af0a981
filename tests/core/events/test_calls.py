"""Ends of calls: which journal format a driver must know to read them."""

import pytest

from treadle.core import events as e


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
