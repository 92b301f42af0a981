"""Messages about invalid data from a model, with one clause for each place."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from treadle.core.validation_messages import clauses


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int
    label: str


def problems(value: Any) -> str:
    try:
        Point.model_validate(value)
    except ValidationError as error:
        return clauses(error.errors(), value, ["x", "label"])
    return ""


def test_each_place_with_invalid_data_has_its_own_message() -> None:
    assert problems({"x": 1, "label": "a"}) == ""
    assert problems({"x": "two"}) == "x: should be an integer, got 'two'; label: missing"


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert problems({"x": 1, "label": "a", "lable": "b"}) == "lable: unknown, did you mean 'label'?"


def test_the_whole_is_named_when_it_is_wrong() -> None:
    assert problems([]).startswith("arguments: ")
