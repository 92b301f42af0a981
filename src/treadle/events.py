"""The events that streams and handles yield, by name. `EVENTS` maps each tag to its class.

`to_json` and `from_json` write and read events for other programs. `json_schema` describes that form.
"""

from typing import TYPE_CHECKING, cast

from treadle.core import events as core_events
from treadle.core.events import *
from treadle.core.events import Ephemeral, Event, Occurrence, explain_names
from treadle.core.messages import Json
from treadle.results.wire import FORMAT as FORMAT
from treadle.results.wire import from_wire, plain_wire
from treadle.results.wire_schema import json_schema as json_schema

explain_names()


def to_json(event: Event | Ephemeral) -> dict[str, Json]:
    """Return an event as JSON data. Numbers that JSON cannot hold become null."""
    return plain_wire(event)


def from_json(document: dict[str, Json]) -> Event | Ephemeral:
    """Return the event of a document from `to_json`. One of an unknown kind becomes an `UnknownEvent`.

    Raises:
        InvalidField: the document is of a newer format, or is not an event.
    """
    return cast("Event | Ephemeral", from_wire(Occurrence, document))


if not TYPE_CHECKING:  # type checkers see the names that the star import brings
    __all__ = ["FORMAT", "from_json", "json_schema", "to_json"]
    __all__ += core_events.__all__
