"""Read an OpenAPI document, follow its references, and make its schemas self-contained.

A document is foreign text. Its size and depth are limited. A `$ref` must point into the document itself. The list of
servers is ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, cast
from urllib.parse import unquote

from treadle.core.messages import Json
from treadle.errors import ConfigurationError, MissingExtra
from treadle.tools.definitions import cleaned, plain_name

MAX_DOCUMENT: Final = 20_000_000
"""Largest document, in bytes."""

_MAX_DEPTH: Final = 40
_MAX_NODES: Final = 20_000
_MAX_REFERENCES: Final = 32


class Unsupported(Exception):
    """An operation needs an unsupported feature; the text names it."""


# ------------------------------------------------------------------------------------------- reading


def read_document(source: Any, fetch: Callable[[str], bytes]) -> Mapping[str, Any]:
    """Read a document.

    Args:
        source: the document itself, its path, or its URL.
        fetch: returns the content of a URL.

    Raises:
        ConfigurationError: it cannot be read, or is not OpenAPI 3.
        MissingExtra: it is YAML, and no package that reads YAML is installed.
    """
    label = "the document"
    if isinstance(source, (str, os.PathLike)):
        label = str(cast("Any", source))
        source = _parsed(
            fetch(label) if label.startswith(("http://", "https://")) else _bytes_of(label), label
        )
    if not isinstance(source, Mapping):
        refuse(f"{label} must be an object, its path or its URL, got a {type(source).__name__}")
    document = cast("Mapping[str, Any]", source)
    version = str(document.get("openapi", ""))
    if not version.startswith("3."):
        older = (
            "Swagger 2; convert it to OpenAPI 3 first" if "swagger" in document else f"openapi {version!r}"
        )
        refuse(f"{label} must be OpenAPI 3, and is {older}")
    if not isinstance(document.get("paths", {}), Mapping):
        refuse(f"{label}: its paths are not an object")
    return document


def _bytes_of(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        refuse(f"{path} cannot be read: {error.strerror}")
    return data


def _parsed(data: bytes, label: str) -> Any:
    if len(data) > MAX_DOCUMENT:
        refuse(f"{label} has more than {MAX_DOCUMENT:,} bytes")
    try:
        text = data.decode()
        if text.lstrip()[:1] == "{":
            return json.loads(text)
        return _parsed_yaml(text)
    except (ValueError, RecursionError) as error:
        refuse(f"{label} cannot be read: {error!s:.300}")


def _parsed_yaml(text: str) -> Any:
    """Return YAML as JSON data. Dates stay text, and so do `on` and `no`."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("openapi", "a document in YAML") from None
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        pass

    tags = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")
    Loader.yaml_implicit_resolvers = {
        letter: [(tag, pattern) for tag, pattern in resolvers if tag not in tags]
        for letter, resolvers in base.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(tags[1], re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506  it is a safe loader with fewer types
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def refuse(reason: str) -> NoReturn:
    """Raise `ConfigurationError` about a document."""
    raise ConfigurationError(f"openapi_tools: {reason}")


# ---------------------------------------------------------------------------------------- references


class References:
    """Follows references within a document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def followed(self, value: Any) -> Mapping[str, Any]:
        """Return an object, or the target of its reference; raises `Unsupported`."""
        for _ in range(_MAX_REFERENCES):
            if not isinstance(value, Mapping):
                raise Unsupported("it holds something else where an object should be")
            facts = cast("Mapping[str, Any]", value)
            reference: Any = facts.get("$ref")
            if not isinstance(reference, str):
                return facts
            value = self.target(reference)
        raise Unsupported("its references go round in circles")

    def target(self, reference: str) -> Any:
        """Return the target of a reference; raises `Unsupported` if it is not in the document."""
        if not reference.startswith("#/"):
            raise Unsupported(
                f"it refers to {reference!r:.200}, which is not in the document, and is not fetched"
            )
        value: Any = self._document
        for token in reference[2:].split("/"):
            key = unquote(token).replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and key in value:
                value = cast("Mapping[str, Any]", value)[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(cast("list[Any]", value)):
                value = cast("list[Any]", value)[int(key)]
            else:
                raise Unsupported(f"it refers to {reference!r:.200}, which is not in the document")
        return value


_ONE: Final = frozenset(
    {
        *("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_SEVERAL: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_AS_IT_IS: Final = frozenset({"enum", "const", "default", "pattern", "required", "type", "format"})
_LEFT_OUT: Final = frozenset(
    {
        *("example", "examples", "xml", "externalDocs", "discriminator", "nullable", "readOnly", "writeOnly"),
        *("deprecated", "title", "exclusiveMinimum", "exclusiveMaximum"),
    }
)


class Schemas:
    """Make the schemas of one operation self-contained, by copies of their references in `$defs`.

    Args:
        references: the references of the document.
    """

    def __init__(self, references: References) -> None:
        self._references = references
        self._names: dict[str, str] = {}
        self._nodes = 0
        self.definitions: dict[str, Json] = {}

    def taken(self, value: Any, depth: int = 0) -> Json:
        """Return an OpenAPI schema as JSON schema; raises `Unsupported`."""
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise Unsupported("its schemas are larger, or deeper, than a model could read")
        if isinstance(value, bool):
            return value
        if not isinstance(value, Mapping):
            raise Unsupported("one of its schemas is not an object")
        facts = cast("Mapping[str, Any]", value)
        reference: Any = facts.get("$ref")
        if isinstance(reference, str):
            more = {"description": cleaned(facts["description"])} if "description" in facts else {}
            return {"$ref": f"#/$defs/{self._defined(reference)}", **more}
        return self._whole(facts, depth + 1)

    def _defined(self, reference: str) -> str:
        """Define the target of a reference in `$defs`, and return its name there."""
        if reference not in self._names:
            base = plain_name(reference.rpartition("/")[2])
            name, number = base, 1
            while name in self.definitions:
                number += 1
                name = f"{base}_{number}"
            self._names[reference] = name
            self.definitions[name] = {}
            # Its depth starts at 0: a definition may refer to itself, and is copied once.
            self.definitions[name] = self.taken(self._references.target(reference))
        return self._names[reference]

    def _whole(self, facts: Mapping[str, Any], depth: int) -> dict[str, Json]:
        schema: dict[str, Json] = {}
        for key, value in facts.items():
            if key in _LEFT_OUT or key.startswith(("x-", "$")):
                continue
            if key in _ONE:
                schema[key] = self.taken(value, depth)
            elif key in _SEVERAL and isinstance(value, list):
                schema[key] = [self.taken(each, depth) for each in cast("list[Any]", value)]
            elif key in _NAMED and isinstance(value, Mapping):
                named = cast("Mapping[Any, Any]", value).items()
                schema[key] = {str(name): self.taken(each, depth) for name, each in named}
            else:
                schema[key] = value if key in _AS_IT_IS else cleaned(value, 16)
        self._without_read_only(facts, schema)
        for limit in ("Minimum", "Maximum"):
            _bound(facts, schema, limit)
        return _nullable(schema) if facts.get("nullable") is True else schema

    def _without_read_only(self, facts: Mapping[str, Any], schema: dict[str, Json]) -> None:
        """Remove properties that only responses have."""
        properties: Any = facts.get("properties")
        if not isinstance(properties, Mapping):
            return
        for name, value in cast("Mapping[Any, Any]", properties).items():
            if isinstance(value, Mapping) and self._references.followed(value).get("readOnly") is True:
                del schema["properties"][str(name)]
                if isinstance(schema.get("required"), list):
                    schema["required"] = [each for each in schema["required"] if each != name]


def _bound(facts: Mapping[str, Any], schema: dict[str, Json], limit: str) -> None:
    """Convert an exclusive limit to JSON schema. OpenAPI 3.0 has a flag next to the limit."""
    exclusive: Any = facts.get(f"exclusive{limit}")
    if exclusive is True:
        if (value := schema.pop(limit.lower(), None)) is not None:
            schema[f"exclusive{limit}"] = value
    elif exclusive is not None and exclusive is not False:
        schema[f"exclusive{limit}"] = exclusive


def _nullable(schema: dict[str, Json]) -> dict[str, Json]:
    kind = schema.get("type")
    if not isinstance(kind, str):
        return {"anyOf": [schema, {"type": "null"}]}
    schema["type"] = [kind, "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema
