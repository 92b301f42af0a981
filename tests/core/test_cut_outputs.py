"""Pages of outputs that were cut, and whose output a call can read."""

from __future__ import annotations

import pytest

from treadle.core.cut_outputs import find_output, is_offered, page, unknown_output_text, whole_text
from treadle.core.events import Failure
from treadle.core.messages import Text
from treadle.core.state import start
from treadle.core.steps import CallState, StepState

BOOK = "".join([f"line {number}\n" for number in range(2_000)])


def ended(call_id: str, **fields: object) -> CallState:
    call = CallState(call_id, "s1", "look", {}, status="ended", outcome="ok")
    for name, value in fields.items():
        setattr(call, name, value)
    return call


def test_a_call_is_found_by_the_id_that_the_model_knows_also_when_it_was_repeated():
    state = start("t")
    state.step = StepState("s1", 1, 1)
    state.step.calls = [ended("s1-0r2", output="a"), CallState("s1-1", "s1", "look", {})]
    assert find_output(state, "s1-0") is state.step.calls[0]
    assert find_output(state, "s1-1") is None, "it has not ended"
    assert not is_offered(state)
    state.cut["s1-0"] = state.step.calls[0]
    assert is_offered(state)
    assert unknown_output_text(state, "s1-9") == (
        "There is no output of a call 's1-9' in this task. Did you mean 's1-0'? Cut were those of: s1-0."
    )


def test_the_whole_text_is_what_the_model_was_to_see():
    shown = (Text("he"), Text("ad"))
    assert whole_text(ended("a", output={"n": 1})) == '{"n":1}'
    assert whole_text(ended("a", output="long", observation=shown, cut=True)) == "long"
    assert (
        whole_text(ended("a", output="raw", observation=shown, cut=True, whole="head and tail"))
        == "head and tail"
    )
    assert whole_text(ended("a", output="raw", observation=shown)) == "head"
    assert whole_text(ended("a", error=Failure("tool", "error", "no room"))) == "no room"


@pytest.mark.parametrize("most", [1, 50, 199, 200, 1_000, 20_000])
@pytest.mark.parametrize("limit", [None, 1, 150, 5_000])
def test_a_page_is_never_longer_than_an_observation_may_be_and_pages_leave_nothing_out(
    most: int, limit: int | None
) -> None:
    text, offset = BOOK[:3_000], 0
    while offset < len(text):
        shown = page(text, offset, limit, most)
        assert len(shown) <= most
        part = shown.partition("\n[... ")[0]
        assert part
        assert text.startswith(part, offset)
        offset += len(part)
        assert most < 200 or offset == len(text) or f"offset={offset} ...]" in shown
