"""Describe invalid data from a model, briefly enough for the model to correct it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from treadle.core.messages import Json
from treadle.core.observation import scrubbed
from treadle.core.unknown_names import near_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAX_PROBLEMS = 8
_MAX_VALUE = 60
_MAX_TEXT = 1_000


def holds_own_words(details: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a custom validator wrote the message of one of these errors."""
    from pydantic_core.core_schema import ErrorType

    standard = {*get_args(ErrorType)} - {"value_error", "assertion_error"}
    return any(each["type"] not in standard for each in details)


def clauses(details: list[ErrorDetails], data: Json, names: Sequence[str], whole: str = "arguments") -> str:
    """Return one clause for each place: `a: missing; b: should be a number, got 'x'; c: unknown, did you mean 'd'?`.

    Args:
        details: the errors of pydantic.
        data: the validated data.
        names: the valid names at the top level, for suggestions.
        whole: the name of the data as a whole.

    The text is bounded, unless a custom validator wrote a part of it. Such a part may contain a secret, which must be
    masked before the text is cut.
    """
    own = holds_own_words(details)
    problems: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for detail in details:
        kind, place = detail["type"], ".".join(_place(detail["loc"], data)) or whole
        if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
            problems.setdefault(place, []).append("missing")
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            near = near_name(str(detail["loc"][-1]), names) if len(detail["loc"]) == 1 else None
            problems.setdefault(place, []).append("unknown" + (f", did you mean {near!r}?" if near else ""))
        else:
            expected = _expected(detail["msg"], is_cut=not own)
            if expected not in problems.setdefault(place, []):
                problems[place].append(expected)
            values[place] = f", got {_shown(detail['input'])}"
    clauses = [
        f"{place[:_MAX_VALUE]}: {' or '.join(texts)}{values.get(place, '')}"
        for place, texts in list(problems.items())[:_MAX_PROBLEMS]
    ]
    if len(problems) > _MAX_PROBLEMS:
        clauses.append(f"and {len(problems) - _MAX_PROBLEMS} more problems")
    text = scrubbed("; ".join(clauses))
    return text if own else text[:_MAX_TEXT]


def _place(loc: tuple[int | str, ...], data: Json) -> list[str]:
    """Return the path of a problem in the arguments, without the names of union members."""
    place: list[str] = []
    for step in loc:
        if isinstance(data, dict) and step in data:
            data = cast("dict[int | str, Json]", data)[step]
        elif isinstance(data, list) and isinstance(step, int):
            items = cast("list[Json]", data)
            data = items[step] if step < len(items) else None
        elif not isinstance(data, dict) or step is not loc[-1]:
            continue
        place.append(str(step))
    return place


def _expected(message: str, *, is_cut: bool) -> str:
    text = message.removeprefix("Input ").removeprefix("Value error, ").partition(", unable to")[0]
    for pydantic, plain in (
        ("a valid integer", "an integer"),
        ("a valid dictionary", "an object"),
        ("a dictionary or an instance of", "an object for"),
        ("a valid ", "a "),
    ):
        text = text.replace(pydantic, plain)
    return text[:200] if is_cut else text


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_VALUE else value[:_MAX_VALUE] + "...")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)[:_MAX_VALUE]
