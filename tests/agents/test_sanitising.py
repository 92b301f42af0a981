"""Answers without free text: which schemas have room for words of a stranger, and which values hold some."""

from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from treadle.agents.subagent import free_text, holds_free_text


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    colour: Colour
    amount: float


class Order(BaseModel):
    lines: list[Line]
    due: date | None
    within: timedelta
    pair: tuple[int, bool]


class Tree(BaseModel):
    left: "Tree | None" = None
    note: str = ""


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int


@pytest.mark.parametrize(
    ("annotation", "where"),
    [
        (bool, None),
        (int | None, None),
        (Literal["spam", "ham", 3], None),
        (Colour, None),
        (Order, None),
        (list[date], None),
        (Literal["only"], None),
        (str, "answer"),
        (Annotated[str, "short"], "answer"),
        (list[str], "answer[]"),
        (tuple[int, str], "answer[]"),
        (int | str, "answer"),
        (dict[str, int], "answer"),
        (Any, "answer"),
        (list[Any], "answer[]"),
        (bytes, "answer"),
        (Open, "answer"),
        (Tree, "answer.note"),
    ],
)
def test_only_numbers_truths_dates_and_given_words_are_no_free_text(annotation: Any, where: str | None):
    found = free_text(TypeAdapter(annotation).json_schema())
    assert (
        found is None if where is None else found is not None and found.endswith(where.removeprefix("answer"))
    )


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({"colour": "red", "amount": 1.5}, False),
        ({"colour": "red", "amount": 1.5, "note": "dear friend"}, True),
        ({"colour": "red", "amount": 1.5, "dear friend": 1}, True),
        ({"colour": "dear friend", "amount": 1}, True),
    ],
)
def test_a_value_with_a_field_too_many_holds_free_text(value: Any, holds: bool):
    assert holds_free_text(value, Line.model_json_schema()) is holds


def test_dates_are_no_free_text():
    value = Order(lines=[], due=date(2026, 1, 1), within=timedelta(days=1, seconds=3), pair=(1, True))
    assert not holds_free_text(value.model_dump(mode="json"), Order.model_json_schema())
