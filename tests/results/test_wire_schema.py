"""The schema of the public JSON form: all that is written fits it, and what is no event does not."""

import json
from typing import Any

from hypothesis import given, settings

from tests.core.test_codec import EVENTS
from tests.results.test_wire import DELTAS, RESULTS, located
from treadle import events as e
from treadle.core.messages import Image, Message, Text, ToolCall
from treadle.events import json_schema, to_json
from treadle.results.run_result import RunResult
from treadle.results.step_outputs import StepOutputs
from treadle.results.threads import ThreadMessages
from treadle.results.wire import plain_wire
from treadle.results.wire_schema import WireSchema

MADE = json_schema()


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
        *("properties", "required", "additionalProperties", "contentEncoding", "format"),
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


def test_every_result_has_a_schema_that_what_is_written_fits() -> None:
    schema = WireSchema()
    for cls in (*RESULTS, StepOutputs, ThreadMessages):
        assert schema.of(cls)
    message = Message("assistant", (Text("a"), Image(data=b"x"), ToolCall("s1-0", "f", {"x": 1})))
    whole = {**schema.of(ThreadMessages), "$defs": schema.definitions}
    assert fits(whole, plain_wire(ThreadMessages([message])), whole)
    assert not fits(whole, {"items": [{"role": "user", "parts": [{"type": "smell"}]}]}, whole)
    assert not fits({**schema.of(RunResult), "$defs": schema.definitions}, {"task_id": "t1"})


def test_references_lead_where_the_document_holds_the_definitions() -> None:
    schema = WireSchema("#/components/schemas/")
    assert schema.of(Message) == {"$ref": "#/components/schemas/Message"}
    assert schema.definitions["Message"]["properties"]["parts"]["items"]["anyOf"][0] == {
        "$ref": "#/components/schemas/Text"
    }
