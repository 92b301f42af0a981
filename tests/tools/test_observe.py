"""The return value of a tool becomes plain JSON data and content parts, or an error of that call."""

import dataclasses
import enum
import json
import math
from collections import OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from treadle.core.messages import File, Image, Text
from treadle.errors import ToolError
from treadle.ports import ToolOutput
from treadle.tools import observe, to_output


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    __slots__ = ()


class Half(float):
    pass


class Key(enum.Enum):
    A = "a"


@dataclasses.dataclass
class Point:
    x: int
    tags: tuple[str, ...] = ()


class Box(BaseModel):
    size: Decimal
    at: datetime


Pair = namedtuple("Pair", "left right")


class Array:
    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (10**400, 10**400),
        ("naïve 🪡", "naïve 🪡"),
        ((1, (2, 3)), [1, [2, 3]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({None, 1}), [1, None]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        ({1: "a", 2.5: "b", None: "c", False: "d"}, {"1": "a", "2.5": "b", "null": "c", "false": "d"}),
        ({Key.A: 1, UUID(int=0): 2}, {"a": 1, "00000000-0000-0000-0000-000000000000": 2}),
        (Level.LOW, 1),
        (Name("n"), "n"),
        (Half(0.5), 0.5),
        (Key.A, "a"),
        (Point(1, ("t",)), {"x": 1, "tags": ["t"]}),
        (Pair(1, 2), {"left": 1, "right": 2}),
        (
            Box(size=Decimal("1.50"), at=datetime(2026, 1, 2, tzinfo=UTC)),
            {"size": "1.50", "at": "2026-01-02T00:00:00Z"},
        ),
        ([date(2026, 1, 2), time(3, 4), timedelta(minutes=2)], ["2026-01-02", "03:04:00", 120.0]),
        ([Decimal("0.10"), Fraction(1, 3), PurePosixPath("/a")], ["0.10", "1/3", "/a"]),
        ([b"text", bytearray(b"too"), b"\xff\x00"], ["text", "too", {"base64": "/wA="}]),
        (Array(), [1, 2]),
        (
            {"picture": Image(data=b"12", media_type="image/png")},
            {"picture": {"type": "image", "media_type": "image/png", "bytes": 2}},
        ),
    ],
)
def test_each_kind_of_value_has_its_json(value: Any, plain: Any) -> None:
    output = to_output(value)
    assert output == ToolOutput(plain)
    assert json.loads(json.dumps(output.output, allow_nan=False)) == plain


def test_subclasses_become_the_plain_type() -> None:
    output = to_output([Level.LOW, Name("n"), Half(0.5), OrderedDict(a=1)]).output
    assert [type(item) for item in output] == [int, str, float, dict]


def itself() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


def itself_in_a_model() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = {"b": value}
    return value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def unfolding() -> list[Any]:
    value: list[Any] = [1]
    for _ in range(60):
        value = [value, value]
    return value


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


class Trap:
    @property
    def tolist(self) -> Any:
        raise ValueError("a trap")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "nan is not a JSON number"),
        ({"a": [1, {"b": math.inf}]}, "inf is not a JSON number at .a[1].b"),
        ("\ud800", "lone surrogate at character 0"),
        ({"\udc00": 1}, "lone surrogate"),
        ([Path("\ud800")], "lone surrogate"),
        (itself(), "contains itself"),
        (itself_in_a_model(), "contains itself at .a.b"),
        (nested(10_000), "nested deeper than 100"),
        (object(), "a value of type object"),
        (Unspeakable(), "a value of type Unspeakable"),
        ({"a": Unspeakable()}, "a value of type Unspeakable at .a"),
        ({Unspeakable(): 1}, "a key of type Unspeakable"),
        ({1: 1, "1": 2}, "two keys that are both written '1'"),
        (Trap(), "a trap"),
        (int, "the class int"),
        ((n for n in ()), "a value of type generator"),
        ([10**5000], "more than 4,000 digits"),
        (1j, "a value of type complex"),
        (Image(), "exactly one of path, url and data"),
        (Image(data=b"1"), "needs media_type"),
        (File(path="/nowhere/at/all.pdf"), "cannot be read"),
        (ToolOutput(object()), "a value of type object"),
        (ToolOutput(1, "\ud800"), "lone surrogate"),
        (ToolOutput(1, [3]), "observation"),  # type: ignore[list-item]
        (ToolOutput(1, display=3), "display"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_is_no_json_is_an_error_that_names_value_and_path(value: Any, text: str) -> None:
    with pytest.raises(ToolError) as caught:
        to_output(value)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 700
    str(caught.value).encode()


def test_a_value_that_unfolds_to_too_many_values_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert observe.MAX_VALUES == 1_000_000
    monkeypatch.setattr(observe, "MAX_VALUES", 10_000)
    with pytest.raises(ToolError, match="more than 10,000 values"):
        to_output(unfolding())


def test_nesting_of_a_hundred_is_fine() -> None:
    assert to_output(nested(100)).output == nested(100)


def test_an_object_that_a_tool_changes_later_does_not_change_its_output() -> None:
    shared: dict[str, Any] = {"list": [1]}
    output = to_output(shared)
    shared["list"].append(2)
    assert output.output == {"list": [1]}


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert to_output({"a": shared, "b": [shared, shared]}).output == {"a": [1], "b": [[1], [1]]}


def test_parts_become_the_observation_and_are_only_described_in_the_output(tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    picture.write_bytes(b"png")
    output = to_output(["see", Image(path=str(picture)), File(url="https://x.org/a.pdf", name="a")])
    assert output.observation == [
        Text("see"),
        Image(data=b"png", media_type="image/png"),
        File(url="https://x.org/a.pdf", media_type="application/pdf", name="a"),
    ]
    assert output.output == [
        "see",
        {"type": "image", "media_type": "image/png", "bytes": 3},
        {"type": "file", "media_type": "application/pdf", "name": "a", "url": "https://x.org/a.pdf"},
    ]
    assert to_output(Text("words")) == ToolOutput("words", [Text("words")])


def test_a_tool_may_choose_all_three_faces() -> None:
    given_by_tool = ToolOutput({"rows": (1, 2)}, "two rows", "2 rows")
    assert to_output(given_by_tool) == ToolOutput({"rows": [1, 2]}, "two rows", "2 rows")
    assert to_output(ToolOutput(1, ["a", Text("b")])).observation == [Text("a"), Text("b")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    output = to_output(value)
    assert repr(output.output) == repr(value)
    assert (output.observation, output.display) == (None, None)


@given(st.from_type(type).flatmap(st.from_type))
def test_any_value_at_all_is_json_or_a_tool_error(value: Any) -> None:
    try:
        output = to_output(value)
    except ToolError:
        return
    json.dumps(output.output, allow_nan=False).encode()
