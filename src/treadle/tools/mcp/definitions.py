"""What servers list, as tools for models: names, texts without hidden characters, declared effects, digests. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.tools import ToolSpec

MAX_TOOLS: Final = 1_000
"""How many tools of one server an agent may have."""

MAX_DESCRIPTION: Final = 8_000
"""Characters of a description that a model sees."""

MAX_SCHEMA: Final = 200_000
"""Characters of the JSON of a schema."""

MAX_NAME: Final = 64

FLAGS: Final = (
    *("read_only", "idempotent", "destructive", "open_world"),
    *("sends", "spends", "executes", "private"),
)
"""The effects that may be declared for a tool."""


class WrongDefinition(Exception):
    """A server lists what cannot be a tool; the text says what."""


class ServerLost(Exception):
    """A server could not be started; the text says why."""


@frozen
class ToolDefinition:
    """A tool as its server defines it.

    Args:
        name: what the server calls it.
        definition: name, title, description, schemas and annotations, as the server lists them.
    """

    name: str
    definition: Mapping[str, Json] = field(repr=False)

    @property
    def digest(self) -> str:
        """A digest of all of it: another one when anything changes."""
        return hashlib.sha256(_canonical(self.definition).encode("utf-8", "backslashreplace")).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def checked_definitions(listed: Iterable[Mapping[str, Json]]) -> tuple[ToolDefinition, ...]:
    """Return what a server listed as definitions; raises `WrongDefinition`."""
    definitions: dict[str, ToolDefinition] = {}
    for each in listed:
        name = str(each["name"])
        if name in definitions:
            raise WrongDefinition(f"lists two tools named {clean(name)!r}")
        if len(_canonical(each)) > MAX_SCHEMA:
            raise WrongDefinition(f"defines {clean(name)!r} with more than {MAX_SCHEMA:,} characters")
        definitions[name] = ToolDefinition(name, each)
    return tuple(definitions.values())


def chosen(definitions: Sequence[ToolDefinition], only: Sequence[str]) -> tuple[ToolDefinition, ...]:
    """Return the definitions whose names match a pattern, or all without patterns; raises `WrongDefinition`."""
    kept = tuple(
        each for each in definitions if not only or any(fnmatchcase(each.name, pattern) for pattern in only)
    )
    if len(kept) > MAX_TOOLS:
        raise WrongDefinition(f"lists {len(kept):,} tools, and {MAX_TOOLS:,} may be used: choose with only=")
    return kept


def tool_name(server: str, name: str) -> str:
    """Return what models call a tool of a server: `server__name`, in the letters that all providers take."""
    plain = f"{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', name)}"
    if len(plain) <= MAX_NAME:
        return plain
    mark = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{plain[: MAX_NAME - 9]}_{mark}"


def check_names(server: str, definitions: Sequence[ToolDefinition]) -> None:
    """Raise `WrongDefinition` where two tools of a server would have one name."""
    names: dict[str, str] = {}
    for each in definitions:
        name = tool_name(server, each.name)
        if name in names:
            raise WrongDefinition(
                f"lists {clean(names[name])!r} and {clean(each.name)!r}, which are both {name}"
            )
        names[name] = each.name


def spec_of(
    server: str,
    definition: ToolDefinition,
    *,
    trusted: bool,
    effects: Mapping[str, Sequence[str]],
    timeout: float,
    changed: bool,
) -> ToolSpec:
    """Return a tool as the model and the core see it.

    Args:
        server: the name of its server.
        definition: what the server defines, or defined when it was pinned.
        trusted: whether what the server says of its effects is believed.
        effects: flags that the user declares, by patterns of names; they go before what the server says.
        timeout: seconds a call may take.
        changed: whether the server defines it differently now, so that each call needs an approval.
    """
    facts = definition.definition
    flags = declared_effects(definition, trusted=trusted, effects=effects)
    declared: dict[str, Any] = {flag: flag in (flags or ()) for flag in FLAGS}
    parameters: dict[str, Json] = {"type": "object", "properties": {}}
    schema: Any = cleaned(facts.get("inputSchema"))
    if isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type", "object") == "object":
        parameters |= cast("dict[str, Json]", schema)
    description = clean(str(facts.get("description") or facts.get("title") or ""))
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]} [cut after {MAX_DESCRIPTION:,} characters]"
    return ToolSpec(
        name=tool_name(server, definition.name),
        description=description,
        parameters=parameters,
        timeout=timeout,
        declared=flags is not None,
        needs_approval=changed,
        previews=changed,
        **declared,
    )


def declared_effects(
    definition: ToolDefinition, *, trusted: bool, effects: Mapping[str, Sequence[str]]
) -> frozenset[str] | None:
    """Return what is declared of a tool's effects: by the user, else by a trusted server; None for nothing."""
    for pattern, flags in effects.items():
        if fnmatchcase(definition.name, pattern):
            return frozenset(flags)
    annotations: Any = definition.definition.get("annotations")
    if not trusted or not isinstance(annotations, dict):
        return None
    hints = cast("dict[str, Any]", annotations)
    named = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} & set(hints)
    if not named:
        return None
    flags = {"open_world"} if hints.get("openWorldHint", True) is not False else set[str]()
    if hints.get("readOnlyHint") is True:
        return frozenset(flags | {"read_only"})
    if hints.get("idempotentHint") is True:
        flags.add("idempotent")
    if hints.get("destructiveHint", True) is not False:
        flags.add("destructive")
    return frozenset(flags)


TEXT: Final[Json] = {"type": "string"}


def reading_specs(server: str, *, resources: bool, prompts: bool, timeout: float) -> dict[str, ToolSpec]:
    """Return the tools that list and read what a server has besides tools, by what they do."""
    kinds = ("resources", resources, "read_resource", "uri"), ("prompts", prompts, "get_prompt", "name")
    specs: dict[str, ToolSpec] = {}
    for kind, has, operation, argument in kinds:
        if not has:
            continue
        properties: dict[str, Json] = {argument: TEXT}
        if kind == "prompts":
            properties["arguments"] = {"type": "object", "additionalProperties": TEXT}
        described: dict[str, tuple[str, Json]] = {
            f"list_{kind}": (
                f"List the {kind} of the server {server}.",
                {"type": "object", "properties": {}},
            ),
            operation: (
                f"Return one of the {kind} of the server {server}, as list_{kind} names it.",
                {"type": "object", "properties": properties, "required": [argument]},
            ),
        }
        for name, (description, parameters) in described.items():
            specs[name] = ToolSpec(
                name=tool_name(server, name),
                description=description,
                parameters=parameters,
                read_only=True,
                open_world=True,
                declared=True,
                timeout=timeout,
            )
    return specs


_KEPT_CONTROLS: Final = "\n\t"


def clean(text: str) -> str:
    """Return a text without characters that people do not see: controls, zero-width, bidirectional marks, tags."""
    return "".join(
        letter
        for letter in text
        if letter in _KEPT_CONTROLS or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn")
    )


def cleaned(value: Any, depth: int = 64) -> Any:
    """Return JSON data with all its texts cleaned; what is nested deeper than `depth` is left out."""
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


def problems_of(arguments: Mapping[str, Json], schema: Any) -> list[str]:
    """Return what is wrong with the arguments of a call, as far as the top of its schema tells.

    Patterns and nested schemas are left to the server: they are its text, and checking them could take any time.
    """
    properties: Any = schema.get("properties")
    known = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    required: Any = schema.get("required")
    names = cast("list[Any]", required) if isinstance(required, list) else []
    problems = [f"{name}: missing" for name in names if isinstance(name, str) and name not in arguments]
    if schema.get("additionalProperties") is False:
        problems += [f"{name}: there is no such argument" for name in arguments if name not in known]
    for name, value in arguments.items():
        wanted: Any = known.get(name)
        if not isinstance(wanted, dict):
            continue
        facts = cast("dict[str, Any]", wanted)
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
