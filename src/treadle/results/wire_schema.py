"""The JSON schema of the public JSON form (`wire.py`), made from the same annotations."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

from treadle.core.events import EVENTS, CallOccurrence, Event, Occurrence
from treadle.core.messages import Json
from treadle.results.wire import (
    DERIVED,
    EPHEMERAL,
    FORMAT,
    TAGS,
    is_cost,
    is_data_class,
    own_fields,
    tuple_of,
    written_fields,
)


def json_schema() -> dict[str, Json]:
    """Return the JSON schema of all events, made from their classes."""
    schema = WireSchema()
    root = schema.of(Occurrence)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Treadle events, format {FORMAT}",
        **root,
        "$defs": dict(sorted(schema.definitions.items())),
    }


class WireSchema:
    """Returns the schemas of types and collects the definitions that they refer to.

    Args:
        references: the prefix of references to definitions.
    """

    def __init__(self, references: str = "#/$defs/") -> None:
        self.definitions: dict[str, Json] = {}
        self._references = references

    def of(self, hint: Any) -> dict[str, Json]:
        """Return the schema of a type."""
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if isinstance(hint, TypeVar):
            return {}
        origin, options = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._any_of(options)
        if origin is Literal:
            return {"enum": list(options)}
        if origin in (tuple, list, Sequence):
            return {"type": "array", "items": self.of(options[0])}
        if origin in (dict, Mapping):
            return {
                "type": "object",
                **({"additionalProperties": self.of(options[1])} if options[1] is not Any else {}),
            }
        return self._of_class(origin or hint)

    def _any_of(self, options: tuple[Any, ...]) -> dict[str, Json]:
        schemas: list[dict[str, Json]] = []
        for option in options:
            schema = self.of(option)
            if not schema:
                return {}
            schemas += [schema] if schema not in schemas else []
        return {"anyOf": schemas} if len(schemas) > 1 else schemas[0]

    def _of_class(self, cls: Any) -> dict[str, Json]:
        if issubclass(cls, tuple) and not own_fields(cls):
            return self.of(tuple_of(cls))
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # a class may hold itself
            self.definitions[name] = self._definition(cls)
        return {"$ref": f"{self._references}{name}"}

    def _definition(self, cls: Any) -> dict[str, Json]:
        if cls in (Occurrence, Event):
            kinds = {**EVENTS, **(EPHEMERAL if cls is Occurrence else {})}
            return {"oneOf": [self.of(kinds[kind]) for kind in sorted(kinds)]}
        if issubclass(cls, Occurrence):
            return self._event(cls)
        if issubclass(cls, tuple):
            return self._tuple_class(cls)
        if not is_data_class(cls):
            raise TypeError(f"the wire form has no schema for {cls!r}")
        properties, required = self._fields(cls)
        if cls in TAGS:
            properties, required = {"type": {"const": TAGS[cls]}, **properties}, ["type", *required]
        properties |= {name: {} for name in DERIVED.get(cls.__name__, ())}
        return {"type": "object", "description": _says(cls), "properties": properties, "required": required}

    def _event(self, cls: type[Any]) -> dict[str, Json]:
        head: dict[str, Json] = {"format": {"const": FORMAT}, "kind": {"const": cls.kind}, **_HEAD}
        if issubclass(cls, Event):
            head |= {"seq": {"type": "integer"}, "time": {"type": "integer"}}
        if issubclass(cls, CallOccurrence):
            head["tool"] = {"type": "string"}
        properties, required = self._fields(cls)
        properties |= {name: {} for name in DERIVED.get(cls.__name__, ())}
        return {
            "type": "object",
            "description": _says(cls),
            "properties": {**head, **properties},
            "required": [*head, *[name for name in required if name not in head]],
        }

    def _tuple_class(self, cls: Any) -> dict[str, Json]:
        hints = typing.get_type_hints(cls)
        properties = {
            "items": self.of(tuple_of(cls)),
            **{name: self.of(hints[name]) for name in own_fields(cls)},
        }
        return {"type": "object", "description": _says(cls), "properties": properties, "required": ["items"]}

    def _fields(self, cls: type[Any]) -> tuple[dict[str, Json], list[str]]:
        """Return the schemas of a class's fields, and the names of those that a reader needs."""
        hints = typing.get_type_hints(cls)
        wire_fields = written_fields(cls)
        needed = [
            item.name for item in wire_fields if item.default is MISSING and item.default_factory is MISSING
        ]
        schemas = {item.name: self.of(hints[item.name]) for item in wire_fields}
        for name in [name for name in schemas if is_cost(name, hints[name])]:
            schemas[name] = self.of(Decimal if hints[name] is int else Decimal | None)
        return schemas, needed


def _says(cls: type[Any]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


_HEAD: Final[dict[str, Json]] = {
    "task_id": {"type": "string"},
    "agent_path": {"type": "array", "items": {"type": "string"}},
    "description": {"type": "string"},
}

_PLAIN: Final[dict[Any, dict[str, Json]]] = {
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    int: {"type": "integer"},
    datetime: {"type": "integer"},
    Decimal: {"type": "string", "format": "decimal"},
    float: {"type": ["number", "null"]},
    bool: {"type": "boolean"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
    Any: {},
}
