"""What watchers are told while it happens."""

import pytest

from treadle.core import events as e


@pytest.mark.parametrize(
    ("channel", "is_text"), [("draft", True), ("final", True), ("reasoning", False), ("arguments", False)]
)
def test_a_delta_is_text_for_people_if_it_is_a_draft_or_the_answer(channel: e.Channel, is_text: bool) -> None:
    assert e.Delta("s1", channel, "hello").is_text is is_text


def test_an_event_of_a_child_has_the_path_from_the_root_on() -> None:
    told = e.ChildEvent("s1", "s1-0", "t1.1", ("clerk", "typist"), e.Resumed())
    assert told.agent_path == ("clerk", "typist")
    told.origin = e.EventOrigin("t1", ("desk",))
    assert told.agent_path == ("desk", "clerk", "typist")
