"""The JSON that `--json` prints: results, snapshots, steps, events and messages. Pure; holds no text for people."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, cast

from treadle.core.events import Event, Failure
from treadle.core.messages import File, Image, Json, Reasoning, Text, ToolCall, ToolResult

_PARTS = (Text, Image, File, Reasoning, ToolCall, ToolResult)


def as_json(value: Any) -> Json:
    """Return a value as plain JSON data.

    A dataclass becomes an object of its fields. A message part has its kind in `type`; an event has it in `kind`,
    beside its `seq` and `time`; a failure says whether a retry makes sense. Bytes become base64 text, money becomes a
    number, and numbers that JSON cannot hold become null. Values that pydantic can serialise (its models, dates,
    enums) use pydantic's form. Any other value becomes its `repr`.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal):
        return as_json(float(value))
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if is_dataclass(value) and not isinstance(value, type):
        return {**_label(value), **{item.name: as_json(getattr(value, item.name)) for item in fields(value)}}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value)
        return {str(key): as_json(item) for key, item in pairs.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [as_json(item) for item in cast("Sequence[Any]", value)]
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return repr(value)


def _label(value: Any) -> dict[str, Json]:
    if isinstance(value, _PARTS):
        return {"type": re.sub(r"(?<!^)([A-Z])", r"_\1", type(value).__name__).lower()}
    if isinstance(value, Event):
        return {"seq": value.seq, "time": value.time, "kind": value.kind}
    if isinstance(value, Failure):
        return {"provider": value.provider, "retryable": value.retryable}
    return {}


def error_json(error: BaseException, message: str | None = None) -> Json:
    """Return the document of a failed command, with the message of the error or another one."""
    return {"error": {"type": type(error).__name__, "message": str(error) if message is None else message}}


def as_document(value: Any) -> str:
    """Return a value as one line of JSON; ASCII only, so that every terminal and encoding can carry it."""
    return json.dumps(as_json(value), allow_nan=False)
