"""Strict JSON: parse complete objects of models without guessing, and compare values."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from treadle.core.messages import Json


def parse_object(raw: str) -> dict[str, Json]:
    """Return a JSON object. Raises `ValueError` for anything else, repeated keys, NaN and Infinity."""
    value: Any = json.loads(raw, **STRICTLY)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (one error type for all that is not an object)
    return value  # pyright: ignore[reportUnknownVariableType]


def is_same_json(a: Json, b: Json) -> bool:
    """Return whether two values are the same in JSON: 1 differs from true and from 1.0."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is repeated")
    return document


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


STRICTLY: dict[str, Any] = {
    "object_pairs_hook": _unique,
    "parse_constant": _no_constant,
    "parse_float": _finite,
}
