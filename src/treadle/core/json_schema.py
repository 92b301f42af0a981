"""Check JSON values against JSON schemas with the keywords of pydantic, for answers to questions.

The process that receives an answer may not have the program that asked, so it checks the schema in the journal.
Unsupported keywords are not checked, as the standard says. The program that asked parses the answer as its own type and
decides finally.

A stranger may have written the schema or the value. So a check has a budget, and patterns use pydantic's linear engine.
Values beyond the budget are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, Final, cast

from treadle.core.messages import Json

_MAX_SHOWN: Final = 60

BUDGET: Final = 20_000
"""The most rules that one check applies to values. They take about 50 ms."""

LONGEST_MATCHED: Final = 10_000
"""The longest text that is matched with a pattern. The time of a match grows with the product of both lengths."""

LONGEST_PATTERN: Final = 500

Schema = Mapping[str, Any]


def misfit(value: Json, schema: Json, name: str = "the answer", *, patterns: bool = True) -> str | None:
    """Return the first misfit of a value, as a clause that names its place, or None if the value fits.

    Args:
        value: JSON data.
        schema: a JSON schema.
        name: the name of the value in messages.
        patterns: whether to match texts with the schema's patterns. A stranger's pattern can take a second for each
            text.
    """
    try:
        return next(_Check(schema, name, patterns=patterns).misfits(value, schema, ()), None)
    except (RecursionError, _BudgetSpent):
        return None  # an endlessly recursive schema restricts nothing


def schema_flaw(schema: Json) -> str | None:
    """Return the first malformed keyword of a schema, as a clause that names its place, or None."""
    return next(_schema_flaws(schema, ()), None)


def _schema_flaws(schema: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{'.'.join(path) or 'the schema'} must be a schema, got {_shown(schema)}"
        return
    for keyword, value in cast("Schema", schema).items():
        place = (*path, keyword)
        fits, form = _FORMS.get(keyword, _ANY_FORM)
        if not fits(value):
            yield f"{'.'.join(place)} must be {form}, got {_shown(value)}"
        elif keyword in _OF_SCHEMAS:
            for name, inner in cast("dict[str, Any]", value).items():
                yield from _schema_flaws(inner, (*place, name))
        elif keyword in _LIST_OF_SCHEMAS:
            for index, inner in enumerate(cast("list[Any]", value)):
                yield from _schema_flaws(inner, (*place, str(index)))
        elif keyword in _SCHEMAS:
            yield from _schema_flaws(value, place)


class _BudgetSpent(Exception):
    """A check has used up its budget."""


class _Check:
    """The check of one value.

    Args:
        root: the whole schema, to which references lead.
        name: the name of the value in messages.
        patterns: whether to match texts with patterns.
    """

    def __init__(self, root: Any, name: str, *, patterns: bool) -> None:
        self._root = root
        self._name = name
        self._checks = _CHECKS if patterns else _CHECKS_WITHOUT_PATTERNS
        self._left = BUDGET

    def _spend(self, rules: int) -> None:
        self._left -= rules
        if self._left < 0:
            raise _BudgetSpent

    def misfits(self, value: Any, schema: Any, path: tuple[str, ...]) -> Iterator[str]:
        """Yield the misfits, the outermost first."""
        self._spend(1)
        if schema is True or not isinstance(schema, dict):
            if schema is False:
                yield self._clause(path, "is not allowed", value)
            return
        rules = cast("Schema", schema)
        self._spend(len(rules))
        reference = rules.get("$ref")
        if isinstance(reference, str):
            yield from self.misfits(value, self._referred(reference), path)
        expected = rules.get("type")
        if expected is not None and not _is_of(value, expected):
            yield self._clause(path, f"must be {_names(expected)}", value)
            return
        if isinstance(options := rules.get("enum"), list):
            self._spend(len(cast("list[Any]", options)))
        for keyword, check in self._checks.items():
            if keyword in rules and (clause := check(value, rules[keyword])) is not None:
                yield self._clause(path, clause, value)
        yield from self._combined(value, rules, path)
        if isinstance(value, dict):
            yield from self._members(cast("dict[str, Any]", value), rules, path)
        elif isinstance(value, list):
            yield from self._items(cast("list[Any]", value), rules, path)

    def _combined(self, value: Any, rules: Schema, path: tuple[str, ...]) -> Iterator[str]:
        for each in rules.get("allOf", ()):
            yield from self.misfits(value, each, path)
        options: list[Any] = [*rules.get("anyOf", ()), *rules.get("oneOf", ())]
        if not options:
            return
        clauses: list[str] = []
        for option in options:
            clause = next(self.misfits(value, option, path), None)
            if clause is None:
                return
            clauses.append(clause)
        inner = [
            clause
            for clause, option in zip(clauses, options, strict=True)
            if self._is_of_option(value, option)
        ]
        yield inner[0] if len(inner) == 1 else " or ".join(dict.fromkeys(clauses[:3]))

    def _is_of_option(self, value: Any, option: Any) -> bool:
        """Return whether a value has the type of an option, so that its misfits are worth reporting."""
        if isinstance(option, dict) and isinstance(cast("Schema", option).get("$ref"), str):
            option = self._referred(cast("Schema", option)["$ref"])
        return isinstance(option, dict) and _is_of(value, cast("Schema", option).get("type", ()))

    def _members(self, value: dict[str, Any], rules: Schema, path: tuple[str, ...]) -> Iterator[str]:
        properties: dict[str, Any] = rules.get("properties", {})
        required = rules.get("required", ())
        self._spend(len(required))
        for missing in required:
            if missing not in value:
                yield f"{self._place((*path, str(missing)))} is missing"
        rest = rules.get("additionalProperties", True)
        for key, member in value.items():
            if key in properties:
                yield from self.misfits(member, properties[key], (*path, key))
            elif rest is False:
                names = ", ".join(properties) or "none"
                yield f"{self._place((*path, key))} is unknown; known are: {names}"
            else:
                yield from self.misfits(member, rest, (*path, key))

    def _items(self, value: list[Any], rules: Schema, path: tuple[str, ...]) -> Iterator[str]:
        first: list[Any] = rules.get("prefixItems", [])
        for index, item in enumerate(value):
            schema = first[index] if index < len(first) else rules.get("items", True)
            yield from self.misfits(item, schema, (*path, str(index)))

    def _referred(self, reference: str) -> Any:
        schema = self._root
        parts = reference.removeprefix("#/").split("/")
        self._spend(len(parts))
        for part in parts:
            key = part.replace("~1", "/").replace("~0", "~")
            schema = cast("Schema", schema).get(key, True) if isinstance(schema, dict) else True
        return schema

    def _clause(self, path: tuple[str, ...], problem: str, value: Any) -> str:
        return f"{self._place(path)} {problem}, got {_shown(value)}"

    def _place(self, path: tuple[str, ...]) -> str:
        return ".".join(path) or self._name


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


@lru_cache(maxsize=128)
def _matcher(pattern: str) -> Callable[[str], bool] | None:
    """Return a predicate for a pattern, or None for a pattern that is too long or of another dialect.

    Python's own engine can take hours for a short text, and nothing can interrupt it.
    """
    import pydantic_core

    if len(pattern) > LONGEST_PATTERN:
        return None
    try:
        return pydantic_core.SchemaValidator(
            pydantic_core.core_schema.str_schema(pattern=pattern)
        ).isinstance_python
    except pydantic_core.SchemaError:
        return None


def _matches(value: Any, pattern: Any) -> str | None:
    if not isinstance(value, str) or not isinstance(pattern, str) or len(value) > LONGEST_MATCHED:
        return None
    matches = _matcher(pattern)  # None: the program that asked checks it
    return f"must match {pattern}" if matches is not None and not matches(value) else None


def _multiple(value: Any, factor: Any) -> str | None:
    try:
        fits = not _is_number(value) or not factor or abs(value / factor - round(value / factor)) < 1e-9
    except OverflowError:
        return None  # of hundreds of digits
    return None if fits else f"must be a multiple of {factor}"


def _distinct(value: Any, is_required: Any) -> str | None:
    if not is_required or not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    return "must not hold an item twice" if len({_hashable(item) for item in items}) < len(items) else None


def _hashable(value: Any) -> Any:
    """Return a hashable form that is equal for equal JSON values. true differs from 1, and 1.0 equals 1."""
    if isinstance(value, list):
        return tuple([_hashable(item) for item in cast("list[Any]", value)])
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return frozenset([(key, _hashable(member)) for key, member in members]), dict
    return (value, bool) if isinstance(value, bool) else value


def _uuid(text: str) -> Any:
    from uuid import UUID  # the import inspects the platform, so it is delayed until a schema needs it

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


# ------------------------------------------------------------------------------------- forms of schemas

_OF_SCHEMAS: Final = frozenset({"properties", "$defs", "definitions"})
_LIST_OF_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS: Final = frozenset({"items", "additionalProperties"})


def _is_list_of(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and all(isinstance(item, kind) for item in cast("list[Any]", value))
    )


def _is_type(value: Any) -> bool:
    return all(isinstance(name, str) and name in _TYPES for name in _type_names(value))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_ANY_FORM: Final[tuple[Callable[[Any], bool], str]] = (lambda _: True, "")
_FORMS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(_OF_SCHEMAS, (lambda value: isinstance(value, dict), "an object of schemas")),
    **dict.fromkeys(_LIST_OF_SCHEMAS, (lambda value: isinstance(value, list), "a list of schemas")),
    **dict.fromkeys(("$ref", "pattern", "format"), (lambda value: isinstance(value, str), "a text")),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), (_is_number, "a number")
    ),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        (_is_size, "a whole number of 0 or more"),
    ),
    "type": (_is_type, f"of {', '.join(_TYPES)}, or a list of these"),
    "enum": (lambda value: isinstance(value, list), "a list"),
    "required": (_is_list_of(str), "a list of texts"),
}


_CHECKS_WITHOUT_PATTERNS: Final = {
    keyword: check for keyword, check in _CHECKS.items() if keyword != "pattern"
}


def _shown(value: Any) -> str:
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _MAX_SHOWN:
            return text[: _MAX_SHOWN - 1] + "…"
    return text


def _pieces(value: Any) -> Iterator[str]:
    """Yield the text of a value in pieces, so that the beginning of a long value is cheap."""
    if isinstance(value, list):
        yield "["
        for index, item in enumerate(cast("list[Any]", value)):
            yield ", " if index else ""
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for index, (key, member) in enumerate(cast("dict[str, Any]", value).items()):
            yield f", {key[:_MAX_SHOWN]!r}: " if index else f"{key[:_MAX_SHOWN]!r}: "
            yield from _pieces(member)
        yield "}"
    else:
        yield repr(value[: _MAX_SHOWN + 1] if isinstance(value, str) else value)
