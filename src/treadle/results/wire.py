"""The public JSON form of events, results, pages, reports, snapshots and errors, in both directions.

`--json`, JSON lines, HTTP and the client use this one form:

    an object of a class    every field by its name, those with their default too
    a part of a message     with its kind in `type`: "text", "image", "file", "reasoning", "tool_call", "tool_result"
    an event                with the head below, and its kind in `kind`
    bytes                   base64
    money                   decimal text, such as "0.0008625": a number would lose digits
    times                   microseconds since 1970, UTC
    NaN and infinity        null

The head is the same for all events. Only stored events have `seq` and `time`, and only those of calls have `tool`:

    {"format": 2, "kind": "tool_ended", "task_id": "01a2...", "agent_path": ["shop"], "seq": 7,
     "time": 1763700000000000, "description": "price ended (s1-0): ok", "tool": "price",
     "step": "s1", "call": "s1-0", "outcome": "ok", "output": 250, ...}

The random numbers of frames are not written, since a reader of an event could forge a frame with them. A release may
add kinds and fields. A reader ignores unknown ones, unless it reads strictly. A change that changes or removes a field
raises `FORMAT`.

The writer and reader of a class are derived from its annotations, once per class. JSON data in a field is shared with
the result, not copied. No document names code: a tag selects from a fixed table.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from math import nan
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

from treadle.core.codec import whole_characters
from treadle.core.events import (
    EVENTS,
    CallOccurrence,
    ChildEvent,
    Ephemeral,
    Event,
    EventOrigin,
    Occurrence,
    ToolStopped,
    UnknownEvent,
)
from treadle.core.messages import File, Image, Json, Message, Messages, Reasoning, Text, ToolCall, ToolResult
from treadle.core.spending import as_dollars, picodollars
from treadle.core.tools import Happened, NotHappened, Unknown
from treadle.errors import InvalidField

_TUPLES: Final[dict[Any, type[tuple[Any, ...]]]] = {Message: Messages}
"""The tuple classes to read, by the class of their items."""

FORMAT: Final = 2
"""The version of this form; each event has it in `format`."""

EPHEMERAL: Final[dict[str, type[Any]]] = {cls.kind: cls for cls in get_args(Ephemeral)}
"""The classes of events that are never stored, by tag."""

TAGS: Final[dict[type[Any], str]] = {
    Text: "text",
    Image: "image",
    File: "file",
    Reasoning: "reasoning",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
    Happened: "happened",
    NotHappened: "not_happened",
    Unknown: "unknown",
}
"""The classes that share a field: an object names its own in `type`."""

HEAD: Final = ("format", "kind", "task_id", "agent_path", "seq", "time", "description", "tool")
"""The names before an event's own fields; `Delta` has a field `tool` of its own."""

DERIVED: Final[dict[str, tuple[str, ...]]] = {
    "Failure": ("provider", "retryable"),
    "RunResult": ("state_text",),
    "Task": ("state_text",),
    "TaskSummary": ("state_text",),
    "ToolStopped": ("unknown",),
}
"""Properties that are written after the fields of a class, by its name, and not read."""

T = TypeVar("T")
_Writer = Callable[[Any], Json]
_Reader = Callable[[Any, bool], Any]

_TAGGED: Final = {tag: cls for cls, tag in TAGS.items()}
_PARTS_OF_FORMAT_1: Final = {"call": "tool_call", "result": "tool_result"}
_ABSENT: Final = object()
_LEVELS: Final = 200
"""The deepest nesting of a value at the second attempt to write it. The writer's own limit is 255."""

_MOST_NUMBER: Final = 1e300
"""The largest integer that is read as a number; arithmetic of larger ones with floats fails."""

_MOST_DIGITS: Final = 100
"""The most digits of an amount before or after the point. Written out, `1E-999999999` would be a gigabyte."""


# ------------------------------------------------------------------------------------------------ writing


def to_wire(value: Any) -> Json:
    """Return a value as data for a JSON writer. It shares JSON data with the value, so do not change it.

    It may hold values that only `wire_bytes` can write: non-finite numbers and objects of foreign classes.
    """
    return _WRITERS[value.__class__](value)


def wire_bytes(value: Any) -> bytes:
    """Return a value as one line of JSON in UTF-8.

    Non-finite numbers become null, lone surrogates `?`, and values nested too deep a text that says so. Objects of
    foreign classes are written by pydantic if it can, else as their `repr`.
    """
    json_ = _json()
    document = to_wire(value)
    try:
        return json_.to_json(document, **_HOW)
    except ValueError:
        document = whole_characters(json_.to_jsonable_python(_writable(document, _LEVELS), **_HOW))
        return json_.to_json(document, **_HOW)


def _writable(value: Any, levels: int) -> Any:
    """Return data without lone surrogates, cut at a nesting depth of `levels`."""
    if isinstance(value, (dict, list, tuple)) and not levels:
        return "(nested too deep)"
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {
            whole_characters(key) if isinstance(key, str) else key: _writable(item, levels - 1)
            for key, item in items
        }
    if isinstance(value, (list, tuple)):
        return [_writable(item, levels - 1) for item in cast("Sequence[Any]", value)]
    return whole_characters(value)


def plain_wire(value: Any) -> Json:
    """Return a value as plain JSON data of its own, equal to parsed `wire_bytes`."""
    return _json().from_json(wire_bytes(value))


_HOW: Final[dict[str, Any]] = {"inf_nan_mode": "null", "bytes_mode": "base64", "fallback": repr}


@cache
def _json() -> Any:
    """Return the JSON library. Its import takes longer than that of this package."""
    import pydantic_core

    return pydantic_core


class _Writers(dict[type[Any], _Writer]):
    """The writers by class, each made at its first use."""

    def __missing__(self, cls: type[Any]) -> _Writer:
        writer = self[cls] = _writer_of(cls)
        return writer


def _writer_of(cls: Any) -> _Writer:
    for base, write in _PLAIN_WRITERS.items():
        if issubclass(cls, base):
            return write
    if cls is UnknownEvent:
        return lambda event: {"format": FORMAT, "kind": event.tag, **_head(event), **event.data}
    if is_data_class(cls) and cls.__module__.startswith("treadle."):
        return _compiled_writer(cls)
    if issubclass(cls, tuple) and (names := own_fields(cls)):
        return lambda value: {
            "items": _list(value),
            **{name: to_wire(getattr(value, name)) for name in names},
        }
    if issubclass(cls, (Sequence, Set)):
        return _list
    if issubclass(cls, Mapping):
        return lambda value: {key: _WRITERS[item.__class__](item) for key, item in value.items()}
    return _identity


def is_data_class(hint: Any) -> bool:
    """Return whether a type is a class with fields; `is_dataclass` accepts values too."""
    return isinstance(hint, type) and hasattr(hint, "__dataclass_fields__")


def own_fields(cls: Any) -> tuple[str, ...]:
    """Return the names of the attributes that a subclass of tuple has beside its items."""
    return tuple([name for name in inspect.get_annotations(cls) if not name.startswith("_")])


def tuple_of(cls: Any) -> Any:
    """Return the `tuple[...]` base of a class, as in its definition."""
    return next(base for base in cls.__orig_bases__ if issubclass(get_origin(base) or base, tuple))


def _identity(value: Any) -> Any:
    return value


def _list(values: Any) -> list[Json]:
    return [_WRITERS[value.__class__](value) for value in values]


def _microseconds(value: datetime) -> int:
    return round(value.timestamp() * 1e6)


_PLAIN_WRITERS: Final[dict[type[Any], _Writer]] = {
    str: _identity,
    bytes: lambda value: base64.b64encode(value).decode("ascii"),
    Decimal: lambda value: format(value, "f"),
    datetime: _microseconds,
}


def _compiled_writer(cls: type[Any]) -> _Writer:
    """Compile the writer of a class: one expression for each field."""
    hints = typing.get_type_hints(cls)
    items: list[str] = []
    if issubclass(cls, Occurrence):
        items += [f"'format': {FORMAT}", f"'kind': {cls.kind!r}", "**_head(it)"]
    elif cls in TAGS:
        items.append(f"'type': {TAGS[cls]!r}")
    for item in written_fields(cls):
        hint, value = hints[item.name], f"it.{item.name}"
        expression = f"_amount({value})" if is_cost(item.name, hint) else _expression(hint, value)
        items.append(f"{item.name!r}: {expression}")
    items += [f"{name!r}: it.{name}" for name in DERIVED.get(cls.__name__, ())]
    namespace: dict[str, Any] = {"_amount": _amount, "_head": _head, "_list": _list, "_writers": _WRITERS}
    exec(f"def write(it): return {{{', '.join(items)}}}", namespace)  # noqa: S102  made of the names of fields alone
    return namespace["write"]


def written_fields(cls: type[Any]) -> list[Field[Any]]:
    """Return the fields of a class that are written by name, without those of the head."""
    return [item for item in fields(cls) if item.compare]


def is_cost(name: str, hint: Any) -> bool:
    """Return whether a field holds pico-dollars: JSON readers in other languages round integers beyond 2**53."""
    return name == "cost" and hint in (int, int | None)


def _amount(pico: int | None) -> str | None:
    return None if pico is None else format(as_dollars(pico), "f")


def _expression(hint: Any, value: str) -> str:
    """Return the expression that writes a value of a type."""
    if _is_written_as_it_is(hint):
        return value
    if get_origin(hint) is tuple:
        return f"list({value})" if _is_written_as_it_is(get_args(hint)[0]) else f"_list({value})"
    return f"_writers[{value}.__class__]({value})"


def _is_written_as_it_is(hint: Any) -> bool:
    if hint in (str, int, float, bool, type(None)) or _is_any(hint):
        return True
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(map(_is_any, options)) or all(map(_is_written_as_it_is, options))
    return origin is Literal or (origin is dict and _is_written_as_it_is(options[1]))


def _is_any(hint: Any) -> bool:
    """Return whether values of a type are JSON data, or of a caller's own type."""
    return hint is Any or isinstance(hint, TypeVar)


def _head(event: Any) -> dict[str, Json]:
    """Return the part of an event's head that follows its kind."""
    head: dict[str, Json] = {"task_id": event.task_id, "agent_path": list(event.agent_path)}
    if isinstance(event, Event):
        head["seq"], head["time"] = event.seq, event.time
    head["description"] = event.description
    if isinstance(event, CallOccurrence):
        head["tool"] = event.tool
    return head


_WRITERS: Final = _Writers()


# ------------------------------------------------------------------------------------------------ reading


def from_wire(cls: type[T], document: Json, *, strict: bool = False) -> T:
    """Return a value of a type from its document; JSON data in it is shared, not copied.

    Args:
        cls: a class of Treadle's, or a type built from them, such as `tuple[Pending, ...]`; `Event` for any event.
        document: a parsed JSON document that `to_wire` made.
        strict: refuse fields and words that this version does not know. By default unknown fields are ignored and
            unknown words kept: a later release may have written the document.

    Raises:
        InvalidField: a field is missing, unknown or of another type; the error names it.
        ConfigurationError: the class refuses a value.
    """
    return _reader(cls)(document, strict)


@cache
def _reader(hint: Any) -> _Reader:
    if _is_any(hint):
        return _read_any
    if hint in _PLAIN_READERS:
        return _PLAIN_READERS[hint]
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _read_any if any(map(_is_any, options)) else _union_reader(options)
    if origin is Literal:
        return _literal_reader(options)
    if origin in (tuple, list, Sequence):
        return _list_reader(options[0], list if origin is list else _TUPLES.get(options[0], tuple))
    if origin in (dict, Mapping):
        return _mapping_reader(options[1])
    return _class_reader(origin or hint)


def _class_reader(cls: Any) -> _Reader:
    if issubclass(cls, Occurrence):
        return _occurrence_reader(cls)
    if is_data_class(cls):
        return lambda document, strict: _FIELD_READERS[cls](document, strict)  # noqa: PLW0108  a class may hold itself
    if issubclass(cls, tuple):
        return _tuple_class_reader(cls)
    raise TypeError(f"the wire form cannot read {cls!r}")


def _misfit(expected: str, value: Any) -> InvalidField:
    return InvalidField(f"should be {expected}, and is {value!r:.60}")


def _read_any(value: Any, _: bool) -> Any:
    return value


def _exactly(cls: type[Any], expected: str) -> _Reader:
    def read(value: Any, _: bool) -> Any:
        if value.__class__ is not cls:
            raise _misfit(expected, value)
        return value

    return read


def _read_number(value: Any, _: bool) -> float:
    if value is None:
        return nan
    if value.__class__ is not float and not (value.__class__ is int and abs(value) < _MOST_NUMBER):
        raise _misfit("a number", value)
    return value


def _read_money(value: Any, _: bool) -> Decimal:
    try:
        amount = Decimal(value) if value.__class__ in (str, int) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or not -_MOST_DIGITS < amount.adjusted() < _MOST_DIGITS:
        raise _misfit("an amount as decimal text", value)
    return amount


def _read_amount(value: Any, strict: bool) -> int | None:
    """Return an amount in pico-dollars; format 1 had it as such an integer."""
    return value if value is None or value.__class__ is int else picodollars(_read_money(value, strict))


def _read_bytes(value: Any, _: bool) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _misfit("base64 text", value) from None


def _read_time(value: Any, _: bool) -> datetime:
    try:
        return datetime.fromtimestamp(value / 1e6, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise _misfit("microseconds since 1970, UTC", value) from None


_PLAIN_READERS: Final[dict[Any, _Reader]] = {
    str: _exactly(str, "text"),
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    dict: _exactly(dict, "an object"),
    type(None): _exactly(type(None), "null"),
    float: _read_number,
    Decimal: _read_money,
    bytes: _read_bytes,
    datetime: _read_time,
}


def _literal_reader(options: tuple[Any, ...]) -> _Reader:
    expected = f"one of {', '.join(map(repr, options))}"
    kinds = frozenset(map(type, options))

    def read(value: Any, strict: bool) -> Any:
        if value.__class__ not in kinds or (strict and value not in options):
            raise _misfit(
                expected, value
            )  # a later release may have more of them, and is read without `strict`
        return value

    return read


def _list_reader(hint: Any, build: Callable[[list[Any]], Any]) -> _Reader:
    read_item = _reader(hint)

    def read(values: Any, strict: bool) -> Any:
        if values.__class__ is not list:
            raise _misfit("a list", values)
        items: list[Any] = []
        try:
            for value in values:
                items.append(read_item(value, strict))  # noqa: PERF401  the place of a problem is its length
        except InvalidField as problem:
            raise problem.inside(f"[{len(items)}]") from None
        return items if build is list else build(items)

    return read


def _mapping_reader(hint: Any) -> _Reader:
    if hint is Any:
        return _PLAIN_READERS[dict]
    read_item = _reader(hint)

    def read(document: Any, strict: bool) -> Any:
        if document.__class__ is not dict:
            raise _misfit("an object", document)
        items: dict[str, Any] = {}
        for name, value in document.items():
            try:
                items[name] = read_item(value, strict)
            except InvalidField as problem:
                raise problem.inside(name) from None
        return items

    return read


def _union_reader(options: tuple[Any, ...]) -> _Reader:
    """Return the reader of a union, which selects a type by the JSON type and the tag of an object."""
    readers: dict[type[Any], _Reader] = {}
    classes: list[type[Any]] = []
    for option in options:
        if is_data_class(option):
            classes.append(cast("type[Any]", option))
        for kind in _json_types(option):
            readers.setdefault(kind, _reader(option))
    if len(classes) > 1:
        readers[dict] = _tagged_reader(tuple(classes))
    if Text in classes:  # as format 1 has it, and as people write it
        readers.setdefault(str, lambda value, _: Text(value))
    expected = " or ".join(dict.fromkeys(_type_name(option) for option in options))

    def read(value: Any, strict: bool) -> Any:
        read_as = readers.get(value.__class__)
        if read_as is None:
            raise _misfit(expected, value)
        return read_as(value, strict)

    return read


def _json_types(hint: Any) -> tuple[type[Any], ...]:
    """Return the Python types that a JSON parser produces for a value of a type."""
    if get_origin(hint) is Literal:
        return tuple({option.__class__: None for option in get_args(hint)})
    if hint in (str, bytes):
        return (str,)
    if hint is float:
        return (float, int)
    if hint is Decimal:
        return (str, int)
    if hint is datetime:
        return (int,)
    if hint in (int, bool, type(None)):
        return (hint,)
    return (list,) if get_origin(hint) in (tuple, list, Sequence) else (dict,)


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(map(repr, get_args(hint)))
    return _NAMES.get(_json_types(hint)[0], "an object")


_NAMES: Final[dict[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _tagged_reader(classes: tuple[type[Any], ...]) -> _Reader:
    """Return the reader of objects whose tag selects one of several classes."""
    if all(issubclass(cls, Occurrence) for cls in classes):
        return _occurrence_reader(Occurrence)  # a later release may have more of them
    if missing := [cls.__name__ for cls in classes if cls not in TAGS]:
        raise TypeError(
            f"the wire form cannot tell {' and '.join(missing)} from the other classes beside them"
        )
    expected = f"one of {', '.join(repr(TAGS[cls]) for cls in classes)}"

    def read(document: Any, strict: bool) -> Any:
        tag = document.get("type") or _PARTS_OF_FORMAT_1.get(document.get("p"), document.get("p"))
        cls = _TAGGED.get(tag) if isinstance(tag, str) else None
        if cls is None and Text in classes and not strict:
            return Text("", meta={"unknown_part": document})
        if cls not in classes:
            raise _misfit(expected, tag).inside("type")
        return _FIELD_READERS[cls](document, strict)

    return read


def _tuple_class_reader(cls: Any) -> _Reader:
    read_items = _reader(tuple_of(cls))
    hints = typing.get_type_hints(cls)
    readers = {name: _reader(hints[name]) for name in own_fields(cls)}

    def read(document: Any, strict: bool) -> Any:
        if not readers:
            return cls(read_items(document, strict))
        if document.__class__ is not dict:
            raise _misfit("an object", document)
        own = {name: read(document[name], strict) for name, read in readers.items() if name in document}
        return cls(read_items(document.get("items"), strict), **own)

    return read


class _FieldReaders(dict[type[Any], _Reader]):
    """The readers by class, each compiled at its first use."""

    def __missing__(self, cls: type[Any]) -> _Reader:
        reader = self[cls] = _compiled_reader(cls)
        return reader


_FIELD_READERS: Final = _FieldReaders()


def _compiled_reader(cls: type[Any]) -> _Reader:
    """Compile the reader of a class: a few statements for each field."""
    hints = typing.get_type_hints(cls)
    known = {*DERIVED.get(cls.__name__, ()), *(HEAD if issubclass(cls, Occurrence) else ())}
    known |= {"type"} if cls in TAGS else set[str]()
    namespace: dict[str, Any] = {
        "_cls": cls,
        "_absent": _ABSENT,
        "_misfit": _misfit,
        "_problem": InvalidField,
    }
    lines = [
        "def read(document, strict):",
        " if document.__class__ is not dict: raise _misfit('an object', document)",
        " if strict and not _known.issuperset(document): raise _problem.unknown(document, _known)",
        " given = {}",
    ]
    for item in written_fields(cls):
        name, hint = item.name, hints[item.name]
        read = _read_amount if is_cost(name, hint) else _reader(hint)
        known.add(name)
        lines.append(f" value = document.get({name!r}, _absent)")
        lines.append(" if value is not _absent:")
        if read is _read_any:
            lines.append(f"  given[{name!r}] = value")
        else:
            namespace[f"_read_{name}"] = read
            lines.append(f"  try: given[{name!r}] = _read_{name}(value, strict)")
            lines.append(f"  except _problem as problem: raise problem.inside({name!r}) from None")
        if item.default is MISSING and item.default_factory is MISSING:
            lines.append(f" else: raise _problem('is missing', field={name!r})")
    namespace["_known"] = frozenset(known)
    exec("\n".join([*lines, " return _cls(**given)"]), namespace)  # noqa: S102  made of the names of fields alone
    return namespace["read"]


# ------------------------------------------------------------------------------------------------- events


def _occurrence_reader(cls: type[Any]) -> _Reader:
    """Return the reader of events of a class or its subclasses."""

    def read(document: Any, strict: bool) -> Any:
        event = _read_event(document, strict)
        if not isinstance(event, cls):
            raise _misfit(cls.__name__, document["kind"]).inside("kind")
        return event

    return read


def _read_event(document: Any, strict: bool) -> Any:
    """Return the event of a document; one of an unknown kind is an `UnknownEvent`."""
    kind: Any = document.get("kind") if document.__class__ is dict else None
    if kind.__class__ is not str:
        raise InvalidField(f"an event must be an object with a `kind`, got {document!r:.60}")
    version = document.get("format", FORMAT)
    if version.__class__ is not int or not 1 <= version <= FORMAT:
        raise InvalidField(
            f"an event in format {version!r:.20}; this version reads format {FORMAT}: upgrade treadle",
            field="format",
        )
    cls = EVENTS.get(kind) or EPHEMERAL.get(kind)
    if cls is None:
        event: Any = UnknownEvent(kind, {name: value for name, value in document.items() if name not in HEAD})
    else:
        event = _FIELD_READERS[cls](document, strict)
    if isinstance(event, Event):
        event.seq = _read_head(document, "seq", int, 0)
        event.time = _read_head(document, "time", int, 0)
    if isinstance(event, CallOccurrence):
        event.tool_name = _read_head(document, "tool", str, "")
    if isinstance(event, ToolStopped):
        event.in_doubt = _read_head(document, "unknown", bool, False)
    path = _read_head(document, "agent_path", tuple[str, ...], ())
    below = len(event.path) if isinstance(event, ChildEvent) else 0
    event.origin = EventOrigin(_read_head(document, "task_id", str, ""), path[: len(path) - below])
    return event


def _read_head(document: dict[str, Any], name: str, hint: Any, default: Any) -> Any:
    if name not in document:
        return default
    try:
        return _reader(hint)(document[name], False)
    except InvalidField as problem:
        raise problem.inside(name) from None
