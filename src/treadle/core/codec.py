"""Encode and decode events: versioned JSON with short tags. Reading converts older versions and keeps unknown kinds as
data.

A record holds the events of one commit:

    {"v": 1, "t": 1763700000000000, "e": [{"k": "step_started", "d": 12, "step": "s1", "index": 1}, ...]}

`t` is the time of its first event, and `d` an event's distance from the one before, in microseconds. A driver that does
not know the kind of an event with `"i": 1` may ignore it. Fields with their default are left out. The form of a field
follows from its type, and is compiled once per class. Both directions use the same conditions, so that an event which a
reader would refuse is not written (`UnreadableRecord`).

In a record over `BLOB_OVER` bytes, a string longer than `BLOB_OVER` characters is stored apart, by digest, and
`{"$blob": ...}` replaces it. Such a record is marked `"b": 1`, and only there keys that start with `$` are escaped. A
record never names code: a tag selects from a fixed table, and everything else is data.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from math import isfinite
from operator import attrgetter, sub
from typing import Any, Final, Literal, Union, cast, get_args, get_origin

from treadle.core.data import mutable
from treadle.core.events import EVENTS, Event, UnknownEvent
from treadle.core.messages import Text, copied
from treadle.core.stored_structs import (
    END_OF_TIME,
    PART_TAGS,
    PARTS,
    WHOLE,
    StructDecoder,
    hints_of,
    is_data_class,
)

VERSION = 1
"""The format this code writes."""

BLOB_OVER = 8_192

DIGITS: Final = 4_300
LARGEST: Final = 10**DIGITS
"""The limit of all other whole numbers, on both sides of 0: JSON readers refuse more digits."""

STRIDE: Final = 256
_MANY_DIGITS: Final = re.compile(rb"\d{%d}" % (DIGITS // STRIDE))
"""Matches every `STRIDE`th byte of data with more than `DIGITS` digits in a row, and rarely anything else."""

MAX_DEPTH: Final = 100
"""The deepest nesting of lists and objects in data from outside. Every JSON reader accepts it."""

NO_JSON: Final = "no JSON data"

MAX_CHARACTERS: Final = 32_000_000
"""The most characters of a value from outside, in all. It is copied several times before it is stored."""

TOO_LONG: Final = f"a whole number of more than {DIGITS:,} digits"
NO_NUMBER: Final = "a number that JSON cannot hold (NaN or Infinity)"

FEW: Final = 100
SHORT: Final = 10_000
"""The most fields of an object, and characters of each, that the quick check of `flaw` accepts."""

UPCASTERS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""For each older version, a function from its event documents to those of the next version."""

_Step = Callable[[Any], Any]
_Writer = Callable[[Any], dict[str, Any]]


class UnreadableRecord(ValueError):
    """A record is not of this codec's form, or an event cannot be written as one. The message says why."""


def _same(value: Any) -> Any:
    return value


def _encode_bytes(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _decode_bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


@mutable
class _Plan:
    """The compiled functions of a class: one writes a new document, the other reads a document and consumes it."""

    encode: _Writer
    decode: Callable[[dict[str, Any]], Any]


@cache
def _plan(cls: type[Any], lenient: bool = False, as_part: bool = False) -> _Plan:
    """Compile both directions of a class: a statement or two for each field.

    The document of an event begins with its kind. With `as_part`, it is that of a message part and begins with its tag.
    A lenient plan reads records of a newer version: it omits unknown fields, and accepts any text for one of several.
    """
    hints = hints_of(cls)
    is_event = issubclass(cls, Event) and EVENTS.get(cls.kind) is cls
    items = [item for item in fields(cls) if not is_event or item.name not in ("seq", "time")]
    namespace: dict[str, Any] = {"_cls": cls, "_misfit": _misfit}
    head = {"k": cls.kind} if is_event else {"p": PART_TAGS[cls]} if as_part else {}
    lines = _writing(items, hints, head, namespace)
    if is_event and cls.ignorable:
        lines.append(" document['i'] = 1")
    lines += [" return document", *_reading(items, hints, namespace, lenient)]
    exec("\n".join(lines), namespace)  # noqa: S102  made of the names of fields alone
    return _Plan(namespace["encode"], namespace["decode"])


def _writing(
    items: Sequence[Field[Any]], hints: dict[str, Any], head: dict[str, str], namespace: dict[str, Any]
) -> list[str]:
    """Return the statements that write an object. They omit fields with their default."""
    display = [f"{key!r}: {tag!r}" for key, tag in head.items()]
    checks, later = list[str](), list[str]()
    for item in items:
        name = item.name
        differs, is_left_out_empty = _unlike_default(item, namespace)
        hint = _without_none(hints[name]) if item.default is None else hints[name]
        value, its = _written_field(name, hint, namespace), f"its_{name}"
        misfits = "" if value != f"made.{name}" else _misfits(hint, name, its, namespace)
        if misfits:
            namespace[f"_odd_{name}"] = _odd(name, hint)
        if not differs:
            display.append(f"{name!r}: ({its} := {value})" if misfits else f"{name!r}: {value}")
            checks += [f" if {misfits}: document[{name!r}] = _odd_{name}({its})"] if misfits else []
        elif is_left_out_empty:
            later.append(f" if {differs} and ({its} := {value}): document[{name!r}] = {its}")
        elif misfits:
            later.append(f" if {differs}:")
            later.append(f"  {its} = {value}")
            later.append(f"  if {misfits}: {its} = _odd_{name}({its})")
            later.append(f"  document[{name!r}] = {its}")
        else:
            later.append(f" if {differs}: document[{name!r}] = {value}")
    return ["def encode(made):", f" document = {{{', '.join(display)}}}", *checks, *later]


def _reading(
    items: Sequence[Field[Any]], hints: dict[str, Any], namespace: dict[str, Any], lenient: bool
) -> list[str]:
    """Return the statements that read an object. They check each field that is present."""
    reading, checks = ["def decode(document):"], list[str]()
    if lenient:
        namespace["_names"] = frozenset([item.name for item in items])
        reading.append(" for name in [name for name in document if name not in _names]: del document[name]")
    for item in items:
        name = item.name
        read = _directions(hints[name], lenient)[1]
        fits = _condition(hints[name], name, namespace, lenient)
        if read is not _same:
            namespace[f"_read_{name}"] = read
            reading.append(f" if {name!r} in document: document[{name!r}] = _read_{name}(document[{name!r}])")
        elif fits:
            namespace[f"_hint_{name}"] = hints[name]
            differs = f"value is not _default_{name} and " if f"_default_{name}" in namespace else ""
            checks.append(f" value = made.{name}")
            checks.append(f" if {differs}not ({fits}): raise _misfit({name!r}, _hint_{name}, value)")
    return [*reading, " made = _cls(**document)", *checks, " return made"]


def _written_field(name: str, hint: Any, namespace: dict[str, Any]) -> str:
    """Return the expression that writes a field: `made.NAME` if the value is written unchanged."""
    write = _directions(hint)[0]
    if write is _same:
        return f"made.{name}"
    namespace[f"_write_{name}"] = write
    if get_origin(hint) is tuple and (item := _directions(get_args(hint)[0])[0]) is not _same:
        namespace[f"_write_{name}"] = item
        return f"list(map(_write_{name}, made.{name}))"
    return f"_write_{name}(made.{name})"


def _without_none(hint: Any) -> Any:
    options = [option for option in get_args(hint) if option is not type(None)]
    is_union = get_origin(hint) in (Union, types.UnionType)
    return options[0] if is_union and len(options) == 1 else hint


def _misfits(hint: Any, name: str, value: str, namespace: dict[str, Any]) -> str:
    """Return the condition under which a value is checked before it is written, empty if none is.

    It holds for every value of another type, and for few of this type.
    """
    if hint in (str, bool):
        return f"{value}.__class__ is not {hint.__name__}"
    if hint is int:
        return f"{value}.__class__ is not int or {value} >> {WHOLE.bit_length() - 1}"
    fits = _condition(hint, name, namespace, value=value)
    return fits and f"not ({fits})"


def _condition(
    hint: Any, name: str, namespace: dict[str, Any], lenient: bool = False, value: str = "value"
) -> str:
    """Return the condition under which a value in its stored form fits a type, empty if any value fits."""
    origin = get_origin(hint)
    if hint is Any:
        return ""
    if origin in (Union, types.UnionType):
        conditions = [_condition(option, name, namespace, lenient, value) for option in get_args(hint)]
        return " or ".join([f"({condition})" for condition in conditions])
    if origin is Literal:
        namespace[f"_words_{name}"] = frozenset(get_args(hint))
        return f"{value}.__class__ is str" if lenient else f"{value} in _words_{name}"
    if hint is type(None):
        return f"{value} is None"
    if hint is int:
        return f"{value}.__class__ is int and -{WHOLE} < {value} < {WHOLE}"
    if hint is float:
        namespace["_LARGEST"] = LARGEST
        return f"{value}.__class__ is float or {value}.__class__ is int and -_LARGEST < {value} < _LARGEST"
    return f"{value}.__class__ is {(origin or hint).__name__}"


def _fits(hint: Any, lenient: bool = False) -> Callable[[Any], bool]:
    """Return a function that tells whether a value in its stored form fits a type."""
    namespace: dict[str, Any] = {}
    condition = _condition(hint, "value", namespace, lenient)
    return eval(f"lambda value: {condition or True}", namespace)  # noqa: S307  made of a type alone


def _odd(name: str, hint: Any) -> _Step:
    """Return a function that checks a value and writes it. A value of another type may be accepted, such as a member of
    an enum.
    """
    fits = _fits(hint)

    def write(value: Any) -> Any:
        try:
            written = _json().from_json(_json().to_json(value, inf_nan_mode="constants"), allow_inf_nan=True)
        except (ValueError, RecursionError):
            raise _misfit(name, hint, value) from None
        if not fits(written):
            raise _misfit(name, hint, value)
        return written

    return write


def _misfit(name: str, hint: Any, value: Any) -> UnreadableRecord:
    return UnreadableRecord(f"{name} should be {_named(hint)}, and is {value!r:.60}")


def _named(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join([_named(option) for option in get_args(hint)])
    if origin is Literal:
        return " or ".join([repr(literal) for literal in get_args(hint)])
    return _NAMES.get(origin or hint, "a value of the declared type")


_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number of at most 64 bits",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    tuple: "a list",
    type(None): "null",
}


def _unlike_default(item: Field[Any], namespace: dict[str, Any]) -> tuple[str, bool]:
    """Return the condition under which a field is written, and whether empty JSON omits it.

    The condition is empty for a field without a default: it is always written.
    """
    default: Any = item.default_factory() if item.default_factory is not MISSING else item.default
    if default is MISSING:
        return "", False
    made, name = f"made.{item.name}", f"_default_{item.name}"
    if default is None:
        return f"{made} is not None", False
    namespace[name], cls = default, default.__class__
    if is_data_class(cls) and not _plan(cls, False).encode(default):
        return f"{made} is not {name}", True
    if any(default is single for single in _SINGLE):
        return f"{made} is not {name}", False
    return f"{made} is not {name} and ({made} != {name} or type({made}) is not type({name}))", False


_SINGLE: Final = (True, False, 0, 1, "", ())
"""Values with only one object of their type. Any other object is unequal, or of another type."""


def _directions(hint: Any, lenient: bool = False) -> tuple[_Step, _Step]:
    """Return the functions that write and read a value of a type. `lenient` as in `_plan`."""
    origin = get_origin(hint)
    options = [option for option in get_args(hint) if option is not type(None)]
    if origin in (Union, types.UnionType):
        if all(option in PARTS.values() for option in options):
            return _part_written(frozenset(options)), _part_of(hint, lenient)
        if len(options) == 1:
            encode, decode = _directions(options[0], lenient)
            if encode is _same:
                return _same, _same
            return (lambda v: None if v is None else encode(v)), (lambda v: None if v is None else decode(v))
        return _same, _same
    if origin is tuple:
        encode, decode = _directions(options[0], lenient)
        if encode is _same:
            return _list_of(options[0]), _tuple_of(options[0], lenient)
        return (lambda v: list(map(encode, v))), _tuple_read_by(decode)
    if hint is bytes:
        return _encode_bytes, _decode_bytes
    if is_data_class(hint):
        plan = _plan(hint, lenient)
        return plan.encode, plan.decode
    if origin in (dict, list, Literal) or hint in (str, int, float, bool, Any, type(None)):
        return _same, _same
    raise TypeError(f"the codec knows no way to write {hint!r}")


def _tuple_read_by(decode: _Step) -> _Step:
    def read(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise _misfit("a field", list, values)
        return tuple([decode(value) for value in cast("list[Any]", values)])

    return read


def _list_of(hint: Any) -> _Step:
    """Return a function that writes a tuple of values in unchanged form."""
    fits, odd = _fits(hint), _odd("an item of a list", hint)

    def write(values: Any) -> Any:
        if type(values) is not tuple and type(values) is not list:
            raise _misfit("a field", list, values)
        items = cast("tuple[Any, ...]", values)
        return list(items) if all(map(fits, items)) else [v if fits(v) else odd(v) for v in items]

    return write


def _tuple_of(hint: Any, lenient: bool = False) -> _Step:
    """Return a function that reads a list of values in their stored form."""
    if hint is Any:
        return _tuple_read_by(_same)
    fits = _fits(hint, lenient)

    def item(value: Any) -> Any:
        if not fits(value):
            raise _misfit("an item of a list", hint, value)
        return value

    return _tuple_read_by(item)


def _part_of(hint: Any, lenient: bool = False) -> _Step:
    """Return a function that reads a message part of one of several kinds. Text is always one of them."""
    kinds = frozenset(get_args(hint))

    def read(document: Any) -> Any:
        if type(document) is str:
            return Text(document)
        part = decode_part(document, lenient)
        if type(part) not in kinds:
            raise UnreadableRecord(f"a {PART_TAGS[type(part)]} does not belong here")
        return part

    return read


def _part_written(kinds: frozenset[Any]) -> _Step:
    """Return a function that writes a message part of one of several kinds."""

    def write(part: Any) -> Any:
        # Most parts are text without meta and label: they are written as plain strings.
        kind = part.__class__
        if kind is Text and part.meta is None and part.label is None and part.text.__class__ is str:
            return part.text
        if kind not in kinds:
            raise UnreadableRecord(f"a {kind.__name__} does not belong here")
        return _plan(kind, False, True).encode(part)

    return write


encode_part: Final = _part_written(frozenset(PARTS.values()))
"""Return a message part as JSON data. Raises `UnreadableRecord` for a part that could not be read again."""


def decode_part(document: Any, lenient: bool = False) -> Any:
    """Return the message part of data from `encode_part`, and consume the data. `lenient` as in `_plan`."""
    if isinstance(document, str):
        return Text(document)
    if type(document) is not dict:
        raise UnreadableRecord(f"a part of a message should be text or an object, and is {document!r:.60}")
    cls = PARTS.get(cast("dict[str, Any]", document).pop("p", ""))
    if cls is None:
        return Text("", meta={"unknown_part": document})
    return _plan(cls, lenient, True).decode(cast("dict[str, Any]", document))


# ------------------------------------------------------------------------------------------- records


def encode(events: Sequence[Event]) -> tuple[bytes, dict[str, bytes]]:
    """Return a record's bytes and its large values, by digest.

    Halves of characters (lone surrogates), which UTF-8 cannot hold, are written as `?`.

    Raises `UnreadableRecord` for an event that could not be read again. Its kind may be unknown, or a field may have
    another type. A number may be out of range, or the time outside of the years with dates.
    """
    json_ = _json()
    event = events[0]
    start = event.time
    documents: list[dict[str, Any]] = []
    times = list(map(_time_of, events))
    if set(map(type, times)) != _WHOLE_NUMBER or min(times) < 0 or max(times) >= END_OF_TIME:
        raise _no_time(events)
    try:
        for event, pause in zip(events, map(sub, times, [start, *times]), strict=False):
            document = _WRITERS[event.__class__](event)
            if pause:
                document["d"] = pause
            documents.append(document)
    except (TypeError, ValueError, AttributeError) as error:
        raise UnreadableRecord(f"a {event.kind} event cannot be written: {error}") from error
    record: dict[str, Any] = {"v": VERSION, "t": start, "e": documents}
    try:
        data = json_.to_json(record, inf_nan_mode="constants")
    except json_.PydanticSerializationError:
        documents = record["e"] = whole_characters(documents)
        data = json_.to_json(record, inf_nan_mode="constants")
    if len(data) > DIGITS and _MANY_DIGITS.search(data[::STRIDE]):
        _check_numbers(data)
    if len(data) <= BLOB_OVER:
        return data, {}
    blobs: dict[str, bytes] = {}
    outside = _take_out(documents, blobs)
    if not blobs:
        return data, {}
    return json_.to_json({**record, "e": outside, "b": 1}, inf_nan_mode="constants"), blobs


_time_of: Final = attrgetter("time")
_WHOLE_NUMBER: Final = {int}


def _no_time(events: Sequence[Event]) -> UnreadableRecord:
    """Return the error for the event whose time is out of range."""
    event = next(e for e in events if type(e.time) is not int or not 0 <= e.time < END_OF_TIME)  # pyright: ignore[reportUnnecessaryComparison]
    return UnreadableRecord(f"a {event.kind} event cannot be written at {event.time!r:.60} microseconds")


def _check_numbers(data: bytes) -> None:
    """Raise `UnreadableRecord` if JSON bytes hold a number that readers refuse."""
    try:
        _parsed(data)
    except UnreadableRecord as error:
        raise UnreadableRecord(f"a record cannot hold {TOO_LONG}") from error


def _write_unknown(event: Any) -> dict[str, Any]:
    """Return the document of an event of a newer version, as it was read."""
    document = {"k": event.tag, **event.data}
    if event.inert:
        document["i"] = 1
    return document


class _Writers(dict[type[Event], _Writer]):
    """The writing function of each class of event, compiled at its first use."""

    def __missing__(self, cls: type[Event]) -> _Writer:
        if EVENTS.get(cls.kind) is not cls:
            raise TypeError(
                f"{cls.__name__} is no kind of event that journals have: it could not be read back; add it to TaskEvent"
            )
        write = self[cls] = _plan(cls).encode
        return write


_WRITERS: Final = _Writers({UnknownEvent: _write_unknown})


@cache
def _json() -> Any:
    """Return the JSON library. Its import takes longer than that of this whole package."""
    import pydantic_core

    return pydantic_core


def is_writable(value: Any) -> bool:
    """Whether a record can hold a value. See `flaw`."""
    return flaw(value) is None


def flaw(value: Any) -> str | None:
    """Return the reason why a value is not JSON data that a record can hold, or None if it is.

    This is the rule for all data from outside. It allows JSON types, at most `MAX_DEPTH` lists and objects in each
    other, and at most `MAX_CHARACTERS` in all. It forbids text with half a character (a lone surrogate), NaN, Infinity,
    and whole numbers of more than `DIGITS` digits.
    """
    if value is None:
        return None
    kind: Any = value.__class__
    if kind is dict:
        if _is_plain(cast("dict[Any, Any]", value)):
            return None
    elif kind is str:
        if value.isascii() and len(value) <= MAX_CHARACTERS:
            return None
    elif kind is bool or (kind is int and -LARGEST < value < LARGEST):
        return None
    return _outgrown(value) or _unwritable(value)


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether an object only has a few short texts and numbers, as most have: then it has no flaw."""
    if len(value) > FEW:
        return False
    for name, item in value.items():
        kind: type[Any] = item.__class__
        if kind is str:
            if len(item) > SHORT or not item.isascii():
                return False
        elif kind is int:
            if not -LARGEST < item < LARGEST:
                return False
        elif kind is float:
            if not isfinite(item):
                return False
        elif item is not None and kind is not bool:
            return False
        if type(name) is not str or not name.isascii():
            return False
    return True


def _outgrown(value: Any) -> str | None:
    """Return the bound that a value exceeds, or that it is not JSON data. It reads level by level."""
    budget, level = MAX_CHARACTERS, [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, (str, list, tuple, dict)):
                budget -= len(cast("str", item))
            if budget < 0:
                return f"larger than {MAX_CHARACTERS:,} characters"
            if isinstance(item, dict):
                names = cast("dict[Any, Any]", item)
                if not all(isinstance(name, str) for name in names):
                    return NO_JSON
                below += names.values()
            elif isinstance(item, int) and not -LARGEST < item < LARGEST:
                return TOO_LONG
            elif isinstance(item, (list, tuple)):
                below += cast("list[Any]", item)
            elif item is not None and not isinstance(item, (str, int, float)):
                return NO_JSON
        if not below:
            return None
        level = below
    return f"nested deeper than {MAX_DEPTH} levels"


def _unwritable(value: Any) -> str | None:
    try:
        written = _json().to_json(value, inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:
        return "text with half a character" if "surrogate" in str(error) else NO_JSON
    if b"NaN" in written or b"Infinity" in written:  # a text may say so too
        try:
            _json().from_json(written, allow_inf_nan=False)
        except ValueError:
            return NO_NUMBER
    return None


def is_text(value: Any) -> bool:
    """Whether a value is text that a record can hold, for instance as a name."""
    return isinstance(value, str) and flaw(value) is None


def storable(value: Any) -> Any:
    """Return a value as plain JSON data, equal to its copy from a journal. See `plain`.

    Raises `ValueError` for a value that no record can hold. The message says why.
    """
    data = plain(value)
    if (wrong := flaw(data)) is not None:
        raise ValueError(f"it is {wrong}")
    return data


def exact_copy(value: Any) -> Any:
    """Return a copy of JSON data, equal to its copy from a journal.

    Raises:
        ValueError: the value cannot be stored. The message states the reason, or the expected type.
    """
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
        same = copy == value
    except (TypeError, ValueError, RecursionError, MemoryError):
        copy, same = None, False
    if not same:
        raise ValueError("must be JSON data (dicts with text keys, lists, text, numbers, booleans, None)")
    if (beyond := flaw(copy)) is not None:
        raise ValueError(f"cannot be stored: it is {beyond}")
    return copy


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):  # such as `ctx.state`
        return dict(cast("Mapping[Any, Any]", value))
    kind: Any = type(cast("object", value))
    raise ValueError(f"{NO_JSON}: {kind.__name__}")


def plain(value: Any) -> Any:
    """Return a value as plain JSON data: models and mappings as objects, dates as text.

    Raises `ValueError` for other values.
    """
    if value is None or type(value) in (str, int, bool, float):
        return value
    return _json().to_jsonable_python(value, inf_nan_mode="constants", fallback=_as_dict)


def decode(data: bytes, blobs: dict[str, bytes], last_seq: int) -> list[Event]:
    """Return a record's events, numbered so that the last one has `last_seq`.

    Raises `UnreadableRecord` for anything but a record of this or an older version.
    """
    if not blobs and (events := _STRUCTS.decode(data, VERSION, last_seq)) is not None:
        return events
    record = _parsed(data)
    try:
        version, documents, time = record["v"], record["e"], record["t"]
        if [type(version), type(documents), type(time)] != [int, list, int] or version < 1:
            raise UnreadableRecord("not a record: version, time or events are of another type")
        if version > VERSION:
            raise UnreadableRecord(f"written in format {version}, this version reads up to {VERSION}")
        if "b" in record:
            documents = _put_back(documents, blobs)
        try:
            return _numbered(documents, version, last_seq, _later(time, 0))
        except _MisfitEvent:
            documents = _parsed(data)["e"]  # reading has used them up
            if "b" in record:
                documents = _put_back(documents, blobs)
            return _numbered(documents, version, last_seq, _later(time, 0), lenient=True)
    except UnreadableRecord:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UnreadableRecord(f"not a record: {error}") from error


def _is_shallow(data: bytes) -> bool:
    """Whether the fast parser reads this JSON. Such JSON can be written again."""
    try:
        _json().from_json(data)
    except ValueError:
        return False
    return True


_STRUCTS: Final = StructDecoder(_is_shallow)


def _parsed(data: bytes) -> Any:
    """Return the value of JSON bytes. The slow parser reads values that are too deep for the fast one."""
    try:
        return _json().from_json(data, allow_inf_nan=True)
    except ValueError:
        try:
            value = json.loads(data)
            _json().to_json(
                value, inf_nan_mode="constants"
            )  # a value that cannot be written again was not written here
        except (ValueError, RecursionError) as error:
            raise UnreadableRecord(f"not a record: {error}") from error
        return value


class _MisfitEvent(UnreadableRecord):
    """A document of a known kind does not fit the kind. It may be of a newer version."""


def _numbered(
    documents: list[Any], version: int, last_seq: int, time: int, *, lenient: bool = False
) -> list[Event]:
    """Return the events of a record's documents, each converted to this version.

    With `lenient`, an event of a known kind with unknown fields or values becomes an `UnknownEvent`.
    """
    for older in range(version, VERSION):
        documents = [UPCASTERS[older](document) for document in documents]
    seq = last_seq - len(documents)
    events: list[Event] = []
    for document in documents:
        seq += 1
        if "d" in document:
            time = _later(time, document.pop("d"))
        tag = document.pop("k", "")
        inert = document.pop("i", 0) == 1
        read = _READERS.get(tag) or _reader(tag)
        try:
            event: Event = (
                UnknownEvent(tag, document, inert)
                if read is None
                else _read_leniently(tag, document, inert)
                if lenient
                else read(document)
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise _MisfitEvent(f"a {tag} event cannot be read: {error}") from error
        event.seq, event.time = seq, time
        if type(event) is UnknownEvent and event.known is not None:
            event.known.seq, event.known.time = seq, time
        events.append(event)
    return events


def _read_leniently(tag: str, document: dict[str, Any], inert: bool) -> Event:
    """Return the event of a known kind. With unknown fields or values it is an `UnknownEvent` with the known part."""
    try:
        return _READERS[tag](copied(document))
    except (TypeError, ValueError, AttributeError) as error:
        try:
            known = _plan(EVENTS[tag], True).decode(copied(document))
        except (TypeError, ValueError, AttributeError):
            raise error from None
    return UnknownEvent(tag, document, inert, known=known)


_READERS: dict[str, Callable[[dict[str, Any]], Event]] = {}


def _reader(tag: Any) -> Callable[[dict[str, Any]], Event] | None:
    """Return the reading function of a tag, compiled at its first use, or None for an unknown kind."""
    if type(tag) is not str:
        raise _misfit("the tag of an event", str, tag)
    cls = EVENTS.get(tag)
    if cls is None:
        return None
    read = _READERS[tag] = _plan(cls).decode
    return read


def _later(time: int, pause: Any) -> int:
    """Return the time of an event that happened this long after another."""
    if type(pause) is not int or not 0 <= time + pause < END_OF_TIME:
        raise UnreadableRecord(f"no event happens {pause!r:.60} microseconds after {time}")
    return time + pause


def check_fit(event: Event) -> None:
    """Raise `UnreadableRecord` for an event that could not be read again. See `encode`."""
    try:
        encode([event])
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise UnreadableRecord(str(error)) from error


def fields_of(event: Any) -> dict[str, Any]:
    """Return the fields of an event or a delta as JSON data, without defaults."""
    if isinstance(event, UnknownEvent):
        return dict(event.data)
    kind: type[Any] = event.__class__
    return {name: value for name, value in _plan(kind).encode(event).items() if name not in ("k", "i")}


def all_fields_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event as JSON data, with defaults."""
    hints = hints_of(type(event))
    names = [item.name for item in fields(event) if item.name not in ("seq", "time")]
    return {name: _directions(hints[name])[0](getattr(event, name)) for name in names}


def event_of(cls: type[Any], document: dict[str, Any]) -> Any:
    """Return the event or delta of a class that has these fields. The document does not change.

    Raises `UnreadableRecord`, `TypeError` or `ValueError` for fields that do not fit the class.
    """
    return _plan(cls).decode(copied(document))


def mentions(data: bytes, names: Sequence[str]) -> bool:
    """Whether a record may hold one of these tags or ids. It searches the bytes, far quicker than decoding."""
    return any(name.encode() in data for name in names)


def chain(previous: bytes, data: bytes) -> bytes:
    """Return the digest of a record that follows the one with digest `previous`."""
    return hashlib.blake2b(data, key=previous, digest_size=16).digest()


def branch_digest(digest: bytes, seq: int) -> bytes:
    """Return the digest to which a fork's first record is chained: of the fork point and its record."""
    return hashlib.blake2b(b"fork:%d" % seq, key=digest, digest_size=16).digest()


def whole_characters(value: Any) -> Any:
    """Return JSON data with `?` for each half of a character, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        document = typing.cast("dict[str, Any]", value)
        return {whole_characters(k): whole_characters(v) for k, v in document.items()}
    if isinstance(value, (list, tuple)):
        return [whole_characters(item) for item in typing.cast("list[Any]", value)]
    return value


# --------------------------------------------------------------------------------------------- blobs


def _take_out(value: Any, blobs: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        if len(value) <= BLOB_OVER:
            return value
        raw = value.encode()
        digest = hashlib.sha256(raw).hexdigest()
        blobs[digest] = raw
        return {"$blob": digest}
    if isinstance(value, dict):
        document = typing.cast("dict[str, Any]", value)
        return {"$" + k if str.startswith(k, "$") else k: _take_out(v, blobs) for k, v in document.items()}
    if isinstance(value, (list, tuple)):
        return [_take_out(item, blobs) for item in typing.cast("list[Any]", value)]
    return value


def _put_back(value: Any, blobs: dict[str, bytes]) -> Any:
    if isinstance(value, dict):
        document = typing.cast("dict[str, Any]", value)
        if "$blob" in document:
            return _blob(document["$blob"], blobs)
        return {k.removeprefix("$"): _put_back(v, blobs) for k, v in document.items()}
    if isinstance(value, list):
        return [_put_back(item, blobs) for item in typing.cast("list[Any]", value)]
    return value


def _blob(digest: str, blobs: dict[str, bytes]) -> str:
    raw = blobs.get(digest)
    if raw is None:
        raise UnreadableRecord(f"the large value {digest[:12]} is missing")
    if hashlib.sha256(raw).hexdigest() != digest:
        raise UnreadableRecord(f"the large value {digest[:12]} was changed")
    return raw.decode()
