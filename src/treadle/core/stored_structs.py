"""Decode records of the common form in C. The reader of `codec` reads all others.

msgspec decodes JSON into structs and checks each field. The annotations of events do not state the stored form. For
instance, a `Text` is stored as plain text, and `time` as the distance `d` from the event before. So each class has a
*stored struct*, a subclass without own fields whose annotations state that form. After decoding, each value gets its
own class:

    {"k": "step_started", "step": "s1", "index": 1, "d": 12}              a document of a record
    the stored struct of StepStarted, step="s1", index=1, time=12         decoded, in C
    StepStarted, step="s1", index=1, seq=7, time=1763700000000012         with its class, number and time

This module and the reader of the codec return the same events. For all records that only that reader handles, this
module returns None. These are records of other versions, or with unknown kinds or fields, ignorable events, large
values, NaN, numbers out of range, or times that go back.

Making a stored struct takes as long as decoding 500 events, so only kinds that occur in records have one.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from treadle.core.data import set_field
from treadle.core.events import EVENTS, Event
from treadle.core.messages import File, Image, Reasoning, Text, ToolCall, ToolResult

WHOLE: Final = 1 << 63
"""The limit of whole numbers in the fields of events, on both sides of 0. Every store can hold these."""

END_OF_TIME: Final = 253_402_300_800_000_000
"""Microseconds from 1970 to the year 10000, UTC. Events happen before that, so that each has a date."""

PARTS: dict[str, type[Any]] = {
    "text": Text,
    "image": Image,
    "file": File,
    "reasoning": Reasoning,
    "call": ToolCall,
    "result": ToolResult,
}

PART_TAGS: dict[type, str] = {cls: tag for tag, cls in PARTS.items()}
"""The tags of the parts of messages."""

SHALLOW: Final = 200
"""The depth of lists and objects up to which every record can be written again."""

_WholeNumber = Annotated[int, Meta(ge=1 - WHOLE, le=WHOLE - 1)]
_WholeOrFloat = int | float
_Distance = Annotated[int, Meta(ge=0, lt=END_OF_TIME)]


@cache
def hints_of(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a class, by name."""
    return typing.get_type_hints(cls)


def is_data_class(hint: Any) -> bool:
    """Whether a type is a data class, whose values are stored as objects."""
    return isinstance(hint, type) and hasattr(hint, "__dataclass_fields__")


class StructDecoder:
    """Decodes records, and learns each kind of event from the first record that has it.

    Args:
        is_shallow: whether JSON with more than `SHALLOW` lists and objects can be written again. It is slow.
    """

    def __init__(self, is_shallow: Callable[[bytes], bool]) -> None:
        self._is_shallow = is_shallow
        self._kinds: frozenset[str] = frozenset()
        self._decode: Callable[[bytes], Any] = msgspec.json.decode

    def decode(self, data: bytes, version: int, last_seq: int) -> list[Event] | None:
        """Return the events of a record of one version, the last one with `last_seq`, or None for the other reader."""
        record = self._record(data)
        if record is None or record.v != version:
            return None
        events: list[Any] = record.e
        # No event lies in another one.
        if data.count(b"[") + data.count(b"{") - len(events) > SHALLOW and not self._is_shallow(data):
            return None
        time = record.t
        for seq, event in enumerate(events, last_seq - len(events) + 1):
            event.seq = seq
            event.time = time = time + event.time
            if event.restore_fields is not None:
                event.restore_fields(event)
            event.__class__ = event.restored
        return events if time < END_OF_TIME else None

    def _record(self, data: bytes) -> Any:
        """Return a record of stored structs, or None for the other reader."""
        try:
            if self._kinds:
                return self._decode(data)
        except Exception:  # noqa: BLE001, S110  the reader of the codec reports any defect
            pass
        try:
            return self._decode(data) if self._learn(data) else None
        except Exception:  # noqa: BLE001
            return None

    def _learn(self, data: bytes) -> bool:
        """Learn the kinds of a record, and return whether there were new ones."""
        found = {document["k"] for document in msgspec.json.decode(data)["e"]}
        kinds = self._kinds | {kind for kind in found if kind in EVENTS and not EVENTS[kind].ignorable}
        if kinds == self._kinds:
            return False
        events: Any = Union[tuple([_stored_struct(EVENTS[kind]) for kind in sorted(kinds)])]  # noqa: UP007
        fields = [("v", int), ("t", _Distance), ("e", list[events])]
        record = msgspec.defstruct("Record", fields, forbid_unknown_fields=True)
        self._kinds, self._decode = kinds, msgspec.json.Decoder(record).decode
        return True


@cache
def _stored_struct(cls: type[Any], tag: str | None = None) -> Any:
    """Return the stored struct of a class. With `tag`, that of a part of a message.

    It is the class itself if that is stored as it is annotated. Otherwise its attribute `restored` is the class.
    `restore_fields` is a function that gives the values in an instance's fields their classes, or None without such
    fields.
    """
    hints, namespace = hints_of(cls), dict[str, Any]()
    annotations, lines = dict[str, Any](), list[str]()
    for name in cls.__struct_fields__:
        annotations[name], restoring = _stored_form(hints[name], name, namespace)
        lines += restoring
    is_event = issubclass(cls, Event)
    if not is_event and tag is None and annotations == {name: hints[name] for name in annotations}:
        return cls  # it is stored as it is annotated
    namespace["_set"] = set_field
    if lines:
        exec("\n ".join(["def restore_fields(made):", *lines]), namespace)  # noqa: S102  made of the names of fields
    restore: Any = namespace.get("restore_fields")
    attributes = {
        "__module__": cls.__module__,
        "restored": cls,
        "restore_fields": restore and staticmethod(restore),
    }
    options: dict[str, Any] = {"forbid_unknown_fields": True}
    if is_event:
        annotations["time"] = _Distance
        attributes |= {"__annotations__": {"time": int}, "time": 0}
        options |= {"tag_field": "k", "tag": cls.kind, "rename": {"time": "d"}, "kw_only": True}
    elif tag is not None:
        options |= {"tag_field": "p", "tag": tag}
    metaclass: Any = type(cls)
    made = metaclass(cls.__name__, (cls,), attributes, **options)
    made.__annotations__ = annotations
    return made


def _stored_form(hint: Any, name: str, namespace: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return the stored type of a field, and the statements that restore its value in `made`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        others = [option for option in options if option is not type(None)]
        if len(others) < len(options) and len(others) == 1:
            form, restoring = _stored_form(others[0], name, namespace)
            return form | None, restoring and [
                f"if made.{name} is not None:",
                *[f" {line}" for line in restoring],
            ]
        return Union[tuple([_stored_form(option, name, namespace)[0] for option in options])], []  # noqa: UP007
    if origin is tuple:
        if Text in get_args(options[0]):
            namespace["_restored_parts"] = _restored_parts
            forms = [_stored_struct(part, PART_TAGS[part]) for part in get_args(options[0])]
            return tuple[Union[(str, *forms)], ...], [f"_set(made, {name!r}, _restored_parts(made.{name}))"]
        form, restoring = _stored_form(options[0], name, namespace)
        return tuple[form, ...], restoring and [
            f"for item in made.{name}:",
            *[f" {line.replace(f'made.{name}', 'item')}" for line in restoring],
        ]
    if is_data_class(hint):
        form = _stored_struct(hint)
        if form is hint:
            return form, []
        namespace[f"_class_{name}"], restoring = hint, [f"_set(made.{name}, '__class__', _class_{name})"]
        if form.restore_fields is not None:
            namespace[f"_restore_{name}"] = form.restore_fields
            restoring.insert(0, f"_restore_{name}(made.{name})")
        return form, restoring
    return {int: _WholeNumber, float: _WholeOrFloat, dict: dict[str, Any]}.get(origin or hint, hint), []


def _restored_parts(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts of a message with their classes, since text is stored as a string."""
    if str in map(type, parts):
        parts = tuple([Text(part) if part.__class__ is str else part for part in parts])
    for part in parts:
        cls = part.__class__
        if cls is not Text:
            if cls.restore_fields is not None:
                cls.restore_fields(part)
            set_field(part, "__class__", cls.restored)
    return parts
