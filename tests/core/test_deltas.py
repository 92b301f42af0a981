"""Deltas that are repeated, joined, or come late give the text that was written, once."""

from hypothesis import given
from hypothesis import strategies as st

from treadle.core.deltas import DeltaPlaces, DeltasSoFar, ended_by, for_watchers
from treadle.core.events import (
    AnswerHeld,
    ApprovalGiven,
    Delta,
    EventOrigin,
    GuardrailJudged,
    ModelReturned,
    ModelStarted,
    StepStarted,
    TypedAnswer,
)
from treadle.core.messages import Message, Text

PIECES = st.lists(st.tuples(st.text("ab\r\n", max_size=4), st.text("ok", max_size=2)), max_size=8)


def written(pieces: list[tuple[str, str]]) -> list[Delta]:
    """Return the deltas of arguments that were written in pieces of text and of the tool's name."""
    deltas: list[Delta] = []
    at = tool_at = 0
    for text, name in pieces:
        deltas.append(Delta("s1", "arguments", text, tool=name, at=at, tool_at=tool_at))
        at, tool_at = at + len(text), tool_at + len(name)
    return deltas


@given(PIECES, st.data())
def test_a_reader_that_is_told_again_from_any_place_reads_each_character_once(
    pieces: list[tuple[str, str]], data: st.DataObject
) -> None:
    deltas, places = written(pieces), DeltaPlaces()
    told = [new for delta in deltas if (new := places.new_part(delta)) is not None]
    again = data.draw(st.integers(0, len(deltas)))
    assert [places.new_part(delta) for delta in deltas[again:] if delta.text or delta.tool] == [
        None for delta in deltas[again:] if delta.text or delta.tool
    ]
    assert ("".join(d.text for d in told), "".join(d.tool for d in told)) == (
        "".join(text for text, _ in pieces),
        "".join(name for _, name in pieces),
    )


@given(PIECES, PIECES)
def test_the_answer_so_far_completes_what_a_reader_has_read(
    pieces: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    places, so_far = DeltaPlaces(), DeltasSoFar()
    deltas = written([*pieces, *more])
    told = [new for delta in deltas[: len(pieces)] if (new := places.new_part(delta)) is not None]
    for delta in deltas:
        so_far.add(delta)
    told += [new for delta in so_far.deltas() if (new := places.new_part(delta)) is not None]
    assert "".join(d.text for d in told) == "".join(d.text for d in deltas)
    assert "".join(d.tool for d in told) == "".join(d.tool for d in deltas)


def test_a_delta_behind_text_that_was_not_read_is_a_gap() -> None:
    places, so_far = DeltaPlaces(), DeltasSoFar()
    assert places.is_gap(Delta("s1", "draft", "b", at=1))
    assert places.is_gap(Delta("s1", "arguments", "", tool="k", tool_at=1))
    assert not places.is_gap(Delta("s1", "draft", "a"))
    so_far.add(Delta("s1", "draft", "b", at=1))
    assert list(so_far.deltas()) == []


def test_an_answer_is_forgotten_for_itself_and_with_its_step() -> None:
    so_far = DeltasSoFar()
    for step, call in (("s1", "s1.a"), ("s1", "s1.b"), ("s2", None)):
        so_far.add(Delta(step, "draft", "x", call=call))
    so_far.forget(("s1", "s1.a"))
    assert [delta.call for delta in so_far.deltas()] == ["s1.b", None]
    so_far.forget_step("s1")
    assert [delta.step for delta in so_far.deltas()] == ["s2"]
    so_far.clear()
    assert list(so_far.deltas()) == []


def test_an_answer_ends_with_the_events_of_its_own_request() -> None:
    returned = ModelReturned("s1", Message("assistant", ()), "stop", call="s1.a")
    assert ended_by(returned) == ("s1", "s1.a")
    assert ended_by(ModelStarted("s1", "m")) == ("s1", None)
    assert ended_by(StepStarted("s1", 1)) is None


# ---- watchers get the events of answers that have not passed without their texts; the events themselves stay whole


HELD = AnswerHeld("s1", Message("assistant", (Text("secret"),)), typed=TypedAnswer("secret"), seq=4, time=9)


def test_what_holds_no_answer_is_handed_out_as_it_is() -> None:
    events = [StepStarted("s1", 1), GuardrailJudged("", "in1", "input", "ask", content={"text": "said"})]
    assert for_watchers(events)[1] is events[1]
    only = [StepStarted("s1", 1)]
    assert for_watchers(only) is only


def test_texts_of_answers_are_withheld() -> None:
    rewrite = GuardrailJudged(
        "s1", "s1-said1", "output", "rewrite", "r", "", {"text": "secret"}, {"text": "secret"}
    )
    given = ApprovalGiven("s1", "s1-said1", 1, "once", {"text": "secret"}, {"text": "secret"})
    shown = for_watchers([HELD, rewrite, given])
    assert "secret" not in repr(shown)
    assert (shown[0].seq, shown[0].time, shown[0].message.role) == (4, 9, "assistant")
    assert "secret" in repr([HELD, rewrite, given])


def test_what_an_approver_wrote_in_the_place_of_arguments_is_shown() -> None:
    given = ApprovalGiven("s1", "s1-0", 1, "once", {"n": 1}, {"n": 2})
    given.tool_name, given.origin = "put", EventOrigin("t", ("a",))
    assert for_watchers([given, HELD])[0] is given
