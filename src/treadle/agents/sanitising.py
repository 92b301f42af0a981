"""Sanitisers: subagents whose answers hold no free text, so that injected instructions cannot reach their caller.

An answer of numbers, booleans, dates and a few fixed words can be wrong. It cannot be an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from treadle.core.lazy_pattern import lazy_pattern
from treadle.core.messages import Json

_FORMATS: Final = ("date", "time", "date-time", "duration")
_MOMENT: Final = lazy_pattern(r"[0-9PYMDWTHSZ:.,+\- ]{1,40}")
"""The characters of dates, times and durations."""


def free_text(schema: Json) -> str | None:
    """Return the path of a part that may hold free text in an answer of a schema, such as `answer.note`; else None."""
    return next(_free(schema, schema, "answer", ()), None)


def _free(schema: Any, root: Any, path: str, followed: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that may hold free text; the references in `followed` are not followed again."""
    if not isinstance(schema, dict):
        yield path
        return
    part = cast("dict[str, Any]", schema)
    if "enum" in part or "const" in part:
        return
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        if name not in followed:
            definition = cast("dict[str, Any]", root).get("$defs", {}).get(name)
            yield from _free(definition, root, path, (*followed, name))
        return
    options = part.get("anyOf") or part.get("oneOf") or part.get("allOf")
    if options is not None:
        for option in options:
            yield from _free(option, root, path, followed)
        return
    match part.get("type"):
        case "integer" | "number" | "boolean" | "null":
            return
        case "string" if part.get("format") in _FORMATS:
            return
        case "array":
            items = [*part.get("prefixItems", ())]
            if "items" in part or not items:
                items.append(part.get("items"))
            for item in items:
                yield from _free(item, root, f"{path}[]", followed)
        case "object" if part.get("properties") and not part.get("additionalProperties"):
            for name, inner in part["properties"].items():
                yield from _free(inner, root, f"{path}.{name}", followed)
        case _:
            yield path


def holds_free_text(value: Json, schema: Json) -> bool:
    """Return whether an answer holds free text despite its schema, for example in an additional field."""
    words = set(_words(schema))
    return any(text not in words and not _MOMENT.fullmatch(text) for text in _texts(value))


def _words(schema: Any) -> Iterator[str]:
    """Yield the texts that a schema itself contains: the values of its enums, and the names of its properties."""
    if isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)
        allowed = [*part.get("enum", ()), part.get("const")]
        yield from [each for each in allowed if isinstance(each, str)]
        if isinstance(part.get("properties"), dict):
            yield from part["properties"]
        for inner in part.values():
            yield from _words(inner)
    elif isinstance(schema, list):
        for inner in cast("list[Any]", schema):
            yield from _words(inner)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)
