"""The schema that a model gets of a function's parameters, and the conversion of its arguments."""

from __future__ import annotations

import dataclasses
import enum
import json
import warnings
from collections.abc import Iterable
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from typing_extensions import TypedDict

from treadle import RequestContext, RunContext, StepContext
from treadle.errors import ToolArgumentsInvalid, ToolDefinitionError
from treadle.ports import ToolContext
from treadle.tools import tool

if TYPE_CHECKING:
    from somewhere import Session  # type: ignore[import-not-found]


OptionalInt = Optional[int]  # noqa: UP045 - the older spelling is the case under test


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Box(BaseModel):
    size: int


class Row(TypedDict):
    id: int


def properties(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """Return the schema of one parameter."""

    def fn(it):
        return it

    fn.__annotations__["it"] = annotation
    fn.__defaults__ = None if default is ... else (default,)
    parameters = tool(fn).spec.parameters
    assert parameters["additionalProperties"] is False
    assert parameters.get("required", []) == (["it"] if default is ... else [])
    json.dumps(parameters)
    return parameters["properties"]["it"]


@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        (Any, ..., {}),
        (int, ..., {"type": "integer"}),
        (float, ..., {"type": "number"}),
        (bool, ..., {"type": "boolean"}),
        (str, "x", {"type": "string", "default": "x"}),
        ("str", ..., {"type": "string"}),
        (list[int], ..., {"type": "array", "items": {"type": "integer"}}),
        ("list[int]", ..., {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], ..., {"type": "object", "additionalProperties": {"type": "number"}}),
        (tuple[int, ...], ..., {"type": "array", "items": {"type": "integer"}}),
        (Literal["a", "b"], ..., {"type": "string", "enum": ["a", "b"]}),
        (int | str, ..., {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (OptionalInt, None, {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        (int, None, {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}),
        (date, ..., {"type": "string", "format": "date"}),
        (
            Annotated[int, Field(description="how many", ge=0)],
            ...,
            {"type": "integer", "minimum": 0, "description": "how many"},
        ),
        (int, Field(3, description="d"), {"type": "integer", "default": 3, "description": "d"}),
        (Colour, ..., {"$ref": "#/$defs/Colour"}),
        (Colour, Colour.RED, {"$ref": "#/$defs/Colour", "default": "red"}),
        (Point, ..., {"$ref": "#/$defs/Point"}),
        (Box, ..., {"$ref": "#/$defs/Box"}),
        (Row, ..., {"$ref": "#/$defs/Row"}),
        (Any, object(), {}),
    ],
)
def test_each_type_has_its_schema(annotation, default, schema) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert properties(annotation, default) == schema


def test_a_parameter_without_annotation_takes_anything() -> None:
    @tool
    def echo(it):
        return it

    assert echo.spec.parameters == {
        "type": "object",
        "properties": {"it": {}},
        "required": ["it"],
        "additionalProperties": False,
    }
    assert echo.validate({"it": [1]}) == {"it": [1]}


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    @tool
    def now() -> str:
        return "now"

    assert now.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.validate({}) == {}


def test_parameters_may_have_names_that_models_of_data_keep_for_themselves() -> None:
    @tool
    def odd(copy: int, json: int, model_config: int, _hidden: int = 1, self_: int = 2) -> None: ...

    assert odd.validate({"copy": 1, "json": 2, "model_config": 3, "_hidden": 4})["_hidden"] == 4


def test_local_types_resolve_under_postponed_annotations() -> None:
    class Local(BaseModel):
        a: int

    def inner() -> Any:
        @tool
        def use(it: Local, more: list[Local]) -> int:
            return it.a

        return use

    use = inner()
    assert use.validate({"it": {"a": 1}, "more": []})["it"] == Local(a=1)


def test_the_context_parameter_is_hidden_however_it_is_written() -> None:
    class Mine: ...

    def plain(a: int, ctx: ToolContext) -> None: ...
    def typed(ctx: ToolContext[Mine], a: int) -> None: ...
    def optional(a: int, ctx: ToolContext | None = None) -> None: ...
    def old(a: int, ctx: Optional[ToolContext[Mine]] = None) -> None: ...  # noqa: UP045
    def quoted(a: int, ctx: "ToolContext[Mine]") -> None: ...  # noqa: UP037
    def checked_only(a: int, ctx: ToolContext[Session]) -> None: ...

    for fn in (plain, typed, optional, old, quoted, checked_only):
        hidden_tool = tool(fn)
        assert list(hidden_tool.spec.parameters["properties"]) == ["a"]
        with pytest.raises(ToolArgumentsInvalid, match="ctx: unknown"):
            hidden_tool.validate({"a": 1, "ctx": None})


GOOGLE = """Search the shelves.

Looks twice.

Args:
    query: what to
        look for
    limit (int): how many

Returns:
    titles
"""
NUMPY = """Search the shelves.

Looks twice.

Parameters
----------
query : str
    what to
    look for
limit
    how many
"""
SPHINX = """Search the shelves.

Looks twice.

:param query: what to
    look for
:param int limit: how many
:returns: titles
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_docstrings_of_three_styles_describe_tool_and_parameters(text: str) -> None:
    def search(query: str, limit: int = 3) -> list[str]:
        return []

    search.__doc__ = text
    spec = tool(search).spec
    assert spec.description == "Search the shelves.\n\nLooks twice."
    described = {name: schema["description"] for name, schema in spec.parameters["properties"].items()}
    assert described == {"query": "what to look for", "limit": "how many"}


def test_a_description_in_the_annotation_wins_over_the_docstring() -> None:
    def search(query: Annotated[str, Field(description="mine")]) -> None:
        """Search.

        Args:
            query: theirs
            gone: no such parameter
        """

    assert tool(search).spec.parameters["properties"] == {"query": {"type": "string", "description": "mine"}}


@pytest.mark.parametrize("text", ["", "Just: this.", "A list:\n\n- one\n- two", "Odd\n---\n:: x ::"])
def test_any_other_docstring_is_the_description_as_it_stands(text: str) -> None:
    def fn() -> None: ...

    fn.__doc__ = text
    assert tool(fn).spec.description == text


@tool
def book(
    a: float,
    day: date = date(2026, 1, 1),
    colour: Colour | None = None,
    point: Point | None = None,
    either: int | list[int] = 0,
    flag: bool = False,
) -> None: ...


def test_arguments_of_a_model_are_converted_to_the_types_of_the_function() -> None:
    arguments = book.validate(
        {"a": 1, "day": "2026-10-16", "colour": "red", "point": {"x": "5"}, "flag": True}
    )
    assert arguments == {
        "a": 1.0,
        "day": date(2026, 10, 16),
        "colour": Colour.RED,
        "point": Point(5, 0),
        "flag": True,
        "either": 0,
    }
    assert type(arguments["a"]) is float


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "a: missing"),
        ({"a": "x"}, "a: should be a number, got 'x'"),
        ({"a": None}, "a: should be a number, got null"),
        ({"a": 1, "flag": [1]}, "flag: should be a boolean, got a list"),
        ({"a": 1, "color": 2}, "color: unknown, did you mean 'colour'?"),
        ({"a": 1, "zzz": 2}, "zzz: unknown"),
        ({"a": 1, "point": {"x": 1, "y": "u"}}, "point.y: should be an integer, got 'u'"),
        ({"a": 1, "point": {}}, "point.x: missing"),
        ({"a": 1, "either": "u"}, "either: should be an integer or should be a list, got 'u'"),
        (
            {"a": 1, "either": [1, "u"]},
            "either: should be an integer, got a list; either.1: should be an integer, got 'u'",
        ),
        ({"a": 1, "colour": "green"}, "colour: should be 'red' or 'blue', got 'green'"),
        ({"b": 1, "flag": 7}, "a: missing; flag: should be a boolean, got 7; b: unknown"),
        ([1], "arguments: should be an object, got a list"),
    ],
)
def test_each_wrong_argument_is_one_clause_of_the_error(arguments: Any, text: str) -> None:
    with pytest.raises(ToolArgumentsInvalid) as caught:
        book.validate(arguments)
    assert str(caught.value) == text


def test_the_text_about_bad_arguments_is_bounded() -> None:
    with pytest.raises(ToolArgumentsInvalid) as caught:
        book.validate({"a": "x" * 100_000, **{f"{n}{'k' * 1000}\ud800": n for n in range(1000)}})
    assert len(str(caught.value)) <= 1_000
    str(caught.value).encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@tool
def strict(n: int, words: list[str], flag: bool, which: Literal["a", "b"]) -> None: ...


@given(n=st.integers(), words=st.lists(st.text()), flag=st.booleans(), which=st.sampled_from(["a", "b"]))
def test_arguments_that_the_schema_allows_come_through_unchanged(
    n: int, words: list[str], flag: bool, which: str
) -> None:
    arguments = {"n": n, "words": words, "flag": flag, "which": which}
    assert strict.validate(arguments) == arguments


@given(words=json_values, which=json_values)
def test_arguments_that_the_schema_forbids_are_refused(words: Any, which: Any) -> None:
    is_valid = (
        isinstance(words, list) and all(isinstance(word, str) for word in words) and which in ("a", "b")
    )
    arguments = {"n": 1, "words": words, "flag": True, "which": which}
    if is_valid:
        assert strict.validate(arguments) == arguments
        return
    with pytest.raises(ToolArgumentsInvalid):
        strict.validate(arguments)


@given(arguments=json_values)
def test_no_json_value_makes_validation_fail_in_another_way(arguments: Any) -> None:
    try:
        strict.validate(arguments)
    except ToolArgumentsInvalid as error:
        text = str(error)
    else:
        text = "fits"
    assert 0 < len(text) <= 1_000


@pytest.mark.parametrize("other", [RunContext, RunContext[int], StepContext[int] | None, RequestContext])
def test_the_context_of_something_else_is_refused_with_the_one_that_tools_get(other: Any) -> None:
    def price(ctx: Any, item: str) -> None: ...

    price.__annotations__["ctx"] = other
    with pytest.raises(ToolDefinitionError, match=r"'price'.*'ctx' is a \w+Context.*ToolContext"):
        tool(price)


class Odd:
    """A type that JSON has no form for."""


def test_arguments_are_written_as_the_function_gets_them_and_left_as_they_were() -> None:
    @tool
    def act(key: UUID, items: Iterable[int], note: str = "none") -> None:
        """Act."""

    arguments: dict[str, Any] = {"key": "12345678123456781234567812345678", "items": ["1", 2]}
    assert act.as_taken(arguments) == {"key": "12345678-1234-5678-1234-567812345678", "items": [1, 2]}
    assert arguments == {"key": "12345678123456781234567812345678", "items": ["1", 2]}


def test_of_a_type_without_a_json_form_it_is_not_known_what_the_function_gets() -> None:
    made = Annotated[Any, BeforeValidator(lambda _: Odd()), WithJsonSchema({"type": "string"})]

    def act(odd: made) -> None:  # pyright: ignore[reportInvalidTypeForm]
        """Act."""

    assert tool(act).as_taken({"odd": "x"}) is None
