"""Whether answers fit the schemas that pydantic writes: what pydantic takes fits, and what it refuses is named."""

import time
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from treadle.core.json_schema import misfit, schema_flaw
from treadle.core.messages import Json


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Room(BaseModel):
    kind: Literal["single", "double"]
    nights: Annotated[int, Field(ge=1, le=30)]
    note: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Strict(BaseModel, extra="forbid"):
    rooms: list[Room]


class Branch(BaseModel):
    name: str
    below: "list[Branch]" = []


@dataclass
class Pair:
    left: int
    right: str


FITTING: list[tuple[Any, Json]] = [
    (str, "hello"),
    (str, ""),
    (int, 3),
    (int, -1),
    (float, 2),
    (float, 2.5),
    (bool, False),
    (type(None), None),
    (int | None, None),
    (Literal["yes", "no", 3], "no"),
    (Literal["yes", "no", 3], 3),
    (Colour, "red"),
    (list[int], [1, 2]),
    (list[int], []),
    (tuple[int, str], [1, "a"]),
    (set[str], ["a", "b"]),
    (dict[str, int], {"a": 1}),
    (date, "2026-01-31"),
    (datetime, "2026-01-31T10:00:00Z"),
    (UUID, "12345678-1234-5678-1234-567812345678"),
    (Room, {"kind": "single", "nights": 2}),
    (Room, {"kind": "double", "nights": 30, "note": "quiet"}),
    (Strict, {"rooms": [{"kind": "single", "nights": 1}]}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "name": "Rex"}),
    (Branch, {"name": "a", "below": [{"name": "b"}]}),
    (Pair, {"left": 1, "right": "r"}),
    (Annotated[str, Field(pattern="^a+$")], "aaa"),
    (Annotated[str, Field(min_length=2, max_length=3)], "ab"),
    (Any, {"anything": [1]}),
]

MISFITTING: list[tuple[Any, Json, str]] = [
    (str, 3, "the answer must be a text, got 3"),
    (int, "3 rooms", "the answer must be a whole number, got '3 rooms'"),
    (int, 2.5, "the answer must be a whole number"),
    (int, True, "the answer must be a whole number, got True"),
    (bool, 1, "the answer must be true or false"),
    (int | None, "x", "must be a whole number, got 'x' or the answer must be null"),
    (Literal["yes", "no"], "maybe", "must be one of 'yes', 'no', got 'maybe'"),
    (Literal["yes"], "no", "must be 'yes'"),
    (Colour, "green", "must be one of 'red', 'blue'"),
    (list[int], [1, "b"], "1 must be a whole number, got 'b'"),
    (tuple[int, str], [1], "must have at least 2 items"),
    (set[str], ["a", "a"], "must not hold an item twice"),
    (dict[str, int], {"a": "b"}, "a must be a whole number"),
    (date, "tomorrow", "must be a date, got 'tomorrow'"),
    (UUID, "7", "must be a uuid"),
    (Room, {"kind": "single"}, "nights is missing"),
    (Room, {"kind": "single", "nights": 0}, "nights must be at least 1, got 0"),
    (Room, {"kind": "single", "nights": 31}, "nights must be at most 30"),
    (Room, [], "the answer must be an object"),
    (Strict, {"rooms": [], "more": 1}, "more is unknown; known are: rooms"),
    (Strict, {"rooms": [{"kind": "triple", "nights": 1}]}, "rooms.0.kind must be one of"),
    (Cat | Dog, {"kind": "cow"}, "lives is missing or name is missing"),
    (Cat | int, {"kind": "cat"}, "lives is missing"),
    (Branch, {"name": "a", "below": [{"name": 3}]}, "below.0.name must be a text"),
    (Annotated[str, Field(pattern="^a+$")], "b", "must match ^a+$"),
    (Annotated[str, Field(max_length=3)], "abcd", "must have at most 3 characters"),
    (Annotated[float, Field(gt=0, lt=1)], 0, "must be above 0"),
    (Annotated[float, Field(multiple_of=0.5)], 0.7, "must be a multiple of 0.5"),
]


def schema_of(annotation: Any) -> Any:
    return TypeAdapter(annotation).json_schema()


@pytest.mark.parametrize(("annotation", "value"), FITTING)
def test_what_pydantic_takes_fits(annotation: Any, value: Json) -> None:
    TypeAdapter(annotation).validate_python(value, strict=False)
    assert misfit(value, schema_of(annotation)) is None


@pytest.mark.parametrize(("annotation", "value", "why"), MISFITTING)
def test_what_does_not_fit_is_named_with_its_place(annotation: Any, value: Json, why: str) -> None:
    clause = misfit(value, schema_of(annotation))
    assert clause is not None
    assert why in clause


def test_any_value_fits_a_schema_that_says_nothing() -> None:
    assert misfit({"a": [1]}, {}) is None
    assert misfit(None, True) is None
    assert misfit(None, {"unheard": "of"}) is None
    assert misfit(1, False) == "the answer is not allowed, got 1"


def test_a_schema_that_refers_to_itself_without_end_says_nothing() -> None:
    assert misfit(1, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}) is None


def test_a_reference_that_names_nothing_and_a_pattern_that_cannot_be_read_check_nothing() -> None:
    assert misfit(1, {"$ref": "#/$defs/gone"}) is None
    assert misfit("a", {"type": "string", "pattern": "("}) is None


@pytest.mark.parametrize("value", [5, None, ["a", "a"], {"a": "a"}])
def test_a_rule_for_values_of_another_type_says_nothing(value: Any) -> None:
    assert misfit(value, {"pattern": "^b$", "format": "uuid"}) is None
    assert misfit("aa", {"uniqueItems": True}) is None
    assert misfit(5, {"uniqueItems": True}) is None


def halved(levels: int) -> dict[str, Any]:
    """A schema of two ways at each level, all of which a misfit has to try."""
    below = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**below, f"a{levels}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("a" * 40 + "!", {"type": "string", "pattern": "^(a+)+$"}),
        ("a" * 9_999 + "!", {"type": "string", "pattern": "(a|b|ab)*c" * 50}),
        ("a" * 1_000_000, {"type": "string", "pattern": "(x+x+)+y"}),
        ("a", {"pattern": "a" * 100_000}),
        (1, halved(60)),
        ([[number] for number in range(100_000)], {"uniqueItems": True}),
        (list(range(5_000)), {"items": {"enum": list(range(-5_000, 0))}}),
        ({"a": ["x" * 100] * 100_000}, {"anyOf": [{"type": "string"}] * 1_000}),
        (1, {"$ref": "#/" + "a/" * 100_000, "allOf": [{"$ref": "#/" + "a/" * 1_000}] * 1_000}),
        (10**400, {"multipleOf": 2}),
    ],
)
def test_a_schema_of_a_stranger_held_up_a_process(value: Any, schema: Any) -> None:
    began = time.process_time()
    misfit(value, schema)
    assert time.process_time() - began < 2


def test_patterns_of_strangers_are_not_tried() -> None:
    assert misfit("b", {"pattern": "^a$"}, patterns=False) is None
    assert misfit({"x": 1}, {"properties": {"x": {"type": "string"}}}, patterns=False) is not None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": 5}, "properties must be an object of schemas, got 5"),
        ({"properties": {"x": {"required": 5}}}, "properties.x.required must be a list of texts"),
        ({"anyOf": [{"minimum": "a"}]}, "anyOf.0.minimum must be a number, got 'a'"),
        ({"items": {"type": {"a": 1}}}, "items.type must be of null, boolean"),
        ({"items": {"type": "text"}}, "items.type must be of null, boolean"),
        ({"prefixItems": 5}, "prefixItems must be a list of schemas"),
        ({"enum": 5}, "enum must be a list"),
        ({"$ref": 5}, "$ref must be a text"),
        ({"maxLength": -1}, "maxLength must be a whole number of 0 or more"),
        ({"additionalProperties": 5}, "additionalProperties must be a schema"),
        ({"type": ["string", "null"], "pattern": "(", "x-own": 3, "items": True}, None),
    ],
)
def test_what_is_malformed_in_a_schema_is_named_with_its_place(schema: Any, why: str | None) -> None:
    flaw = schema_flaw(schema)
    assert flaw is None if why is None else flaw is not None and why in flaw


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([1, True], True),
        ([1, 1.0], False),
        ([{"a": [1]}, {"a": [1]}], False),
        ([{"a": 1}, ["a", 1], "a"], True),
        ([[], {}, None, False, 0, ""], True),
    ],
)
def test_items_are_told_apart_as_json_tells_them(items: Any, fits: bool) -> None:
    assert (misfit(items, {"uniqueItems": True}) is None) is fits
