"""Which type of context a function names, and which objects are of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NewType,
    Protocol,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import pytest

from treadle import (
    Agent,
    Node,
    NodeContext,
    Pipeline,
    RequestContext,
    RunContext,
    StepContext,
    StepResult,
    ToolContext,
    tool,
)
from treadle.agents.context import fits, is_checkable, type_name, type_named_by
from treadle.errors import ConfigurationError

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

T = TypeVar("T")
MODEL = "openai:gpt-5.4-mini"


@dataclass
class Session:
    user: str


class Admin(Session):
    pass


class Row(TypedDict):
    user: str


class Named(Protocol):
    user: str


@runtime_checkable
class Closing(Protocol):
    def close(self) -> None: ...


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("context", "expected", "is_fit"),
    [
        (Session("a"), Session, True),
        (Admin("a"), Session, True),
        (Session("a"), Admin, False),
        (None, Session, False),
        (3, Session, False),
        (None, Session | None, True),
        (3, None | Session, False),
        (3, Session | int, True),
        (3, Annotated[Session, "a note"], False),
        ({"user": "a"}, dict[str, str], True),
        (["a"], dict[str, str], False),
        ({"user": "a"}, Row, True),
        (3, Row, False),
        (3, UserId, True),
        ("3", UserId, False),
        (3, float, True),
        ("3", float, False),
        (3.5, int, False),
        (3, Named, True),
        (3, Closing, False),
        (3, Any, True),
        (None, Any, True),
        (None, object, True),
        (3, T, True),
        (None, None, True),
    ],
)
def test_an_object_is_of_a_type_or_not(context: Any, expected: Any, is_fit: bool):
    assert fits(context, expected) is is_fit


@pytest.mark.parametrize("expected", [Any, object, T, None, Session | None, Named])
def test_a_type_that_any_object_or_none_is_of_needs_no_check(expected: Any):
    assert not is_checkable(expected)


def plain(ctx: RunContext[Session]) -> str:
    return ""


def optional(ctx: RunContext[Session] | None) -> str:
    return ""


def bare(ctx: RunContext) -> str:
    return ""


def other(ctx: ToolContext[Session]) -> str:
    return ""


def unknown(ctx: RunContext[OnlyForCheckers]) -> str:
    return ""


class Callable_:
    def __call__(self, ctx: RunContext[Session]) -> str:
        return ""


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (plain, Session),
        (optional, Session),
        (Callable_(), Session),
        (bare, None),
        (other, None),
        (unknown, None),
        (lambda ctx: "", None),
        (str, None),
    ],
)
def test_a_function_names_the_type_of_its_context(function: Callable[..., Any], named: Any):
    assert type_named_by(function, RunContext) is named


def test_a_function_may_name_a_class_of_the_function_around_it():
    class Local:
        pass

    def instructions(ctx: RunContext[Local]) -> str:
        return Local.__name__

    assert type_named_by(instructions, RunContext) is Local


def test_types_are_named_for_people():
    assert type_name(Session) == "Session"
    assert type_name(dict[str, int]) == "dict[str, int]"


# ------------------------------------------------------------------------------------------ of an agent


@tool
def whoami(ctx: ToolContext[Session]) -> str:
    return ctx.context.user


@tool
def late(name: str, ctx: ToolContext[Session] | None = None) -> str:
    return name


@tool
def plainly(ctx: ToolContext, name: str) -> str:
    return name


def offer(ctx: RequestContext[Session]) -> list[str]:
    return ["whoami"]


async def step(ctx: StepContext[Session]) -> StepResult:
    return StepResult("done", is_last=True)


def node(ctx: NodeContext[Session]) -> str:
    return ""


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ({}, []),
        ({"tools": [plainly]}, []),
        ({"context_type": object}, []),
        ({"context_type": Session}, [("it", Session)]),
        ({"tools": [whoami, late]}, [("its tool 'whoami'", Session), ("its tool 'late'", Session)]),
        ({"instructions": plain}, [("the function of its instructions", Session)]),
        ({"tools": [plainly], "offer": offer}, [("its offer=", Session)]),
        ({"worker": step}, [("its worker", Session)]),
        ({"worker": Pipeline([Node("first", node)])}, [("its node 'first'", Session)]),
    ],
)
def test_an_agent_knows_what_needs_a_context_of_which_type(arguments: Any, needs: Any):
    agent = Agent(MODEL, **arguments)
    assert [(need.source, need.type) for need in agent.context_needs] == needs
    assert agent.replace(name="other").context_needs == agent.context_needs


def test_the_type_of_a_context_is_no_part_of_the_version_of_an_agent():
    assert Agent(MODEL, context_type=Session).fingerprint == Agent(MODEL).fingerprint


def test_an_object_in_place_of_the_type_of_the_context_is_named():
    with pytest.raises(
        ConfigurationError, match=r"'agent': context_type must be a class, got an object of type Session"
    ):
        Agent(MODEL, context_type=Session("secret"))  # pyright: ignore[reportArgumentType]
