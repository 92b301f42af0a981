"""From what a model wrote to a tool call: complete JSON objects only, nothing is ever repaired."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from treadle.core.messages import Json, ToolCall


def parsed_call(call_id: str, name: str, raw: str, *, truncated: bool = False, meta: Json = None) -> ToolCall:
    """Return the call that a model wrote, marked with a problem when it must not run.

    Args:
        call_id: the provider's own id, or nothing.
        name: the tool.
        raw: the arguments exactly as they were written.
        truncated: the provider said that the answer was cut off or withheld, so nothing in it may run.
        meta: what the provider wants back with the call.
    """
    if truncated:
        return ToolCall(call_id, name, {}, raw=raw, problem="truncated", meta=meta)
    try:
        arguments = parse_object(raw)
    except (ValueError, RecursionError):
        return ToolCall(call_id, name, {}, raw=raw, problem="unparsable", meta=meta)
    return ToolCall(call_id, name, arguments, meta=meta)


def parse_object(raw: str) -> dict[str, Json]:
    """Return a JSON object; raise `ValueError` for anything else, for repeated keys and for NaN or Infinity."""
    value: Any = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (one error type for all that is not an object)
    return value  # pyright: ignore[reportUnknownVariableType]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value
