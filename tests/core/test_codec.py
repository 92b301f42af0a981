"""Events to bytes and back: nothing is lost, nothing is guessed, and nothing that is read is ever code."""

import json
import sys
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core import codec
from treadle.core import events as e
from treadle.core.labels import Label
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import Usage

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = st.one_of(WORDS, st.sampled_from(["$blob", "$", "$$x", "k", "d", "p", "__class__"]))
JSON = st.recursive(
    st.one_of(
        *[st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS],
        st.just("long " * 2_000),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
MEDIA = {"meta": JSON, "data": st.none() | st.binary(max_size=40), "url": st.none() | WORDS}
FILE = st.builds(File, name=st.none() | WORDS, **MEDIA)
CONTENT = st.one_of(st.builds(Text, WORDS, JSON), st.builds(Image, **MEDIA), FILE)
PARTS = st.one_of(
    CONTENT,
    st.builds(Reasoning, WORDS, JSON),
    st.builds(
        ToolCall, WORDS, WORDS, st.dictionaries(KEYS, JSON, max_size=3), problem=st.none() | WORDS, meta=JSON
    ),
    st.builds(ToolResult, WORDS, WORDS, st.lists(CONTENT, max_size=2).map(tuple), st.booleans()),
)
# Nothing equals a NaN, not even itself, so a test could not see whether it came back.
st.register_type_strategy(float, st.floats(allow_nan=False))
st.register_type_strategy(
    Message,
    st.builds(Message, st.sampled_from(["user", "tool"]), st.lists(PARTS, max_size=3).map(tuple), JSON),
)
st.register_type_strategy(
    e.NextStep,
    st.builds(
        e.NextStep,
        WORDS,
        JSON,
        st.lists(WORDS, max_size=2).map(tuple),
        st.sampled_from(["all", "any", "optional"]) | st.integers(1, 3),
    ),
)
st.register_type_strategy(e.TypedAnswer, st.builds(e.TypedAnswer, JSON, st.none() | WORDS, st.none() | WORDS))
st.register_type_strategy(float, st.floats(allow_nan=False))  # NaN equals nothing, so it cannot be compared
st.register_type_strategy(int, st.integers(1 - codec.WHOLE, codec.WHOLE - 1))
st.register_type_strategy(
    e.CallReport,
    st.builds(
        e.CallReport,
        st.none() | WORDS,
        st.dictionaries(KEYS, JSON, max_size=3),
        st.lists(WORDS, max_size=2).map(tuple),
    ),
)
st.register_type_strategy(
    e.StateChange,
    st.builds(e.StateChange, st.dictionaries(KEYS, JSON, max_size=3), st.lists(WORDS, max_size=2).map(tuple)),
)
CONTENTS = st.lists(CONTENT, max_size=3).map(tuple)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=3)


st.register_type_strategy(
    Label, st.builds(Label, WORDS.filter(bool), st.sampled_from(("trusted", "untrusted")))
)


def built(cls: type[e.Event]) -> st.SearchStrategy[e.Event]:
    """Events of a class, each field built by its type, or left at its default."""
    hints = get_type_hints(cls)
    given_: dict[str, st.SearchStrategy[Any]] = {}
    for item in fields(cls):
        if item.name in ("seq", "time"):
            continue
        hint = hints[item.name]
        text = str(hint)
        if hint is Any:
            value: st.SearchStrategy[Any] = JSON
        elif "Image" in text:
            value = CONTENTS if "None" not in text else st.none() | CONTENTS
        elif hint is str:
            value = WORDS
        elif "dict[str, typing.Any]" in text:
            value = OBJECTS if "None" not in text else st.none() | OBJECTS
        elif hint == tuple[Any, ...]:
            value = st.lists(JSON, max_size=2).map(tuple)
        elif text.startswith("dict[str"):
            value = st.dictionaries(KEYS, JSON, max_size=3)
            value = st.none() | value if "None" in text else value
        elif hint == tuple[File, ...]:
            value = st.lists(FILE, max_size=2).map(tuple)
        else:
            value = st.from_type(hint)
        given_[item.name] = value if item.default is MISSING else st.one_of(value, st.just(item.default))
    return st.builds(cls, **given_)


EVENTS = st.one_of([built(cls) for cls in e.EVENTS.values()])


def back(*events: e.Event) -> list[e.Event]:
    data, blobs = codec.encode(events)
    return codec.decode(data, blobs, events[-1].seq)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down: 0 is not False, a list not a tuple."""
    return a == b and written_out(a) == written_out(b)


def written_out(value: Any) -> str:
    """The text of all that a value holds: the `repr` of an event is bounded."""
    if isinstance(value, e.Event):
        return repr([type(value), *[getattr(value, item.name) for item in fields(value)]])
    return repr([written_out(item) for item in value]) if isinstance(value, list) else repr(value)


ODD: list[Any] = [
    *[
        None,
        True,
        0,
        1,
        -1,
        2**63 - 1,
        2**63,
        -(2**63),
        10**30,
        10**300,
        1.5,
        float("inf"),
        "",
        "allow",
        "\ud83d",
    ],
    *[
        b"",
        b"raw",
        (),
        [],
        {},
        ("a",),
        (1,),
        [None],
        {"a": 1},
        {1: "a"},
        ("a", 5),
        Text("t"),
        (Text("t"),),
        (Text(5),),
    ],  # type: ignore[arg-type]
    *[
        (ToolCall("c", "n", {}),),
        Message("user", (Text("hi"),)),
        Usage(2**63),
        Usage(1, -1),
        Label("web", "untrusted"),
        object(),
    ],
]
"""Values for fields of any type: most of them fit few."""


@given(EVENTS, st.data())
def test_every_event_that_is_written_is_read_whatever_its_fields_hold(
    event: e.Event, data: st.DataObject
) -> None:
    names = [item.name for item in fields(event) if item.name != "seq"]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        setattr(event, name, data.draw(st.sampled_from(ODD)))
    event.seq = 1
    try:
        document, blobs = codec.encode([event])
    except (codec.UnreadableRecord, TypeError, ValueError):
        return
    (stored,) = codec.decode(document, blobs, 1)
    # Not the same bytes: an odd value may be written as the default, which is left out when it is written again.
    assert codec.decode(*codec.encode([stored]), 1) == [stored]


@given(
    st.recursive(
        st.sampled_from(ODD),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", 1]), inner),
    )
)
def test_json_data_without_a_flaw_is_the_same_when_it_is_read(value: Any) -> None:
    if codec.is_writable(value):
        stored = back(e.StepCompleted("s1", seq=1, output=value))[0]
        assert as_lists(stored.output) == as_lists(value)


def as_lists(value: Any) -> Any:
    """The value with tuples as lists: JSON has but one of them."""
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    return {name: as_lists(item) for name, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    "value", [{1: "a"}, [{None: 1}], 10**4_300, {"n": 10**4_300}, [-(10**4_300)]], ids=range(5)
)
def test_data_that_readers_refuse_or_change_has_a_flaw(value: Any) -> None:
    assert codec.flaw(value) is not None


def test_a_number_as_a_key_beside_a_long_text_was_an_error_of_the_codec_itself() -> None:
    with pytest.raises((codec.UnreadableRecord, TypeError)):
        codec.encode([e.StepCompleted("s1", seq=1, output=[{1: "a"}, "long " * codec.BLOB_OVER])])


@given(st.lists(EVENTS, min_size=1, max_size=4), st.integers(1, 10**6), st.lists(st.integers(-5, 10**9)))
def test_every_event_comes_back_as_it_was(events: list[e.Event], first: int, pauses: list[int]) -> None:
    time = 1_763_700_000_000_000
    for place, event in enumerate(events):
        time += pauses[place] if place < len(pauses) else 0
        event.seq, event.time = first + place, time
    assert same(back(*events), events)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("cls", e.EVENTS.values(), ids=e.EVENTS)
@given(data=st.data())
@settings(max_examples=10)
def test_no_class_of_events_is_left_out(cls: type[e.Event], data: st.DataObject) -> None:
    event = data.draw(built(cls))
    event.seq = 1
    assert same(back(event), [event])


@pytest.mark.parametrize(
    "value", [None, 0, False, "", [], {}, 0.0, -1, 2**70, 1e308, "ü😀\x00", {"$blob": "x"}]
)
def test_a_falsy_or_odd_output_stays_what_it_is(value: Any) -> None:
    event = e.ToolEnded("s1", "s1-0", "ok", value, seq=1)
    assert same(back(event), [event])


def test_a_long_text_is_stored_apart_once_and_user_keys_stay_apart_from_ours() -> None:
    long = "ä" * 9_000
    event = e.ToolEnded("s1", "s1-0", "ok", {"$blob": long, "again": long, "$": {"$$blob": 1}}, seq=1)
    data, blobs = codec.encode([event])
    assert len(blobs) == 1
    assert len(data) < 1_000
    assert same(codec.decode(data, blobs, 1), [event])


@pytest.mark.parametrize("blobs", [{}, "changed"])
def test_a_missing_or_changed_long_text_is_reported(blobs: Any) -> None:
    data, stored = codec.encode([e.ToolEnded("s1", "s1-0", "ok", "x" * 9_000, seq=1)])
    given_ = dict.fromkeys(stored, b"other") if blobs else {}
    with pytest.raises(codec.UnreadableRecord, match="large value"):
        codec.decode(data, given_, 1)


def test_halves_of_characters_are_written_as_question_marks() -> None:
    (event,) = back(e.ToolEnded("s1", "s1-0", "ok", {"\ud800": ["a\udfffb"]}, seq=1))
    assert isinstance(event, e.ToolEnded)
    assert event.output == {"?": ["a?b"]}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [100, 195, 198, 230])
def test_every_depth_that_can_be_written_can_be_read(depth: int) -> None:
    event = e.ToolEnded("s1", "s1-0", "ok", nested(depth), seq=1)
    assert back(event) == [event]


def test_plain_text_and_defaults_take_no_bytes() -> None:
    data, _ = codec.encode([e.InputReceived((Text("go"),), seq=1, time=7)])
    assert json.loads(data) == {"v": 1, "t": 7, "e": [{"k": "input_received", "parts": ["go"]}]}


# ------------------------------------------------------------------------------------------ versions


KINDS_OF_FORMAT_1 = [
    "answer_finalized",
    "call_edited",
    "call_requested",
    "cancel_requested",
    "command_rejected",
    "driver_survived",
    "input_edited",
    "input_received",
    "instructions_set",
    "interrupt_requested",
    "limit_reached",
    "messages_imported",
    "model_failed",
    "model_requested",
    "model_returned",
    "model_started",
    "model_stopped",
    "options_changed",
    "outcome_settled",
    "outcome_unresolved",
    "pause_requested",
    "result_replaced",
    "resumed",
    "rewound",
    "step_completed",
    "step_failed",
    "step_skipped",
    "step_started",
    "steps_planned",
    "summary_requested",
    "task_created",
    "task_ended",
    "task_forked",
    "task_reopened",
    "thread_awaited",
    "thread_entered",
    "timer_fired",
    "tool_ended",
    "tool_started",
    "tool_stopped",
    "undo_requested",
    "value_kept",
    "version_changed",
    "worker_failed",
]


def record(*documents: Any, version: Any = 1) -> bytes:
    return json.dumps({"v": version, "t": 5, "e": list(documents)}).encode()


def test_an_event_of_an_unknown_kind_is_data_and_is_written_back_unchanged() -> None:
    data = record({"k": "moon_landed", "crew": ["a"], "step": "s1"})
    (event,) = codec.decode(data, {}, 1)
    assert event == e.UnknownEvent("moon_landed", {"crew": ["a"], "step": "s1"})
    assert json.loads(codec.encode([event])[0]) == json.loads(data)


def test_an_ignorable_event_of_a_later_version_is_written_back_unchanged() -> None:
    data = record({"k": "moon_landed", "crew": ["a"], "i": 1})
    (event,) = codec.decode(data, {}, 1)
    assert event == e.UnknownEvent("moon_landed", {"crew": ["a"]}, inert=True)
    assert (event.format, e.UnknownEvent("moon_landed", {}).format) == (1, e.JOURNAL_FORMAT + 1)
    assert json.loads(codec.encode([event])[0]) == json.loads(data)


def test_a_newer_kind_of_event_has_a_format_or_is_ignorable() -> None:
    later = {kind: cls for kind, cls in e.EVENTS.items() if kind not in KINDS_OF_FORMAT_1}
    assert [
        kind for kind, cls in later.items() if not (1 < cls.since <= e.JOURNAL_FORMAT or cls.ignorable)
    ] == []
    assert [kind for kind in KINDS_OF_FORMAT_1 if e.EVENTS[kind].since != 1 or e.EVENTS[kind].ignorable] == []


def test_a_part_of_an_unknown_kind_is_kept_as_data() -> None:
    (event,) = codec.decode(record({"k": "input_received", "parts": [{"p": "smell", "of": "rain"}]}), {}, 1)
    assert isinstance(event, e.InputReceived)
    assert event.parts == (Text("", meta={"unknown_part": {"of": "rain"}}),)


def test_a_newer_version_is_refused_before_anything_is_read() -> None:
    with pytest.raises(codec.UnreadableRecord, match="written in format 2, this version reads up to 1"):
        codec.decode(record({"k": "step_started"}, version=2), {}, 1)


def test_older_versions_are_brought_up_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "VERSION", 3)
    monkeypatch.setitem(codec.UPCASTERS, 1, lambda old: {"k": old["k"], "index": old["number"]})
    monkeypatch.setitem(codec.UPCASTERS, 2, lambda old: {**old, "step": f"s{old['index']}"})
    for version, document in ((1, {"number": 4}), (2, {"index": 4}), (3, {"index": 4, "step": "s4"})):
        decoded = codec.decode(record({"k": "step_started", **document}, version=version), {}, 9)
        assert decoded == [e.StepStarted("s4", 4)]
        assert decoded[0].seq == 9


# ------------------------------------------------------------------------------------------- hostility

HOSTILE = [
    *[b"", b"[]", b"null", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000],
    *[record(version=version) for version in ("x", None, 0, -1, True, 1.5)],
    *[record(document) for document in (5, None, [], {"k": []}, {"k": "step_started"}, {"k": "x", "d": "1"})],
    record({"k": "input_received", "parts": [7]}),
    record({"k": "input_received", "parts": [{"p": []}]}),
    b'{"v":1,"t":0,"e":5}',
    b'{"v":1,"e":[]}',
    b'{"v":1,"t":0,"b":1,"e":[{"k":"x","y":{"$blob":[1]}}]}',
]


def test_an_event_that_no_reader_would_know_is_not_written() -> None:
    class ForgottenInTheUnion(e.Event):
        pass

    with pytest.raises(codec.UnreadableRecord, match="ForgottenInTheUnion is no kind of event"):
        codec.encode([ForgottenInTheUnion()])


def test_what_a_newer_version_may_have_added_to_a_known_kind_is_kept_and_written_again() -> None:
    documents = [
        {"k": "step_started", "step": "s1", "index": 1, "__class__": "os.system"},
        {"k": "tool_ended", "step": "s1", "call": "c", "outcome": "partial"},
    ]
    data = record(*documents)
    events = codec.decode(data, {}, 2)
    assert [(type(event), event.data) for event in events if isinstance(event, e.UnknownEvent)] == [
        (e.UnknownEvent, {name: value for name, value in document.items() if name != "k"})
        for document in documents
    ]
    known = [event.known for event in events if isinstance(event, e.UnknownEvent)]
    assert known == [e.StepStarted("s1", 1), e.ToolEnded("s1", "c", "partial")]  # type: ignore[arg-type]
    assert [event.seq for event in known if event is not None] == [1, 2]
    again, _ = codec.encode(events)
    assert json.loads(again) == json.loads(data)


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_a_malformed_record_is_unreadable_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(codec.UnreadableRecord):
        codec.decode(data, {}, 1)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | JSON.map(record))
def test_any_bytes_are_events_or_unreadable(data: bytes) -> None:
    with suppress(codec.UnreadableRecord):
        codec.decode(data, {}, 1)


def test_names_of_code_in_a_record_import_nothing() -> None:
    before = set(sys.modules)
    bait = {
        "lc": 1,
        "type": "constructor",
        "id": ["antigravity"],
        "__reduce__": "this",
        "py/object": "this.d",
    }
    (event,) = codec.decode(record({"k": "antigravity.fly", **bait}), {}, 1)
    (ended,) = codec.decode(record({"k": "tool_ended", "step": "s1", "call": "s1-0", "output": bait}), {}, 1)
    assert event == e.UnknownEvent("antigravity.fly", bait)
    assert isinstance(ended, e.ToolEnded)
    assert ended.output == bait
    assert set(sys.modules) == before


def test_usage_is_left_out_when_there_was_none() -> None:
    document = codec.fields_of(e.ModelReturned("s1", Message("assistant", (Text("4"),)), usage=Usage()))
    assert "usage" not in document


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "around", [lambda n: n, lambda n: {"a": n}, lambda n: [n], lambda n: {"a": [{"b": n}], "c": "é"}]
)
def test_a_number_that_json_cannot_hold_is_a_flaw_wherever_it_lies(number: float, around: Any) -> None:
    assert codec.flaw(around(number)) == codec.NO_NUMBER


@pytest.mark.parametrize("value", ["NaN", ["NaN é"], {"Infinity": [1.5, -0.0]}, [1e308], 2**70])
def test_a_text_that_names_such_a_number_is_none(value: Any) -> None:
    assert codec.flaw(value) is None
