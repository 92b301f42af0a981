"""What a comparison finds in a request: arguments by path, defaults of the schema, and what is not there."""

from dataclasses import replace
from typing import Any

import pytest

from tests.policy.requests import a_call, an_effect
from treadle import EffectRequest, ToolSpec
from treadle.policy.subjects import ABSENT, LEFT_OUT, declared_effects, subject_values, taken_values


@pytest.mark.parametrize(
    ("arguments", "subject", "values"),
    [
        ({"amount": 5}, "arguments.amount", [5]),
        ({"amount": None}, "arguments.amount", [None]),
        ({}, "arguments.amount", [LEFT_OUT]),
        ({}, "arguments.note", ["none"]),
        ({}, "arguments.unheard", [ABSENT]),
        ({"unheard": 1}, "arguments.unheard", [1]),
        ({"order": {"total": 3}}, "arguments.order.total", [3]),
        ({"order": {}}, "arguments.order.total", [7]),
        ({"order": {}}, "arguments.order.day", [LEFT_OUT]),
        ({"order": {}}, "arguments.order.unheard", [ABSENT]),
        ({}, "arguments.order.total", [LEFT_OUT]),
        ({"order": "text"}, "arguments.order.total", [LEFT_OUT]),
        ({"order": None}, "arguments.order.total", [ABSENT]),
        ({"items": [{"price": 1}, {"price": 2}]}, "arguments.items.price", [1, 2]),
        ({"items": [{"price": 1}, {}]}, "arguments.items.price", [1, LEFT_OUT]),
        ({"items": []}, "arguments.items.price", []),
        ({"to": ["a", "b"]}, "arguments.to", [["a", "b"]]),
    ],
)
def test_an_argument_is_found_by_its_path(arguments: dict[str, Any], subject: str, values: list[Any]):
    assert subject_values(a_call(**arguments), subject) == values


def test_what_a_tool_makes_of_an_argument_is_found_without_defaults():
    request = replace(a_call(amount="5"), taken={"amount": 5, "order": {"total": 3}})
    assert taken_values(request, "arguments.amount") == [5]
    assert taken_values(request, "arguments.order.total") == [3]
    assert taken_values(request, "arguments.note") == []
    assert taken_values(request, "agent") == []
    assert taken_values(a_call(amount="5"), "arguments.amount") == []


def test_of_a_tool_without_a_known_schema_only_what_was_passed_is_there():
    assert subject_values(a_call(spec=None, amount=5), "arguments.amount") == [5]
    assert subject_values(a_call(spec=None), "arguments.amount") == [ABSENT]


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": "none"},
        {"properties": {"a": 5}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {
            "properties": {"a": {"anyOf": [{"$ref": "#/$defs/A"}]}},
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 2}},
        },
        {"properties": {"a": {"$ref": "#/$defs/gone"}}, "$defs": 5},
        {"properties": {"a": {"anyOf": "x", "items": 7}}},
    ],
)
def test_a_schema_from_outside_that_makes_no_sense_is_no_error(parameters: dict[str, Any]):
    spec = ToolSpec(name="odd", parameters={"type": "object", **parameters})
    assert subject_values(a_call("odd", spec=spec, a={"c": {}}), "arguments.a.b.c") == [ABSENT]


REQUEST = EffectRequest(
    kind="tool",
    name="look",
    spec=ToolSpec(name="look", read_only=True, private=True, declared=True),
    task_id="t1",
    thread_id="h1",
    agent="clerk",
    agent_path=("boss", "clerk"),
    depth=1,
    labels={"tier": "gold"},
    cost=0.5,
    tool_calls=3,
    model_calls=4,
    tokens=500,
    exposed=frozenset(("private", "open_world")),
    state={"customer": {"id": 7}},
)


@pytest.mark.parametrize(
    ("subject", "value"),
    [
        ("agent", "clerk"),
        ("agent_path", ["boss", "clerk"]),
        ("labels.tier", "gold"),
        ("labels.user", None),
        ("state.customer.id", 7),
        ("state.customer.name", None),
        ("state.nothing", None),
        ("effect", ["read_only", "private"]),
        ("exposed", ["open_world", "private"]),
        ("cost", 0.5),
        ("tokens", 500),
        ("model_calls", 4),
        ("tool_calls", 3),
        ("depth", 1),
        ("task", "t1"),
        ("thread", "h1"),
    ],
)
def test_every_other_subject_is_a_fact_of_the_task(subject: str, value: Any):
    assert subject_values(REQUEST, subject) == [value]


def test_what_is_no_tool_declares_no_effect():
    assert subject_values(an_effect("model", "openai:gpt-5"), "effect") == [ABSENT]


@pytest.mark.parametrize(
    ("spec", "effects"),
    [
        (ToolSpec(name="t"), ["undeclared"]),
        (ToolSpec(name="t", declared=True), []),
        (ToolSpec(name="t", undoable=True), ["undoable"]),
        (ToolSpec(name="t", sends=True, spends=True, declared=True), ["sends", "spends"]),
    ],
)
def test_a_tool_whose_author_said_nothing_is_undeclared(spec: ToolSpec, effects: list[str]):
    assert declared_effects(spec) == effects
