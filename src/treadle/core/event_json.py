"""Events as JSON for other programs: one form, which can be read back, and its schema.

    {"format": 1, "kind": "tool_ended", "task_id": "01a2...", "agent_path": ["shop"], "seq": 7,
     "time": 1763700000000000, "description": "price ended (s1-0): ok", "tool": "price",
     "step": "s1", "call": "s1-0", "output": 250}

The head is the same for all events; what follows are the event's fields as the journal holds them, without those that
have their default. A part of a message that is text without `meta` is a string, every other part an object whose `p`
says what it is; bytes are base64. A release may add kinds and fields: a reader leaves out what it does not know. What
would change or remove a field raises `FORMAT`.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields
from math import isfinite
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from treadle.core import codec
from treadle.core.codec import UnreadableRecord
from treadle.core.events import (
    EVENTS,
    CallOccurrence,
    ChildEvent,
    Ephemeral,
    Event,
    EventOrigin,
    Occurrence,
    UnknownEvent,
)
from treadle.core.messages import Json

FORMAT: Final = 1
"""The version of this form."""

EPHEMERAL: Final[dict[str, type[Any]]] = {cls.kind: cls for cls in get_args(Ephemeral)}
"""What is never stored, by its tag."""

HEAD: Final = ("format", "kind", "task_id", "agent_path", "seq", "time", "description", "tool")
"""The names that stand in front of an event's own fields; `Delta` has a field `tool` of its own."""


def to_json(event: Event | Ephemeral) -> dict[str, Json]:
    """Return an event as JSON data; numbers that JSON cannot hold become null."""
    kind = event.tag if isinstance(event, UnknownEvent) else event.kind
    document: dict[str, Json] = {"format": FORMAT, "kind": kind, "task_id": event.task_id}
    document["agent_path"] = list(event.agent_path)
    if isinstance(event, Event):
        document |= {"seq": event.seq, "time": event.time}
    document["description"] = event.description
    if isinstance(event, CallOccurrence) and event.tool:
        document["tool"] = event.tool
    if isinstance(event, ChildEvent):
        own = {"step": event.step, "call": event.call, "path": list(event.path), "after": event.after}
        return {**document, **own, "event": to_json(event.event)}
    return {**document, **_finite(codec.fields_of(event))}


def from_json(document: dict[str, Json]) -> Event | Ephemeral:
    """Return the event of a document that `to_json` made; one of an unknown kind is an `UnknownEvent`.

    Raises:
        ValueError: the document is of a newer format, or is no event.
    """
    if type(document) is not dict or type(document.get("kind")) is not str:  # pyright: ignore[reportUnnecessaryComparison]
        raise UnreadableRecord(f"an event is an object with a `kind`, and not {document!r:.60}")
    if not 1 <= document.get("format", 0) <= FORMAT:
        message = f"an event in format {document.get('format')!r}; this version reads format {FORMAT}"
        raise UnreadableRecord(f"{message}: upgrade treadle")
    kind = document["kind"]
    cls = EVENTS.get(kind) or EPHEMERAL.get(kind)
    own = {
        name: value
        for name, value in document.items()
        if name not in HEAD or (cls is not None and name in _names(cls) and name not in ("seq", "time"))
    }
    if cls is ChildEvent:
        inner = cast("Any", from_json(own.pop("event")))
        path = tuple(cast("list[str]", own.pop("path")))
        child = ChildEvent(own["step"], own["call"], document["task_id"], path, inner, own.get("after", 0))
        _locate(child, document, depth=len(path))
        return child
    event: Any
    if cls is None:
        event = UnknownEvent(kind, own)
    else:
        known = {name: value for name, value in own.items() if name in _names(cls)}
        try:
            event = codec.event_of(cls, known)
        except (TypeError, ValueError, AttributeError) as error:
            raise UnreadableRecord(f"a {kind} event cannot be read: {error}") from error
    if isinstance(event, Event):
        event.seq, event.time = document.get("seq", 0), document.get("time", 0)
    if isinstance(event, CallOccurrence):
        event.tool_name = document.get("tool", "")
    _locate(event, document)
    return cast("Event | Ephemeral", event)


def _locate(event: Occurrence, document: dict[str, Json], depth: int = 0) -> None:
    path = tuple(document.get("agent_path", ()))
    event.origin = EventOrigin(document.get("task_id", ""), path[: len(path) - depth])


def _names(cls: type[Any]) -> set[str]:
    return {item.name for item in fields(cls)}


def _finite(value: Any) -> Any:
    """Return a value without numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in cast("list[Any]", value)]
    return value


# -------------------------------------------------------------------------------------------- the schema


def json_schema() -> dict[str, Json]:
    """Return the JSON schema of all events, made from their classes."""
    return _Schema().document()


class _Schema:
    """Collects the definitions of the classes that events are made of."""

    def __init__(self) -> None:
        self._definitions: dict[str, Json] = {}

    def document(self) -> dict[str, Json]:
        kinds: list[Json] = []
        for kind, cls in sorted({**EVENTS, **EPHEMERAL}.items()):
            self._definitions[cls.__name__] = self._event(kind, cls)
            kinds.append({"$ref": f"#/$defs/{cls.__name__}"})
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"Treadle events, format {FORMAT}",
            "oneOf": kinds,
            "$defs": dict(sorted(self._definitions.items())),
        }

    def _event(self, kind: str, cls: type[Any]) -> Json:
        head: dict[str, Json] = {
            "format": {"const": FORMAT},
            "kind": {"const": kind},
            "task_id": {"type": "string"},
            "agent_path": {"type": "array", "items": {"type": "string"}},
            "description": {"type": "string"},
        }
        if issubclass(cls, Event):
            head |= {"seq": {"type": "integer"}, "time": {"type": "integer"}}
        required = [*head]
        if issubclass(cls, CallOccurrence):
            head["tool"] = {"type": "string"}
        made = self._object(cls)
        if cls is ChildEvent:
            made["properties"]["event"] = {"$ref": "#"}
        says = (cls.__doc__ or "").partition("\n")[0]
        needed = [name for name in made["required"] if name not in required]
        properties = {**head, **made["properties"]}
        return {
            "type": "object",
            "description": says,
            "properties": properties,
            "required": [*required, *needed],
        }

    def _object(self, cls: type[Any]) -> dict[str, Any]:
        hints = typing.get_type_hints(cls)
        shown = [item for item in fields(cls) if item.name not in ("seq", "time")]
        return {
            "type": "object",
            "properties": {item.name: self._type(hints[item.name]) for item in shown},
            "required": [
                item.name for item in shown if item.default is MISSING and item.default_factory is MISSING
            ],
        }

    def _type(self, hint: Any) -> Json:
        origin, options = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            made: list[Json] = []
            for option in options:
                one = self._type(option)
                made += [one] if one not in made else []
            return {"anyOf": made} if len(made) > 1 else made[0]
        if origin is Literal:
            return {"enum": list(options)}
        if origin is tuple:
            return {"type": "array", "items": self._type(options[0])}
        if origin is list:
            return {"type": "array", "items": self._type(options[0])}
        if origin is dict:
            values = self._type(options[1])
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
            return self._reference(hint)
        return dict(_PLAIN[hint])

    def _reference(self, cls: type[Any]) -> Json:
        name = cls.__name__
        if name not in self._definitions:
            self._definitions[name] = {}
            made = self._object(cls)
            tag = codec.PART_TAGS.get(cls)
            if tag is not None:
                made["properties"] = {"p": {"const": tag}, **made["properties"]}
            self._definitions[name] = {"anyOf": [{"type": "string"}, made]} if name == "Text" else made
        return {"$ref": f"#/$defs/{name}"}


_PLAIN: Final[dict[Any, dict[str, Json]]] = {
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}
