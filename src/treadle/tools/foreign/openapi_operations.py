"""Read the operations of an OpenAPI document, with everything that a call needs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import unquote

from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.tools.definitions import MAX_SCHEMA, described, plain_name
from treadle.tools.foreign.openapi_document import References, Schemas, Unsupported, refuse

MAX_OPERATIONS: Final = 5_000
"""Most operations in one document."""

METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options", "trace", "query")

JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
TEXT_TYPE: Final = "text/plain"

_PATH: Final = re.compile(r"/[A-Za-z0-9/?{}_.~!$&'()*+,;=:@%-]*")
"""A path template that cannot change the host before it."""

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_NEVER_ARGUMENTS: Final = frozenset(
    {
        *("accept", "authorization", "connection", "content-length", "content-type", "cookie", "host"),
        *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that the client sets, or that identify the caller.

They are never arguments, even if the document lists them.
"""


@frozen
class Parameter:
    """A parameter of an operation.

    Args:
        name: its name in the request.
        argument: its name for models.
        place: `path`, `query` or `header`.
        required: whether the operation needs it.
        schema: JSON schema of its value.
        style: OpenAPI's style for lists and objects.
        explode: OpenAPI's flag: whether each item is a separate parameter.
        as_json: whether its value is sent as JSON.
    """

    name: str
    argument: str
    place: str
    required: bool
    schema: Json
    style: str
    explode: bool
    as_json: bool


@frozen
class Body:
    """The body of a request: its argument, its schema, and its media type."""

    argument: str
    required: bool
    schema: Json
    media_type: str


@frozen
class Operation:
    """An operation of a document.

    Args:
        name: unique in the document, in letters that all providers accept.
        method: in capitals.
        path: the template, such as `/pets/{id}`.
        description: the description for models.
        parameters: in the order of the document.
        body: the body of the request; None without one.
        security: alternative lists of authentication schemes; empty if none is needed.
        parameters_schema: JSON schema of a call's arguments.
        hidden: pairs of place and name, in lower case, that no argument may set.
    """

    name: str
    method: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    security: tuple[tuple[str, ...], ...]
    parameters_schema: dict[str, Json]
    hidden: frozenset[tuple[str, str]] = frozenset()

    @property
    def label(self) -> str:
        """The method and the path: `GET /pets/{id}`."""
        return f"{self.method} {self.path}"

    def without(self, hidden: Collection[tuple[str, str]]) -> Operation:
        """Return the operation without hidden parameters: pairs of place and name, in lower case."""
        left_out = {each.argument for each in self.parameters if (each.place, each.name.lower()) in hidden}
        if not left_out:
            return replace(self, hidden=frozenset(hidden))
        schema = dict(self.parameters_schema)
        schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in left_out}
        schema["required"] = [name for name in schema["required"] if name not in left_out]
        parameters = tuple(each for each in self.parameters if each.argument not in left_out)
        return replace(self, parameters=parameters, parameters_schema=schema, hidden=frozenset(hidden))


@frozen
class Listed:
    """An operation as listed in the document, not parsed yet.

    Args:
        name: unique in the document.
        method: in lower case.
        path: the template.
        item: the document's entry for the path.
        facts: the document's entry for the operation.
    """

    name: str
    method: str
    path: str
    item: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, str]:
        """The texts that patterns match: its name, and its method with its path."""
        return self.name, f"{self.method.upper()} {self.path}"


def listed_operations(document: Mapping[str, Any]) -> Iterator[Listed]:
    """Yield the operations of a document; raises `ConfigurationError` for a reference out of the document."""
    references, taken_names = References(document), set[str]()
    count = 0
    for path, value in cast("Mapping[Any, Any]", document.get("paths", {})).items():
        if str(path).startswith("x-"):
            continue
        try:
            item = references.followed(value)
        except Unsupported as problem:
            refuse(f"the path {path}: {problem}")
        for method in METHODS:
            facts: Any = item.get(method)
            if not isinstance(facts, Mapping):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                refuse(f"the document has more than {MAX_OPERATIONS:,} operations")
            operation_facts = cast("Mapping[str, Any]", facts)
            yield Listed(
                _name(operation_facts, method, str(path), taken_names),
                method,
                str(path),
                item,
                operation_facts,
            )


def _name(facts: Mapping[str, Any], method: str, path: str, taken_names: set[str]) -> str:
    """Return a unique name for an operation."""
    operation_id: Any = facts.get("operationId")
    words = (
        operation_id
        if isinstance(operation_id, str) and operation_id.strip()
        else f"{method}_{path.replace('{', '').replace('}', '')}"
    )
    base = re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", words)).strip("_") or method
    name, number = base, 1
    while name in taken_names:
        number += 1
        name = f"{base}_{number}"
    taken_names.add(name)
    return name


def operation_of(entry: Listed, document: Mapping[str, Any]) -> Operation:
    """Parse an operation; raises `Unsupported`."""
    facts, references = entry.facts, References(document)
    if facts.get("servers") or entry.item.get("servers"):
        raise Unsupported("it has servers of its own, and only base_url= is asked")
    segments = [unquote(each) for each in entry.path.partition("?")[0].split("/")]
    if not _PATH.fullmatch(entry.path) or {".", ".."} & {*segments}:
        raise Unsupported("its path does not begin with '/', or holds characters that no path may hold")
    schemas = Schemas(references)
    parameters = _parameters(entry, references, schemas)
    body = _body(facts.get("requestBody"), {each.argument for each in parameters}, references, schemas)
    unknown = set(re.findall(r"\{([^{}]*)\}", entry.path)) - {
        each.name for each in parameters if each.place == "path"
    }
    if unknown:
        raise Unsupported(f"its path has {', '.join(sorted(unknown))}, and it has no such parameter")
    arguments = {each.argument: each.schema for each in parameters}
    required = [each.argument for each in parameters if each.required]
    if body is not None:
        arguments[body.argument] = body.schema
        required += [body.argument] if body.required else []
    schema: dict[str, Json] = {
        "type": "object",
        "properties": arguments,
        "required": required,
        "additionalProperties": False,
        **({"$defs": schemas.definitions} if schemas.definitions else {}),
    }
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError):
        raise Unsupported("one of its schemas is not JSON data") from None
    if size > MAX_SCHEMA:
        raise Unsupported(f"its schemas have more than {MAX_SCHEMA:,} characters")
    texts = [str(facts[key]) for key in ("summary", "description") if facts.get(key)]
    description = described("\n\n".join(texts) or f"{entry.method.upper()} {entry.path}")
    security: Any = facts.get("security", document.get("security", ()))
    return Operation(
        *(entry.name, entry.method.upper(), entry.path, description),
        *(tuple(parameters), body, _security(security), schema),
    )


def _security(value: Any) -> tuple[tuple[str, ...], ...]:
    alternatives = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
    return tuple(
        tuple(str(name) for name in cast("Mapping[Any, Any]", each))
        for each in alternatives
        if isinstance(each, Mapping)
    )


def _parameters(entry: Listed, references: References, schemas: Schemas) -> list[Parameter]:
    facts_by_parameter: dict[tuple[str, str], Mapping[str, Any]] = {}
    for source in (entry.item, entry.facts):
        several: Any = source.get("parameters", ())
        for value in cast("Sequence[Any]", several) if isinstance(several, (list, tuple)) else ():
            facts = references.followed(value)
            facts_by_parameter[str(facts.get("name")), str(facts.get("in"))] = (
                facts  # an operation's parameter overrides the path's
            )
    parameters: list[Parameter] = []
    taken_names = set[str]()
    for (name, place), facts in facts_by_parameter.items():
        required = facts.get("required") is True
        if place == "header" and name.lower() in _NEVER_ARGUMENTS:
            continue
        if place == "header" and not _TOKEN.fullmatch(name):
            raise Unsupported(f"its header {name!r:.100} cannot be the name of one")
        if place == "cookie":
            if required:
                raise Unsupported(f"it needs the cookie {name}")
            continue
        if place not in ("path", "query", "header"):
            raise Unsupported(f"its parameter {name} is in {place!r}")
        argument = plain_name(name) or place
        argument = f"{place}_{argument}" if argument in taken_names else argument
        taken_names.add(argument)
        parameters.append(_parameter(name, argument, place, required or place == "path", facts, schemas))
    return parameters


def _parameter(
    name: str, argument: str, place: str, required: bool, facts: Mapping[str, Any], schemas: Schemas
) -> Parameter:
    content: Any = facts.get("content")
    as_json = isinstance(content, Mapping)
    if as_json:
        kinds = cast("Mapping[str, Any]", content)
        kind = next((each for each in kinds if _is_json(each)), None)
        if kind is None:
            raise Unsupported(f"its parameter {name} is {', '.join(kinds)}")
        raw_schema: Any = kinds[kind].get("schema", {})
    else:
        raw_schema = facts.get("schema", {})
    style = str(facts.get("style", "form" if place == "query" else "simple"))
    styles = ("form", "spaceDelimited", "pipeDelimited", "deepObject") if place == "query" else ("simple",)
    if style not in styles:
        raise Unsupported(f"its parameter {name} is written in the style {style}")
    schema = schemas.taken(raw_schema)
    text: Any = facts.get("description")
    if isinstance(text, str) and isinstance(schema, dict):
        schema = {**cast("dict[str, Json]", schema), "description": described(text)}
    explode: Any = facts.get("explode", style == "form")
    return Parameter(name, argument, place, required, schema, style, explode is True, as_json)


def _is_json(media_type: str) -> bool:
    essence = media_type.partition(";")[0].strip().lower()
    return essence in (JSON_TYPE, "*/*", "application/*") or essence.endswith("+json")


def _body(value: Any, taken_names: set[str], references: References, schemas: Schemas) -> Body | None:
    if value is None:
        return None
    facts = references.followed(value)
    content: Any = facts.get("content")
    kinds: Mapping[str, Any] = cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else {}
    kind = next((each for each in kinds if _is_json(each)), None)
    kind = kind or next((each for each in kinds if each.partition(";")[0] in (FORM_TYPE, TEXT_TYPE)), None)
    if kind is None:
        raise Unsupported(f"its body is {', '.join(kinds) or 'of no type'}")
    media_type = kind.partition(";")[0].strip().lower()
    schema = schemas.taken(references.followed(kinds[kind]).get("schema", {}))
    argument = "body" if "body" not in taken_names else "request_body"
    media_type = JSON_TYPE if "*" in media_type else media_type
    return Body(argument, facts.get("required") is True, schema, media_type)
