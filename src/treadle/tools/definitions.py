"""Convert names, texts, schemas and effects of foreign tool definitions to Treadle's. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NoReturn, cast

from treadle.core.messages import Json
from treadle.errors import ToolArgumentsInvalid

MAX_DESCRIPTION: Final = 8_000
"""Most characters of a description that a model sees."""

MAX_SCHEMA: Final = 200_000
"""Most characters of a schema as JSON."""

MAX_NAME: Final = 64

FLAGS: Final = (
    *("read_only", "idempotent", "destructive", "open_world"),
    *("sends", "spends", "executes", "private"),
)
"""The effects that can be declared for a tool."""


def plain_name(name: str, whole: str | None = None) -> str:
    """Return a name in letters that all providers accept. A long name is cut and ends in a digest.

    Args:
        name: the original name.
        whole: the text of the digest; by default the name.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(plain) <= MAX_NAME:
        return plain
    mark = hashlib.sha256((whole or name).encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{plain[: MAX_NAME - 9]}_{mark}"


# --------------------------------------------------------------------------------------------- effects


def checked_effects(effects: Any, refuse: Callable[[str, str], NoReturn]) -> Mapping[str, tuple[str, ...]]:
    """Check and return declared effects by patterns of tool names.

    Args:
        effects: such as `{"get_*": ["read_only"]}`; None for nothing.
        refuse: raises an error; it takes a field name and a problem.
    """
    if effects is None:
        return {}
    if not isinstance(effects, Mapping):
        refuse("effects", f"must map patterns of names to lists of effects, got {effects!r}")
    checked: dict[str, tuple[str, ...]] = {}
    for pattern, flags in cast("Mapping[Any, Any]", effects).items():
        if not isinstance(flags, (list, tuple)):
            refuse("effects", f"must be a list of texts, got {flags!r}")
        effect_names = tuple(cast("Sequence[Any]", flags))
        wrong = next((flag for flag in effect_names if flag not in FLAGS), None)
        if wrong is not None:
            refuse("effects", f"for {pattern!r} has {wrong!r}; they are {', '.join(FLAGS)}")
        checked[str(pattern)] = effect_names
    return checked


def effects_of(effects: Mapping[str, Sequence[str]], *names: str) -> frozenset[str] | None:
    """Return the effects of the first pattern that matches one of a tool's names; None if no pattern matches."""
    for pattern, flags in effects.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return frozenset(flags)
    return None


# ----------------------------------------------------------------------------------------------- texts


def described(text: str) -> str:
    """Return a description for models: without hidden characters, cut to `MAX_DESCRIPTION`."""
    text = clean(text)
    if len(text) > MAX_DESCRIPTION:
        return f"{text[:MAX_DESCRIPTION]} [cut after {MAX_DESCRIPTION:,} characters]"
    return text


_KEPT_CONTROLS: Final = "\n\t"


def clean(text: str) -> str:
    """Remove invisible characters: controls, zero-width characters, bidirectional marks, tags."""
    return "".join(
        letter
        for letter in text
        if letter in _KEPT_CONTROLS or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )


def cleaned(value: Any, depth: int = 64) -> Any:
    """Return JSON data with all its texts cleaned. Values deeper than `depth` become None."""
    if isinstance(value, str):
        return clean(value)
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {clean(name): cleaned(inner, depth - 1) for name, inner in pairs}
    if isinstance(value, (list, tuple)):
        return [cleaned(inner, depth - 1) for inner in cast("Sequence[Any]", value)]
    return value


# ------------------------------------------------------------------------------------------- arguments

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


MOST_PROBLEMS: Final = 8
"""Maximum number of problems that a model is told of one call."""


def check_arguments(arguments: Mapping[str, Json], schema: Any) -> None:
    """Raise `ToolArgumentsInvalid` if a call's arguments do not fit the top level of its schema."""
    if problems := problems_of(arguments, schema):
        raise ToolArgumentsInvalid("; ".join(problems[:MOST_PROBLEMS]))


def problems_of(arguments: Mapping[str, Json], schema: Any) -> list[str]:
    """Return the problems of a call's arguments with the top level of its schema.

    Patterns and nested schemas are left to the tool. They are foreign text, and a check could take unbounded time.
    """
    properties: Any = schema.get("properties")
    property_schemas = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    required: Any = schema.get("required")
    names = cast("list[Any]", required) if isinstance(required, list) else []
    problems = [f"{name}: missing" for name in names if isinstance(name, str) and name not in arguments]
    if schema.get("additionalProperties") is False:
        there_are = f"; the arguments are {', '.join(property_schemas):.200}" if property_schemas else ""
        problems += [
            f"{name}: there is no such argument{there_are}"
            for name in arguments
            if name not in property_schemas
        ]
    for name, value in arguments.items():
        property_schema: Any = property_schemas.get(name)
        if not isinstance(property_schema, dict):
            continue
        facts = cast("dict[str, Any]", property_schema)
        kinds: Any = facts.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(kinds, list) and not any(_is_of(value, kind) for kind in cast("list[Any]", kinds)):
            problems.append(f"{name}: must be of type {' or '.join(map(str, cast('list[Any]', kinds)))}")
        choices: Any = facts.get("enum")
        if isinstance(choices, list) and value not in cast("list[Any]", choices):
            problems.append(
                f"{name}: must be one of {', '.join(map(repr, cast('list[Any]', choices)))[:200]}"
            )
    return problems


def _is_of(value: Json, kind: Any) -> bool:
    types = _TYPES.get(kind) if isinstance(kind, str) else None
    if types is None:
        return True
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types) or (kind == "integer" and isinstance(value, float) and value.is_integer())
