"""What is decoded in C is what the reader of the codec returns, value by value and type by type."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.core.test_codec import EVENTS
from treadle.core import codec
from treadle.core import events as e
from treadle.core.labels import Label
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import SideCall, Usage
from treadle.core.stored_structs import StructDecoder

JOURNALS = Path(__file__).parents[1] / "journals"

RICH = [
    e.ModelReturned(
        "s1",
        Message(
            "assistant",
            (
                Text("plain"),
                Reasoning("r", {"signature": 1}),
                ToolCall("s1-0", "look", {"at": [1, 2.5]}),
                ToolResult("s1-0", "look", (Text("a"), Text("b", {"m": 1})), label=Label("web", "trusted")),
            ),
        ),
        usage=Usage(1, 2, tier="flex"),
        typed=e.TypedAnswer({"a": 1}),
        also=(SideCall("other", Usage(3, 4), None, 5),),
        cost=6,
    ),
    e.ToolEnded(
        "s1",
        "s1-0",
        output={"a": 1},
        observation=(Text("x", label=Label("web", "untrusted")), Image(data=b"abc"), File(url="u", name="n")),
        error=e.Failure("tool", "timeout", "late", retry_after=1.5, status=4),
        artifacts=(File(data=b"xyz", name="a"),),
        changes=e.StateChange({"a": 1}, ("b",)),
        report=e.CallReport("cache", {"a": 1}, ("key",)),
        label=Label("mail", "untrusted", "frame"),
    ),
    e.StepCompleted(
        "s1",
        next=(e.NextStep("a", {"x": 1}, ("b",), "any", 2), e.NextStep("b", join=2)),
        sources=({"a": 1},),
        artifacts=(File(path="p"),),
        next_agent=e.NextAgent("helper", "s1-0", "ask"),
    ),
]
"""Events with a value in each field that holds data classes."""

ODD = [
    *[
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e5",
        "1E+5",
        "01",
        "1.",
        "1e999",
        "1e-999",
        "5e-324",
        "3.141592653589793238",
    ],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775807", "-9223372036854775808"],
    *["253402300799999999", "253402300800000000", "-5", "1" * 4_300, "1" * 4_301, "1." + "1" * 5_000],
    *[
        "NaN",
        "Infinity",
        "-Infinity",
        "true",
        "null",
        '""',
        '"a"',
        '"stop"',
        '"é\\u00e9\\ud83d\\ude00"',
        '"\\ud800"',
    ],
    *[
        '"\x01"',
        '"\\x"',
        '"QQ=="',
        '"QR=="',
        '"QQ"',
        '"Q!Q="',
        '"Q\\nQ=="',
        "[]",
        "{}",
        "[null]",
        '["a", ["b"]]',
    ],
    *[
        '{"p": "text", "text": "x"}',
        '{"text": "x"}',
        '{"p": "smell"}',
        '{"p": "text", "text": "x", "p": "call"}',
    ],
    *['{"origin": "é!", "integrity": "trusted"}', '{"origin": "", "integrity": "trusted"}', '{"$blob": "x"}'],
    *["[" * depth + "]" * depth for depth in (150, 198, 230, 300, 900)],
]
"""JSON that readers may take in different ways."""

NAMES = ["k", "d", "i", "p", "b", "seq", "time", "label", "meta", "output", "restored", "unknown"]


def of_the_codec(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the reader of the codec makes of a record: the events, or the error."""
    with monkeypatch.context() as patch:
        patch.setattr(StructDecoder, "decode", lambda *_: None)
        return outcome(data)


def outcome(data: bytes) -> Any:
    try:
        return [written_out(event) for event in codec.decode(data, {}, 50)]
    except codec.UnreadableRecord as error:
        return str(error)


def written_out(value: Any) -> Any:
    """All that a value holds, with the type of each value."""
    if isinstance(value, Struct):
        return type(value), [written_out(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, (list, tuple)):
        return type(value), [written_out(item) for item in value]
    if isinstance(value, dict):
        return dict, [(name, written_out(item)) for name, item in value.items()]
    return type(value), repr(value)


def record(*events: e.Event) -> bytes:
    for number, event in enumerate(events, start=1):
        event.seq, event.time = number, number * 10
    return codec.encode(events)[0]


def recorded() -> Iterator[bytes]:
    """The records of the recorded journals."""
    for file in sorted(JOURNALS.rglob("*.jsonl")):
        documents: list[dict[str, Any]] = []
        for line in map(json.loads, file.read_text().split("\n")[:-1]):
            if "record" in line:
                documents.append({"v": line["v"], "t": line["t"], "e": []})
            elif "event" in line:
                documents[-1]["e"].append(line["event"])
        yield from [json.dumps(document).encode() for document in documents]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in JSON data, as its container and its key."""
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from places(item)


def test_recorded_journals_are_read_as_by_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    records = list(recorded())
    assert len(records) > 200
    for data in records:
        assert outcome(data) == of_the_codec(data, monkeypatch)


def test_a_value_in_each_field_is_decoded_in_c() -> None:
    events = StructDecoder(lambda _: False).decode(record(*RICH), codec.VERSION, 3)
    assert [written_out(event) for event in events or ()] == [written_out(event) for event in RICH]


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_every_event_is_read_as_by_the_codec(events: list[e.Event]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        data = record(*events)
        assert outcome(data) == of_the_codec(data, patch)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_no_odd_value_in_any_place_is_read_otherwise(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(*RICH)
    for number in range(len(list(places(json.loads(whole))))):
        document = json.loads(whole)
        container, key = list(places(document))[number]
        container[key] = "ODD"
        data = json.dumps(document).replace('"ODD"', odd).encode("utf-8", "surrogatepass")
        assert outcome(data) == of_the_codec(data, monkeypatch), data


@pytest.mark.parametrize("name", NAMES)
def test_no_further_or_repeated_field_is_read_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(*RICH)
    for value in ("1", '"a"', "null"):
        for at in [place for place, character in enumerate(whole) if character in b"{}"]:
            field = f'"{name}":{value}'.encode()
            opens = whole[at : at + 1] == b"{"
            data = (
                whole[: at + 1] + field + b"," + whole[at + 1 :]
                if opens
                else whole[:at] + b"," + field + whole[at:]
            )
            assert outcome(data) == of_the_codec(data, monkeypatch), data


@pytest.mark.parametrize(
    "document",
    [
        {"k": "moon_landed"},
        {"k": "step_started", "step": "s1", "index": 1, "colour": "red"},
        {"k": "step_started", "step": "s1", "index": "first"},
        {"k": "step_started", "step": "s1", "index": 1, "d": -1},
        {"k": "step_requested", "steps": [], "i": 1},
        {"k": "input_received", "parts": [{"p": "smell"}]},
    ],
)
def test_what_another_version_or_software_may_have_written_is_left_to_the_codec(document: Any) -> None:
    known = {"k": "step_started", "step": "s1", "index": 1}
    data = json.dumps({"v": 1, "t": 5, "e": [known, document]}).encode()
    decoder = StructDecoder(lambda _: False)
    assert decoder.decode(data, 1, 2) is None
    data = json.dumps({"v": 1, "t": 5, "e": [known, known]}).encode()
    assert decoder.decode(data, 1, 2) == [e.StepStarted("s1", 1), e.StepStarted("s1", 1)]
    assert decoder.decode(data, 2, 2) is None


def test_times_are_sums_of_distances_and_end_before_the_year_10000() -> None:
    documents = [{"k": "step_started", "step": "s1", "index": 1, "d": distance} for distance in (5, 0, 7)]
    data = json.dumps({"v": 1, "t": 100, "e": documents}).encode()
    events = StructDecoder(lambda _: False).decode(data, 1, 9)
    assert [(event.seq, event.time) for event in events or ()] == [(7, 105), (8, 105), (9, 112)]
    late = json.dumps({"v": 1, "t": codec.END_OF_TIME - 12, "e": documents}).encode()
    assert StructDecoder(lambda _: False).decode(late, 1, 9) is None
