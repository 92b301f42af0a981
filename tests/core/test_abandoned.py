"""The registry of abandoned calls."""

from __future__ import annotations

import pytest

from treadle.core.abandoned import MAX_ABANDONED, AbandonedCall, AbandonedCalls
from treadle.errors import ToolError


def abandoned(name: str, number: int = 0) -> AbandonedCall:
    return AbandonedCall(name, f"t{number}", "s1-0", 1.5)


def test_a_call_is_listed_until_it_is_removed() -> None:
    calls = AbandonedCalls()
    calls.add("a", abandoned("deaf"), lambda: True)
    assert calls.running() == (abandoned("deaf"),)
    assert (calls.remove("a"), calls.remove("a"), calls.running()) == (abandoned("deaf"), None, ())


def test_a_call_that_runs_no_more_is_dropped() -> None:
    calls, runs = AbandonedCalls(), [True]
    calls.add("a", abandoned("deaf"), lambda: runs[0])
    assert len(calls.running()) == 1
    runs[0] = False
    assert (calls.running(), calls.remove("a")) == ((), None)


def test_too_many_calls_refuse_the_next_and_the_message_names_them() -> None:
    calls, runs = AbandonedCalls(" in threads"), [True]
    for number in range(MAX_ABANDONED):
        calls.refuse_if_too_many()
        calls.add(number, abandoned("deaf" if number else "mule", number), lambda: runs[0])
    with pytest.raises(
        ToolError, match=r"^16 calls that .* still run in threads \(deaf, mule\), so no further call"
    ):
        calls.refuse_if_too_many()
    runs[0] = False
    calls.refuse_if_too_many()


def test_the_tool_of_a_call_is_its_name() -> None:
    assert abandoned("deaf").tool == "deaf"
