"""What can be made a tool, and what is refused by name when it is defined."""

import re
from functools import partial

import pytest

from treadle.core.messages import ToolCall
from treadle.core.tools import Happened
from treadle.errors import ToolDefinitionError
from treadle.ports import Tool, ToolContext
from treadle.tools import tool


def plus(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


class Shop:
    def __init__(self) -> None:
        self.sold: list[str] = []

    def sell(self, item: str) -> str:
        """Sell an item."""
        self.sold.append(item)
        return item

    def __call__(self, item: str) -> str:
        """Sell as well."""
        return self.sell(item)


def test_a_tool_is_still_the_function() -> None:
    add = tool(plus)
    assert add(1, 2) == 3
    assert (add.__name__, add.__doc__, add.__module__) == ("plus", "Add two numbers.", __name__)
    assert isinstance(add, Tool)


def test_an_undeclared_tool_may_write_and_declares_no_effects() -> None:
    spec = tool(plus).spec
    assert (spec.effect, spec.declared, spec.undoable, spec.reconcilable) == ("write", False, False, False)


def test_every_option_reaches_the_spec() -> None:
    def reconciled(call: ToolCall, ctx: ToolContext) -> Happened:
        return Happened()

    spec = tool(
        plus,
        name="p",
        description="d",
        idempotent=True,
        destructive=True,
        open_world=True,
        sends=True,
        spends=True,
        executes=True,
        private=True,
        return_direct=True,
        timeout=1.5,
        retries=2,
        undo=lambda call, ctx: None,
        reconcile=reconciled,
    ).spec
    assert (spec.name, spec.description, spec.effect, spec.timeout, spec.retries) == (
        "p",
        "d",
        "idempotent",
        1.5,
        2,
    )
    flags = "destructive open_world sends spends executes private return_direct undoable declared"
    assert all(getattr(spec, flag) for flag in flags.split())
    assert spec.reconcilable
    assert not spec.read_only


def test_saying_that_a_tool_is_not_read_only_is_a_declaration() -> None:
    assert tool(read_only=False)(plus).spec.declared


def test_a_tool_passed_to_tool_again_gets_more_options_and_stays_unchanged() -> None:
    first = tool(plus, read_only=True)
    second = tool(first, name="sum", return_direct=True)
    assert (second.spec.name, second.spec.read_only, second.spec.return_direct) == ("sum", True, True)
    assert (first.spec.name, first.spec.return_direct) == ("plus", False)


def test_bound_methods_partials_callable_objects_and_static_methods_become_tools() -> None:
    shop = Shop()
    assert tool(shop.sell).spec.description == "Sell an item."
    assert list(tool(shop.sell).spec.parameters["properties"]) == ["item"]
    assert tool(shop, name="shop").spec.description == "Sell as well."
    assert tool(partial(plus, 1), name="inc").spec.parameters["required"] == ["b"]

    class Place:
        @tool
        @staticmethod
        def here(a: int) -> int:
            return a

    assert Place.here(3) == 3


def stars(*args: int) -> None: ...
def double_stars(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def opaque(a: Shop) -> None: ...
def unresolvable(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def generator_undo(call, ctx):
    yield


@pytest.mark.parametrize(
    ("fn", "options", "field"),
    [
        (stars, {}, "'*args'"),
        (double_stars, {}, "'**kwargs'"),
        (positional, {}, "'a'"),
        (opaque, {}, "'a'"),
        (unresolvable, {}, "'a'"),
        (two_contexts, {}, "'b'"),
        (Shop.sell, {}, "'self'"),
        (Shop, {}, "class Shop"),
        (3, {"name": "three"}, "int"),
        (lambda: None, {}, "name"),
        (partial(plus, 1), {}, "name"),
        (plus, {"name": "has space"}, "name"),
        (plus, {"name": ""}, "name"),
        (plus, {"name": "x" * 65}, "name"),
        (plus, {"name": "naïve"}, "name"),
        (plus, {"name": 3}, "name"),
        (plus, {"description": 3}, "description"),
        (plus, {"readonly": True}, "readonly: no such option, did you mean read_only=?"),
        (plus, {"sends": "yes"}, "sends"),
        (plus, {"timeout": 0}, "timeout"),
        (plus, {"timeout": -1}, "timeout"),
        (plus, {"timeout": True}, "timeout"),
        (plus, {"timeout": float("nan")}, "timeout"),
        (plus, {"timeout": "1"}, "timeout"),
        (plus, {"retries": -1, "read_only": True}, "retries"),
        (plus, {"retries": 1.0, "read_only": True}, "retries"),
        (plus, {"retries": 1}, "retries"),
        (plus, {"read_only": True, "destructive": True}, "read_only"),
        (plus, {"read_only": True, "undo": lambda call, ctx: None}, "read_only"),
        (plus, {"undo": 3}, "undo"),
        (plus, {"undo": lambda call: None}, "undo"),
        (plus, {"undo": generator_undo}, "undo"),
        (plus, {"reconcile": Shop}, "reconcile"),
    ],
)
def test_an_invalid_tool_is_refused_with_the_name_of_tool_and_field(fn, options, field) -> None:
    with pytest.raises(ToolDefinitionError, match=re.escape(field)) as caught:
        tool(fn, **options)
    assert str(caught.value).startswith("tool")
    assert isinstance(caught.value, ValueError)


def test_later_options_of_a_tool_come_before_earlier_ones() -> None:
    @tool(name="first", read_only=True, timeout=1)
    def look() -> str:
        """Look."""
        return "seen"

    second = tool(look, name="second", timeout=2)
    assert (second.spec.name, second.spec.timeout, second.spec.read_only) == ("second", 2, True)
