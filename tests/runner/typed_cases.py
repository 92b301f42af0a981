"""Types of answers: for each, a valid answer of a model, its value, and an invalid answer."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

from treadle import Agent, ScriptedModel, tool
from treadle.models import call_raw, text


class City(BaseModel):
    name: str
    founded: date


class Country(BaseModel):
    name: str
    capital: City
    others: list[City] = []
    code: str | None = None


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    at: datetime
    pair: tuple[int, str]


class Renamed(BaseModel):
    given: str = Field(validation_alias="givenName", serialization_alias="given_name")


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def is_even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("should be even")
        return n


@dataclass
class Point:
    x: float
    y: float = 0.0


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


ROME = City(name="Rome", founded=date(1, 4, 21))
IN_ROME = {"name": "Rome", "founded": "0001-04-21"}

CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    # the type, what the model writes, what that means, and something that is wrong
    "model": (City, IN_ROME, ROME, {"name": "Rome", "founded": "long ago"}),
    "nested": (
        Country,
        {"name": "Italy", "capital": IN_ROME, "others": [IN_ROME]},
        Country(name="Italy", capital=ROME, others=[ROME]),
        {"name": "Italy", "capital": {"name": "Rome"}},
    ),
    "recursive": (
        Node,
        {"value": 1, "children": [{"value": 2}]},
        Node(value=1, children=[Node(value=2)]),
        {"value": 1, "children": [{}]},
    ),
    "strict": (
        Strict,
        {"at": "2026-01-02T03:04:05Z", "pair": [1, "a"]},
        Strict(at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), pair=(1, "a")),
        {"at": "2026-01-02T03:04:05Z", "pair": [1, "a"], "more": 1},
    ),
    "renamed": (
        Renamed,
        {"givenName": "Ada"},
        Renamed.model_validate({"givenName": "Ada"}),
        {"given": "Ada"},
    ),
    "own validator": (Even, {"n": 4}, Even(n=4), {"n": 3}),
    "dataclass": (Point, {"x": 1.5}, Point(1.5), {"x": "far"}),
    "typed dict": (Movie, {"title": "Alien"}, {"title": "Alien"}, {"year": 1979}),
    "named tuple": (Pair, [1, "a"], Pair(1, "a"), [1]),
    "enum": (Colour, "blue", Colour.BLUE, "green"),
    "literal": (Literal["yes", "no"], "no", "no", "perhaps"),
    "date": (date, "2026-02-28", date(2026, 2, 28), "2026-02-30"),
    "time": (time, "03:04:05", time(3, 4, 5), "late"),
    "duration": (timedelta, "PT90S", timedelta(seconds=90), "a while"),
    "decimal": (Decimal, "0.10", Decimal("0.10"), "a dime"),
    "uuid": (
        UUID,
        "6f3c2c58-6a5f-4a0e-9f3e-3a4f2f6d9a11",
        UUID("6f3c2c58-6a5f-4a0e-9f3e-3a4f2f6d9a11"),
        "one",
    ),
    "list": (list[int], [3, 1, 2], [3, 1, 2], [3, "one"]),
    "empty list": (list[City], [], [], {}),
    "list of models": (list[City], [IN_ROME], [ROME], [{"name": "Rome"}]),
    "dict": (dict[str, float], {"pi": 3.14}, {"pi": 3.14}, {"pi": "about three"}),
    "set": (set[int], [1, 2], {1, 2}, [[]]),
    "union of models": (
        Cat | Dog,
        {"kind": "dog", "name": "Rex"},
        Dog(kind="dog", name="Rex"),
        {"kind": "cow"},
    ),
    "discriminated": (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"kind": "cat", "lives": 9},
        Cat(kind="cat", lives=9),
        {"kind": "cat"},
    ),
    "union with text": (City | str, "no such city", "no such city", 7),
    "optional, not there": (City | None, None, None, "nothing"),
    "None": (None, None, None, 0),
    "False": (bool, False, False, "maybe"),
    "zero": (int, 0, 0, "none"),
    "bounded": (Annotated[int, Field(ge=1, le=5)], 5, 5, 6),
    "empty text": (Annotated[str, Field(max_length=3)], "", "", "four"),
}
MODES = ("native", "tool", "prompt")
WORKERS = ("react", "planner")


every_mode = pytest.mark.parametrize("mode", [*MODES, *WORKERS])


def written(agent: Agent[Any], answer: Any) -> str:
    """Return the text with which the agent's model gives an answer in its output mode."""
    assert agent.typed is not None
    wraps = (
        list(agent.typed.schema["properties"]) == ["answer"] if "properties" in agent.typed.schema else False
    )
    whole = json.dumps({"answer": answer} if wraps else answer)
    if agent.worker == "react":
        return f"Thought: I know it.\nAnswer: {whole}"
    if agent.worker == "planner":
        return f'{{"thought": "I know it.", "name": "finish", "arguments": {{"answer": {whole}}}}}'
    return whole if agent.output_mode != "prompt" else f"Here it is:\n```json\n{whole}\n```\nDone."


def same(answer: Any, meant: Any) -> bool:
    """Return whether an answer equals the expected value and has its type."""
    return type(answer) is type(meant) and answer == meant


@tool(read_only=True)
async def look(where: str) -> str:
    """Look something up."""
    return f"{where}: found"


def scripted(kind: Any, mode: Any, *answers: Any, **more: Any) -> Agent[Any]:
    """Return an agent whose model gives these answers in turn; an answer may be a turn itself."""
    how = {"worker": mode} if mode in WORKERS else {"output_mode": mode}
    agent = Agent(ScriptedModel([]), output_type=kind, **{"tools": [look], **how, **more})
    turns = [answer if type(answer).__name__ == "Turn" else turn_of(agent, answer) for answer in answers]
    return agent.replace(model=ScriptedModel(turns))


def turn_of(agent: Agent[Any], answer: Any) -> Any:
    answer_text = written(agent, answer)
    return call_raw("final_answer", answer_text) if agent.output_mode == "tool" else text(answer_text)
