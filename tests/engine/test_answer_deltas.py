"""Where a delta stands in its answer: counted for each channel and each call, whether it is shown or not."""

from typing import Any

import pytest

from treadle.core.events import Delta, RawChunk
from treadle.core.model import RawDelta, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.engine.answer_deltas import AnswerDeltas

ITEMS: Any = [
    ReasoningDelta("Hmm."),
    TextDelta("Good "),
    TextDelta("bye", final=True),
    ToolCallDelta(0, "add", '{"a"'),
    ToolCallDelta(1, "add", "{"),
    RawDelta({"n": 1}),
    ToolCallDelta(0, "", ": 1}"),
    TextDelta("morning"),
    ReasoningDelta(" Well."),
]
PLACES = [("reasoning", 0), ("draft", 0), ("final", 0), ("arguments", 0), ("arguments", 0), None]
PLACES += [("arguments", 4), ("draft", 5), ("reasoning", 4)]


def made_of(deltas: AnswerDeltas, item: Any, after: int = 0) -> Any:
    """Have an item kept, and return it as watchers see it."""
    deltas.keep(item)
    return deltas.delta(item, after)


@pytest.mark.parametrize("shown_from", range(len(ITEMS)))
def test_a_delta_stands_behind_all_of_its_channel_that_was_shown_or_not(shown_from: int) -> None:
    deltas = AnswerDeltas("s1", None, 2, "draft")
    for item in ITEMS[:shown_from]:
        deltas.keep(item)
    made = [made_of(deltas, item, after=7) for item in ITEMS[shown_from:]]
    places = [(each.channel, each.at) if isinstance(each, Delta) else None for each in made]
    assert places == PLACES[shown_from:]
    assert {each.after for each in made} == {7}
    assert [each.data for each in made if isinstance(each, RawChunk)] == [{"n": 1}] * (shown_from <= 5)


@pytest.mark.parametrize("kept", range(len(ITEMS) + 1))
def test_the_answer_so_far_is_all_that_was_kept_one_delta_for_each_channel_and_call(kept: int) -> None:
    deltas = AnswerDeltas("s1", None, 2, "draft")
    texts: dict[Any, str] = {}
    for item in ITEMS[:kept]:
        made = made_of(deltas, item)
        if isinstance(made, Delta):
            place = (made.channel, made.index, made.call_id)
            texts[place] = texts.get(place, "") + made.text
    so_far = list(deltas.so_far())
    assert {(each.channel, each.index, each.call_id): each.text for each in so_far} == texts
    assert len(so_far) == len(texts)
    assert {(each.at, each.tool) for each in so_far} <= {(0, ""), (0, "add")}


def test_line_ends_and_half_characters_of_an_answer_are_kept_as_they_are() -> None:
    deltas = AnswerDeltas("s1", None, 0, "draft")
    for piece in ("a\r", "\n", "b\r\n", "\ud83d", "\N{ROCKET}"):
        deltas.keep(TextDelta(piece))
    assert [each.text for each in deltas.so_far()] == ["a\r\nb\r\n\ud83d\N{ROCKET}"]


def test_arguments_carry_the_ids_that_the_calls_will_have_in_the_journal() -> None:
    of_step = AnswerDeltas("s1", None, 2, "draft")  # the step has two calls from an earlier answer
    of_function = AnswerDeltas("s1", "s1.a", 2, "draft")
    made = [made_of(deltas, ToolCallDelta(1, "add", "{}")) for deltas in (of_step, of_function)]
    assert [(each.call, each.call_id) for each in made if isinstance(each, Delta)] == [
        (None, "s1-3"),
        ("s1.a", "s1.a-1"),
    ]


@pytest.mark.parametrize(
    ("call", "label", "final", "channel"),
    [
        (None, "draft", False, "draft"),
        (None, "draft", True, "final"),
        (None, "final", False, "final"),
        ("s1.a", "draft", True, "draft"),
    ],
)
def test_text_is_final_where_the_model_says_so_but_never_that_of_a_function(
    call: Any, label: Any, final: bool, channel: str
) -> None:
    delta = made_of(AnswerDeltas("s1", call, 0, label), TextDelta("Hello.", final=final))
    assert isinstance(delta, Delta)
    assert delta.channel == channel
