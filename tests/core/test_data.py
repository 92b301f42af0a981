"""Our data classes do what the standard library's do."""

import copy
import inspect
import pickle
from dataclasses import MISSING, FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace

import pytest
from msgspec import Struct
from pydantic import TypeAdapter, ValidationError

from treadle.core.data import frozen, mutable
from treadle.core.messages import Image, Text, ToolCall
from treadle.core.unknown_names import explains_arguments
from treadle.engine.options import RunOptions


@frozen
class Point:
    """A value with everything that a field can have."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str], kw_only=True)
    secret: str = field(default="", repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclass(frozen=True, slots=True)
class Reference:
    """The same, made by the standard library."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list[str], kw_only=True)
    secret: str = field(default="", repr=False, compare=False, kw_only=True)


@mutable
class Counter:
    """A record whose fields may be set."""

    n: int = 0


@frozen
class Nothing:
    """A value that holds nothing."""


def test_a_value_is_written_and_compared_as_the_standard_library_would() -> None:
    ours, theirs = Point(1, tags=["a"], secret="s"), Reference(1, tags=["a"], secret="s")
    assert repr(ours) == repr(theirs).replace("Reference", "Point")
    assert ours == Point(1, 2, tags=["a"], secret="another")
    assert ours != Point(1, 3, tags=["a"])
    assert ours != theirs
    assert [item.name for item in fields(ours)] == [item.name for item in fields(theirs)]
    assert Text("a") != ToolCall("a", "b", {})


def test_values_that_are_equal_have_one_hash() -> None:
    assert {Text("a"), Text("a"), Text("b")} == {Text("b"), Text("a")}
    assert hash(Nothing()) == hash(Nothing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_a_value_does_not_change() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to 'x': a Point does not change"):
        point.x = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError, match="cannot delete 'x'"):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.z = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert point == Point(1)


def test_a_default_that_is_made_is_made_for_each() -> None:
    one, other = Point(1), Point(1)
    assert one.tags == []
    assert one.tags is not other.tags


def test_a_value_is_checked_when_it_is_made_and_when_it_is_replaced() -> None:
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Point(1), x=-1)
    assert replace(Point(1, tags=["a"]), y=5) == Point(1, 5, tags=["a"])


def test_a_constructor_refuses_what_does_not_fit() -> None:
    with pytest.raises(TypeError, match="Missing required argument 'x'"):
        Point()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="Unexpected keyword argument 'z'"):
        Point(1, z=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="Image takes all by name"):
        Image("a.png")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "made", [Point(1, 3, tags=["a"], secret="s"), Counter(3), Text("a", {"k": [1]}), Nothing()]
)
def test_a_copied_or_pickled_value_is_equal_and_whole(made: object) -> None:
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made
        assert other is not made
    if isinstance(made, Point):
        assert copy.deepcopy(made).tags is not made.tags
        assert copy.copy(made).secret == "s"


def test_a_record_changes_and_has_no_hash() -> None:
    counter = Counter()
    counter.n += 1
    assert counter == Counter(1)
    assert not hasattr(counter, "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_a_pattern_takes_a_value_apart() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)


@frozen
class Wide:
    """A value of several fields."""

    a: int
    b: int = 2
    c: int = 3
    tags: list[str] = field(default_factory=list[str])


class Derived(Wide):
    """A plain class of a user's, with attributes beside the fields."""


def test_a_value_of_many_fields_is_of_its_own_class_and_does_not_change() -> None:
    wide = Wide(1, tags=["x"])
    assert type(wide) is Wide
    assert wide.__class__ is Wide
    assert repr(wide) == "Wide(a=1, b=2, c=3, tags=['x'])"
    assert wide == Wide(1, tags=["x"]) != Wide(2, tags=["x"])
    with pytest.raises(FrozenInstanceError, match="cannot assign to 'a': a Wide does not change"):
        wide.a = 2  # pyright: ignore[reportAttributeAccessIssue]
    for again in (copy.copy(wide), copy.deepcopy(wide), pickle.loads(pickle.dumps(wide))):
        assert type(again) is Wide
        assert again == wide


def test_a_class_derived_from_a_value_keeps_its_class_and_is_frozen_too() -> None:
    derived = Derived(1, c=5)
    assert type(derived) is Derived
    assert (derived.a, derived.c, derived.tags) == (1, 5, [])
    with pytest.raises(AttributeError, match="immutable type: 'Derived'"):
        derived.a = 2  # pyright: ignore[reportAttributeAccessIssue]
    assert derived != Wide(1, c=5)


def test_a_signature_shows_the_types_and_the_values_of_defaults() -> None:
    shown = inspect.signature(Wide)
    assert [parameter.annotation for parameter in shown.parameters.values()] == [
        item.type for item in fields(Wide)
    ]
    assert str(shown.parameters["tags"]).endswith("= <factory>")
    assert "MISSING" not in str(inspect.signature(RunOptions))
    assert "labels: dict[str, str] = <factory>" in str(inspect.signature(RunOptions))


def test_a_value_is_a_struct_that_the_standard_library_takes_for_a_data_class() -> None:
    assert issubclass(Point, Struct)
    assert is_dataclass(Point)
    assert asdict(Point(1, tags=["a"])) == {"x": 1, "y": 2, "tags": ["a"], "secret": ""}
    ours, theirs = fields(Point), fields(Reference)
    for name in ("name", "type", "default", "default_factory", "repr", "compare", "kw_only"):
        assert [getattr(item, name) for item in ours] == [getattr(item, name) for item in theirs], name
    assert fields(Point)[0].default is MISSING


def test_pydantic_takes_a_value_as_a_type() -> None:
    adapter = TypeAdapter(list[Point])
    assert adapter.validate_python([{"x": 1}, Point(2)]) == [Point(1), Point(2)]
    assert adapter.dump_python([Point(1)]) == [{"x": 1, "y": 2, "tags": [], "secret": ""}]
    with pytest.raises(ValidationError, match="x is negative"):
        adapter.validate_python([{"x": -1}])
    with pytest.raises(TypeError, match="is an instance, not a type"):
        TypeAdapter(Point(1))  # pyright: ignore[reportCallIssue, reportArgumentType]
    schema = TypeAdapter(Point).json_schema()
    assert (schema["type"], schema["required"]) == ("object", ["x"])


def test_a_class_derived_from_a_value_may_have_fields_of_its_own() -> None:
    @frozen
    class Further(Wide):
        e: int = 5
        note: str = field(default="", compare=False, kw_only=True)

    further = Further(1, 2, 3, ["t"], 4, note="n")
    assert [item.name for item in fields(Further)] == ["a", "b", "c", "tags", "e", "note"]
    assert repr(further).endswith("Further(a=1, b=2, c=3, tags=['t'], e=4, note='n')")
    assert further == Further(1, 2, 3, ["t"], 4, note="another")
    assert replace(further, a=7).note == "n"
    with pytest.raises(FrozenInstanceError, match="cannot assign to 'note'"):
        further.note = ""  # pyright: ignore[reportAttributeAccessIssue]


def test_advice_on_arguments_is_written_below_the_decorator_that_makes_the_constructor() -> None:
    with pytest.raises(TypeError, match="Wide: write explains_arguments below frozen or mutable"):
        explains_arguments(Wide)
