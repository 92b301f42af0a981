"""Events as JSON: one form for other programs, with the place of each event, its schema, and a way back."""

import json
from dataclasses import fields
from math import isfinite
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.test_codec import EVENTS, WORDS, written_out
from treadle import events as e
from treadle.core.event_json import EPHEMERAL, HEAD
from treadle.events import from_json, json_schema, to_json

ORIGIN = e.EventOrigin("t1", ("shop", "clerk"))
MADE = json_schema()
INTS = st.integers(0, 10**6)
DELTAS = st.one_of(
    st.builds(e.Delta, WORDS, st.sampled_from(["draft", "final", "reasoning", "arguments"]), WORDS, INTS),
    st.builds(e.ModelRestarted, WORDS, WORDS, INTS, st.none() | WORDS),
    st.builds(e.RawChunk, WORDS, st.dictionaries(WORDS, WORDS)),
    st.builds(e.ToolProgress, WORDS, WORDS, st.lists(WORDS)),
)


def located(event: Any, tool: str = "price") -> Any:
    event.origin = ORIGIN
    if isinstance(event, e.CallOccurrence):
        event.tool_name = tool
    return event


def over_the_wire(event: Any) -> Any:
    return from_json(json.loads(json.dumps(to_json(event), allow_nan=False)))


def fits(schema: Any, value: Any, top: Any = None) -> bool:
    """Whether a value is what a schema says, for the keywords that ours uses."""
    top = top if top is not None else schema
    known = {
        *(
            "$ref",
            "$schema",
            "$defs",
            "title",
            "description",
            "const",
            "enum",
            "oneOf",
            "anyOf",
            "type",
            "items",
        ),
        *("properties", "required", "additionalProperties", "contentEncoding"),
    }
    assert set(schema) <= known
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#").removeprefix("/$defs/")
        return fits(top["$defs"][name] if name else top, value, top)
    if "const" in schema:
        return schema["const"] == value
    if "enum" in schema:
        return value in schema["enum"]
    for word, enough in (("oneOf", 1), ("anyOf", None)):
        if word in schema:
            count = sum(fits(each, value, top) for each in schema[word])
            return count == enough if enough is not None else count > 0
    types = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "array": list,
        "object": dict,
        "null": type(None),
    }
    wanted = schema.get("type", [])
    for name in [wanted] if isinstance(wanted, str) else wanted:
        if isinstance(value, types[name]) and not (isinstance(value, bool) and name in ("integer", "number")):
            break
    else:
        return not wanted
    if isinstance(value, list) and "items" in schema:
        return all(fits(schema["items"], item, top) for item in value)
    if isinstance(value, dict) and "properties" in schema:
        parts = schema["properties"]
        return set(schema["required"]) <= set(value) and all(
            fits(parts[name], item, top) for name, item in value.items() if name in parts
        )
    return True


@settings(max_examples=80)
@given(EVENTS, WORDS)
def test_every_event_comes_back_from_its_json(event: Any, tool: str) -> None:
    assume(not isinstance(event, e.LimitReached) or (isfinite(event.allowed) and isfinite(event.used)))
    event = located(event, tool)
    event.seq, event.time = 7, 1_763_700_000_000_000
    back = over_the_wire(event)
    assert over_the_wire(back) == back
    assert (back.seq, back.time, back.task_id, back.agent_path) == (7, event.time, "t1", ("shop", "clerk"))
    if "inf" not in written_out(event):  # a number that JSON cannot hold became null, which may be a default
        assert back == event
        assert to_json(back) == to_json(event)


@given(DELTAS)
def test_every_delta_comes_back_from_its_json(delta: Any) -> None:
    back = over_the_wire(located(delta))
    assert back == delta
    assert back.task_id == "t1"
    child = located(e.ChildEvent("s1", "s1-0", "t1.s1-0", ("scout",), located(delta)))
    assert over_the_wire(child) == child
    assert over_the_wire(child).agent_path == ("shop", "clerk", "scout")


@settings(max_examples=40)
@given(EVENTS | DELTAS)
def test_every_event_fits_the_schema(event: Any) -> None:
    schema = MADE
    document = json.loads(json.dumps(to_json(located(event))))
    assert fits(schema["$defs"][type(event).__name__], document, schema)


def test_the_schema_refuses_what_is_no_event() -> None:
    schema = json_schema()
    good = to_json(located(e.ToolEnded("s1", "s1-0", "ok", 3, seq=4, time=5)))
    assert fits(schema, good)
    for name, wrong in (("outcome", "fine"), ("seq", "4"), ("kind", "tool_began"), ("agent_path", "shop")):
        assert not fits(schema, {**good, name: wrong}), name
    assert not fits(schema, {name: value for name, value in good.items() if name != "task_id"})


def test_the_head_of_an_event_says_where_it_comes_from() -> None:
    ended = located(e.ToolEnded("s1", "s1-0", "ok", 250, seq=7, time=9))
    assert to_json(ended) == {
        "format": 1,
        "kind": "tool_ended",
        "task_id": "t1",
        "agent_path": ["shop", "clerk"],
        "seq": 7,
        "time": 9,
        "description": "price ended (s1-0): ok",
        "tool": "price",
        "step": "s1",
        "call": "s1-0",
        "output": 250,
    }


def test_no_field_of_an_event_has_the_name_of_the_head() -> None:
    for kind, cls in {**e.EVENTS, **EPHEMERAL}.items():
        own = {item.name for item in fields(cls)} - {"seq", "time"}
        assert own & set(HEAD) <= (
            {"tool"} if kind == "delta" else {"task_id"} if kind == "child_event" else set()
        )


def test_an_event_of_an_unknown_kind_is_read_as_inert_data() -> None:
    read = from_json(
        {"format": 1, "kind": "moon_landed", "task_id": "t", "agent_path": [], "seq": 1, "time": 2, "x": 3}
    )
    assert isinstance(read, e.UnknownEvent)
    assert (read.tag, read.data, read.task_id) == ("moon_landed", {"x": 3}, "t")
    assert to_json(read)["x"] == 3


def test_a_field_that_this_version_does_not_know_is_left_out() -> None:
    document = {**to_json(e.StepStarted("s1", 1)), "colour": "green"}
    assert from_json(document) == e.StepStarted("s1", 1)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "an event is an object"),
        ({"format": 1}, "with a `kind`"),
        ({"format": 2, "kind": "resumed"}, "format 2.*upgrade"),
        ({"kind": "resumed"}, "format None"),
        ({"format": 1, "kind": "step_started", "step": 3, "index": 1}, "step should be text"),
        ({"format": 1, "kind": "step_started"}, "step_started event cannot be read"),
    ],
)
def test_what_is_no_event_is_refused_with_a_reason(document: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(document)


@pytest.mark.parametrize("cls", [*e.EVENTS.values(), *EPHEMERAL.values()])
def test_every_event_describes_itself_on_one_plain_line(cls: type[Any]) -> None:
    assert cls.says, "a kind of event says what happened"


@given(EVENTS | DELTAS)
def test_a_description_is_one_printable_line(event: Any) -> None:
    line = located(event, "a\nb\x1b[31m").description
    assert line == str(event)
    assert line.isprintable()
    assert 0 < len(line) <= 200
    assert len(repr(event)) < 3_000
    assert "<script" not in event._repr_html_()
