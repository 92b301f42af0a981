"""Whether a JSON value fits a JSON schema, by the keywords that pydantic writes: what an answer to a question must be.

The process in which an answer is given may know nothing of the program that asked, so the schema in the journal alone
tells what fits. Keywords that are not known here are not checked, as the standard says; the program that asked reads
the answer as its own type and is the last to judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from typing import Any, Final, cast

from treadle.core.messages import Json

_MAX_SHOWN: Final = 60

Schema = Mapping[str, Any]


def misfit(value: Json, schema: Json, name: str = "the answer") -> str | None:
    """Return what is wrong with a value, as one clause that names the place; None if it fits.

    Args:
        value: JSON data.
        schema: a JSON schema.
        name: what the value is called.
    """
    try:
        return next(_misfits(value, schema, schema, (), name), None)
    except RecursionError:
        return None  # a schema that refers to itself without end says nothing


def accepts_text(schema: Json) -> bool:
    """Whether any text fits a schema, so that a person may write an answer as it is."""
    if not isinstance(schema, dict):
        return schema is True
    rules = cast("Schema", schema)
    return rules.get("type") == "string" and not ({"enum", "const"} & set(rules))


def _misfits(value: Any, schema: Any, root: Any, path: tuple[str, ...], name: str) -> Iterator[str]:
    """Yield what is wrong, the outermost first."""
    if schema is True or not isinstance(schema, dict):
        if schema is False:
            yield _clause(path, name, "is not allowed", value)
        return
    rules = cast("Schema", schema)
    reference = rules.get("$ref")
    if isinstance(reference, str):
        yield from _misfits(value, _referred(reference, root), root, path, name)
    expected = rules.get("type")
    if expected is not None and not _is_of(value, expected):
        yield _clause(path, name, f"must be {_names(expected)}", value)
        return
    for keyword, check in _CHECKS.items():
        if keyword in rules and (wrong := check(value, rules[keyword])) is not None:
            yield _clause(path, name, wrong, value)
    yield from _combined(value, rules, root, path, name)
    if isinstance(value, dict):
        yield from _members(cast("dict[str, Any]", value), rules, root, path, name)
    elif isinstance(value, list):
        yield from _items(cast("list[Any]", value), rules, root, path, name)


def _combined(value: Any, rules: Schema, root: Any, path: tuple[str, ...], name: str) -> Iterator[str]:
    for each in rules.get("allOf", ()):
        yield from _misfits(value, each, root, path, name)
    options: list[Any] = [*rules.get("anyOf", ()), *rules.get("oneOf", ())]
    if not options:
        return
    wrong = [next(_misfits(value, option, root, path, name), None) for option in options]
    if None in wrong:
        return
    clauses = [clause for clause in wrong if clause is not None]
    inner = [
        clause for clause, option in zip(clauses, options, strict=True) if _is_of_option(value, option, root)
    ]
    yield inner[0] if len(inner) == 1 else " or ".join(dict.fromkeys(clauses[:3]))


def _is_of_option(value: Any, option: Any, root: Any) -> bool:
    """Whether a value has at least the type of an option, so that what is wrong with it there is worth telling."""
    if isinstance(option, dict) and isinstance(cast("Schema", option).get("$ref"), str):
        option = _referred(cast("Schema", option)["$ref"], root)
    return isinstance(option, dict) and _is_of(value, cast("Schema", option).get("type", ()))


def _members(
    value: dict[str, Any], rules: Schema, root: Any, path: tuple[str, ...], name: str
) -> Iterator[str]:
    properties: dict[str, Any] = rules.get("properties", {})
    for missing in rules.get("required", ()):
        if missing not in value:
            yield f"{_place((*path, str(missing)), name)} is missing"
    rest = rules.get("additionalProperties", True)
    for key, member in value.items():
        if key in properties:
            yield from _misfits(member, properties[key], root, (*path, key), name)
        elif rest is False:
            known = ", ".join(properties) or "none"
            yield f"{_place((*path, key), name)} is unknown; known are: {known}"
        else:
            yield from _misfits(member, rest, root, (*path, key), name)


def _items(value: list[Any], rules: Schema, root: Any, path: tuple[str, ...], name: str) -> Iterator[str]:
    first: list[Any] = rules.get("prefixItems", [])
    for index, item in enumerate(value):
        schema = first[index] if index < len(first) else rules.get("items", True)
        yield from _misfits(item, schema, root, (*path, str(index)), name)


def _referred(reference: str, root: Any) -> Any:
    schema = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        schema = cast("Schema", schema).get(key, True) if isinstance(schema, dict) else True
    return schema


# ------------------------------------------------------------------------------------------- keywords


def _is_of(value: Any, expected: Any) -> bool:
    return any(name in _TYPES and _TYPES[name][1](value) for name in _type_names(expected))


def _type_names(expected: Any) -> list[Any]:
    return cast("list[Any]", expected) if isinstance(expected, list) else [expected]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "null": ("null", lambda value: value is None),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: _is_number(value) and value == int(value)),
    "number": ("a number", _is_number),
    "string": ("a text", lambda value: isinstance(value, str)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}


def _names(expected: Any) -> str:
    return " or ".join([_TYPES[name][0] if name in _TYPES else str(name) for name in _type_names(expected)])


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other if isinstance(value, bool) else value == other


def _one_of(value: Any, options: Any) -> str | None:
    fits = any(_same(option, value) for option in cast("list[Any]", options))
    return None if fits else f"must be one of {', '.join([_shown(option) for option in options])}"


def _constant(value: Any, constant: Any) -> str | None:
    return None if _same(constant, value) else f"must be {_shown(constant)}"


def _bound(compare: Callable[[Any, Any], bool], words: str) -> Callable[[Any, Any], str | None]:
    def check(value: Any, bound: Any) -> str | None:
        return None if not _is_number(value) or compare(value, bound) else f"must be {words} {bound}"

    return check


def _size(
    kind: type[Any], compare: Callable[[int, int], bool], words: str
) -> Callable[[Any, Any], str | None]:
    def check(value: Any, bound: Any) -> str | None:
        if not isinstance(value, kind) or compare(len(value), bound):
            return None
        return f"must have {words.format(bound)}"

    return check


def _matches(value: Any, pattern: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        fits = re.search(pattern, value) is not None
    except (re.error, TypeError):
        return None  # a pattern of another dialect: the program that asked checks it
    return None if fits else f"must match {pattern}"


def _multiple(value: Any, factor: Any) -> str | None:
    fits = not _is_number(value) or not factor or abs(value / factor - round(value / factor)) < 1e-9
    return None if fits else f"must be a multiple of {factor}"


def _distinct(value: Any, wanted: Any) -> str | None:
    if not wanted or not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    twice = any(_same(item, other) for at, item in enumerate(items) for other in items[:at])
    return "must not hold an item twice" if twice else None


def _uuid(text: str) -> Any:
    from uuid import UUID  # it asks the system what it runs on: only where a schema wants one

    return UUID(text)


_FORMATS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "date-time": datetime.fromisoformat,
    "time": time.fromisoformat,
    "uuid": _uuid,
}


def _formatted(value: Any, form: Any) -> str | None:
    read = _FORMATS.get(form)
    if read is None or not isinstance(value, str):
        return None
    try:
        read(value)
    except ValueError:
        return f"must be a {form}"
    return None


_CHECKS: Final[Mapping[str, Callable[[Any, Any], str | None]]] = {
    "enum": _one_of,
    "const": _constant,
    "minimum": _bound(lambda value, bound: value >= bound, "at least"),
    "maximum": _bound(lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": _bound(lambda value, bound: value > bound, "above"),
    "exclusiveMaximum": _bound(lambda value, bound: value < bound, "below"),
    "multipleOf": _multiple,
    "minLength": _size(str, lambda size, bound: size >= bound, "at least {} characters"),
    "maxLength": _size(str, lambda size, bound: size <= bound, "at most {} characters"),
    "pattern": _matches,
    "format": _formatted,
    "minItems": _size(list, lambda size, bound: size >= bound, "at least {} items"),
    "maxItems": _size(list, lambda size, bound: size <= bound, "at most {} items"),
    "uniqueItems": _distinct,
    "minProperties": _size(dict, lambda size, bound: size >= bound, "at least {} members"),
    "maxProperties": _size(dict, lambda size, bound: size <= bound, "at most {} members"),
}


def _clause(path: tuple[str, ...], name: str, wrong: str, value: Any) -> str:
    return f"{_place(path, name)} {wrong}, got {_shown(value)}"


def _place(path: tuple[str, ...], name: str) -> str:
    return ".".join(path) or name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
