"""Convert servers' listings to tools for models: names, declared effects, digests. Pure.

`MCPTool`: a server's tool as a tool of an agent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from treadle.core.data import frozen
from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ToolError
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.definitions import (
    FLAGS,
    MAX_SCHEMA,
    check_arguments,
    clean,
    cleaned,
    described,
    effects_of,
    plain_name,
)

MAX_TOOLS: Final = 1_000
"""Most tools of one server."""


class WrongDefinition(Exception):
    """A server's listing is not valid; the text says why."""


class ServerLost(Exception):
    """A server could not be started; the text says why."""


@frozen
class ToolDefinition:
    """A tool as its server defines it.

    Args:
        name: the tool's name on the server.
        definition: name, title, description, schemas and annotations, as listed by the server.
    """

    name: str
    definition: Mapping[str, Json] = field(repr=False)

    @property
    def digest(self) -> str:
        """A digest of the whole definition."""
        return hashlib.sha256(_canonical(self.definition).encode("utf-8", "backslashreplace")).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def checked_definitions(listed: Iterable[Mapping[str, Json]]) -> tuple[ToolDefinition, ...]:
    """Return a server's listing as definitions; raises `WrongDefinition`."""
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
    matching = tuple(
        each for each in definitions if not only or any(fnmatchcase(each.name, pattern) for pattern in only)
    )
    if len(matching) > MAX_TOOLS:
        raise WrongDefinition(
            f"lists {len(matching):,} tools, and {MAX_TOOLS:,} may be used: choose with only="
        )
    return matching


def tool_name(server: str, name: str) -> str:
    """Return the name of a server's tool for models: `server__name`, in letters that all providers accept."""
    return plain_name(f"{server}__{name}", name)


def origin_of(server: str) -> str:
    """Return the origin of a server's results, for labels."""
    return f"mcp:{server}"


def check_names(server: str, definitions: Sequence[ToolDefinition]) -> None:
    """Raise `WrongDefinition` if two tools of a server would have the same name."""
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
    trusted_results: Sequence[str] = (),
) -> ToolSpec:
    """Return a tool's specification for models and the core.

    Args:
        server: its server's name.
        definition: the server's current or pinned definition.
        trusted: whether the server's own annotations of effects are trusted.
        effects: effects declared by the user, by patterns of names. They override the server's.
        timeout: seconds that a call may take.
        changed: whether the server has changed it since it was pinned. Each call then needs an approval.
        trusted_results: patterns of names of tools whose results contain no foreign text.
    """
    facts = definition.definition
    flags = declared_effects(definition, trusted=trusted, effects=effects)
    declared: dict[str, Any] = {flag: flag in (flags or ()) for flag in FLAGS}
    parameters: dict[str, Json] = {"type": "object", "properties": {}}
    schema: Any = cleaned(facts.get("inputSchema"))
    if isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type", "object") == "object":
        parameters |= cast("dict[str, Json]", schema)
    return ToolSpec(
        name=tool_name(server, definition.name),
        description=described(str(facts.get("description") or facts.get("title") or "")),
        parameters=parameters,
        timeout=timeout,
        declared=flags is not None,
        needs_approval=changed,
        previews=changed,
        trusted=any(fnmatchcase(definition.name, pattern) for pattern in trusted_results),
        origin=origin_of(server),
        defined_by="" if trusted else origin_of(server),
        **declared,
    )


def declared_effects(
    definition: ToolDefinition, *, trusted: bool, effects: Mapping[str, Sequence[str]]
) -> frozenset[str] | None:
    """Return a tool's declared effects: the user's, else a trusted server's; None if there are none."""
    if (declared := effects_of(effects, definition.name)) is not None:
        return declared
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
    """Return the tools that list and read a server's resources and prompts, by operation."""
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
                origin=origin_of(server),
            )
    return specs


Call = Callable[[dict[str, Json], ToolContext[Any]], Awaitable[ToolOutput]]


class MCPTool:
    """A tool of a server.

    Args:
        spec: the tool as models see it.
        call: calls it.
        pinned: its pinned definition; None for tools that read resources and prompts.
        now: its current definition.
    """

    asks_as: Final = "changed_definition"
    """The rule that asks for approval of a changed tool's call."""

    told_by_code: Final = frozenset({"description", "parameters", "needs_approval", "previews"})
    """Fields of the specification that follow from the pinned definition.

    So an approval holds even if the approved definition is pinned only later.
    """

    def __init__(
        self,
        spec: ToolSpec,
        call: Call,
        pinned: ToolDefinition | None = None,
        now: ToolDefinition | None = None,
    ) -> None:
        self._spec, self._call, self._pinned, self._now = spec, call, pinned, now
        self.code = now.digest if now is not None else ""
        """An approval holds only for the approved definition."""

    def __repr__(self) -> str:
        return f"<MCP tool {self._spec.name} ({self._spec.effect})>"

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def validate(self, arguments: dict[str, Json]) -> dict[str, Json]:
        check_arguments(arguments, self._spec.parameters)
        return arguments

    async def call(self, arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        return await self._call(arguments, ctx)

    async def needs_approval(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> bool:
        """Return whether the server has changed the pinned definition."""
        return self._spec.needs_approval

    @property
    def asks_because(self) -> str:
        """The reason for an approval, for the request."""
        return f"the server changed the definition of {self._spec.name} since it was pinned"

    async def preview(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> Json:
        """Return a comparison of both definitions, for the call's approver."""
        assert self._pinned is not None
        assert self._now is not None
        pinned, now = dict(self._pinned.definition), dict(self._now.definition)
        names = sorted(name for name in {*pinned, *now} if pinned.get(name) != now.get(name))
        return {
            "what": self.asks_because,
            "pinned": {name: pinned.get(name) for name in names},
            "now": {name: now.get(name) for name in names},
        }

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        raise ToolError(f"tool {self._spec.name!r} has no undo=")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        return Unknown()
