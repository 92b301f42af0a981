"""Keys inside answers are hidden in deltas, however these are cut, and in the answer; other text is unchanged."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.hiding import HiddenDeltas, Pieces, hidden_answer, hidden_stream
from treadle.core.messages import Message, Reasoning, Text, ToolCall
from treadle.core.model import ModelAnswer, RawDelta, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.core.model_answer import WITHHELD
from treadle.core.redaction import SECRET, Secrets

KEY = "sk-proj-AbC123dEf456GhI789jKl012MnO345"
SECRETS = Secrets([KEY, "tr0ub4dor"])
WRITTEN = (KEY, f"{KEY[:9]}\r\n{KEY[9:]}", base64.b64encode(b"x" + KEY.encode()).decode(), KEY.encode().hex())


def hidden_deltas(deltas):
    hiding = HiddenDeltas(SECRETS)
    return [shown for delta in deltas for shown in hiding.take(delta)] + list(hiding.rest())


def cut(text, sizes):
    pieces = []
    for size in sizes:
        pieces, text = [*pieces, text[:size]], text[size:]
    return [piece for piece in (*pieces, text) if piece]


sizes = st.lists(st.integers(1, 12), max_size=60)


@given(st.text(max_size=20), st.sampled_from(WRITTEN), st.text(max_size=20), sizes)
def test_a_key_is_in_no_delta_however_the_text_is_cut(before, written, after, sizes):
    shown = "".join(
        delta.text for delta in hidden_deltas(map(TextDelta, cut(f"{before} {written} {after}", sizes)))
    )
    assert SECRET in shown
    assert SECRETS.hide(shown) == shown


@given(st.text(max_size=80) | st.sampled_from(["sk-proj-Ab and sk-proj", "sk-pro", "A3NrLXByb2ot."]), sizes)
def test_text_without_a_key_is_streamed_whole_and_in_order(text, sizes):
    assert "".join(delta.text for delta in hidden_deltas(map(TextDelta, cut(text, sizes)))) == text


@given(sizes)
def test_keys_are_hidden_in_arguments_and_reasoning_too(sizes):
    written = f'{{"a": "{KEY}"}}'
    deltas = [ReasoningDelta(piece) for piece in cut(f"The key {KEY}?", sizes)]
    deltas += [ToolCallDelta(0, "add"), *(ToolCallDelta(0, "", piece) for piece in cut(written, sizes))]
    deltas += [ToolCallDelta(1, "sub", '{"a": 1}'), TextDelta("Done.")]
    shown = hidden_deltas(deltas)
    first = [delta for delta in shown if isinstance(delta, ToolCallDelta) and delta.index == 0]
    assert [delta.name for delta in first if delta.name] == ["add"]
    for text in (
        "".join(delta.arguments for delta in first),
        "".join(d.text for d in shown if isinstance(d, ReasoningDelta)),
    ):
        assert SECRET in text
        assert SECRETS.hide(text) == text
    assert shown[-2:] == deltas[-2:]


def test_text_that_is_held_back_is_sent_before_the_next_part():
    deltas = [TextDelta("It is sk-proj-AbC"), ReasoningDelta("Hm."), TextDelta(" or not.")]
    assert [type(delta) for delta in hidden_deltas(deltas)] == [
        TextDelta,
        TextDelta,
        ReasoningDelta,
        TextDelta,
    ]
    assert "".join(delta.text for delta in hidden_deltas(deltas)) == "It is sk-proj-AbCHm. or not."


def test_keys_are_hidden_in_raw_chunks():
    assert list(HiddenDeltas(SECRETS).take(None, [{"id": KEY, "n": 1}])) == [RawDelta({"id": SECRET, "n": 1})]


def test_an_answer_is_stored_without_keys_in_any_of_its_parts():
    signed = {"signature": "c2ln", "id": "m1"}
    parts = (
        Text(f"Your key is {KEY}."),
        Reasoning(f"It is {KEY}", signed),
        ToolCall(
            "c1", "add", {"a": [KEY, 1], KEY: None}, meta={"provider_details": {"s": 1}, "call_id": "x"}
        ),
        ToolCall("c2", "add", {}, raw=f'{{"a": "{KEY}', problem="unparsable"),
        Reasoning("Plain.", signed),
    )
    answer = ModelAnswer(
        Message("assistant", parts, meta={"provider_name": "p", "x": KEY}), model=f"openai:{KEY}"
    )
    hidden = hidden_answer(answer, SECRETS)
    assert KEY not in repr(hidden)
    text, thought, call, broken, plain = hidden.message.parts
    assert text.text == f"Your key is {SECRET}."
    assert (thought.meta, plain) == ({"id": "m1"}, parts[4])  # a signature is under what was written
    assert (call.arguments, call.meta) == ({"a": [SECRET, 1], SECRET: None}, {"call_id": "x"})
    assert (call.problem, broken.problem) == (WITHHELD, "unparsable")


@pytest.mark.parametrize("secrets", [Secrets(), SECRETS])
def test_an_answer_without_keys_is_unchanged(secrets):
    parts = (
        Text("Hello.", {"id": "1"}),
        ToolCall("c1", "add", {"a": [1, {"b": None}]}, meta={"call_id": "x"}),
    )
    answer = ModelAnswer(Message("assistant", parts, meta={"provider_name": "p"}))
    assert hidden_answer(answer, secrets) == answer


@given(st.sampled_from([KEY, KEY.encode().hex()]), sizes)
def test_pieces_that_are_sent_at_once_never_hold_more_than_the_first_letters_of_a_key(written, sizes):
    pieces = Pieces()
    shown = "".join(pieces.hide(SECRETS, piece) for piece in cut(f"a {written} b {written} c", sizes))
    assert SECRETS.hide(shown) == shown
    assert not any(written[at : at + 12] in shown for at in range(len(written) - 12))
    assert shown.startswith("a ")
    assert shown.endswith(" c")


@given(st.text(max_size=60), sizes)
def test_pieces_without_a_key_are_sent_as_they_are(text, sizes):
    pieces = Pieces()
    assert "".join(pieces.hide(SECRETS, piece) for piece in cut(text, sizes)) == text


def test_a_piece_that_is_no_text_is_searched_as_data():
    assert Pieces().hide(SECRETS, {"key": [KEY], "done": 3}) == {"key": [SECRET], "done": 3}


async def streamed(*items):
    for item in items:
        yield item


@pytest.mark.anyio
async def test_a_stream_is_told_without_the_key_and_closed_with_it():
    answer = ModelAnswer(Message("assistant", (Text("x"),)))
    inner = streamed(TextDelta(KEY[:12]), RawDelta({"k": KEY}), TextDelta(KEY[12:]), answer)
    shown = [item async for item in hidden_stream(inner, SECRETS)]
    assert shown[-1] is answer
    assert KEY not in "".join(getattr(item, "text", "") for item in shown)
    assert KEY not in repr(shown)
    begun = hidden_stream(inner := streamed(TextDelta("a"), TextDelta("b")), SECRETS)
    await anext(begun)
    await begun.aclose()
    assert [item async for item in inner] == []
