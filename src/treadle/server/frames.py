"""Frames of `text/event-stream`, made of events. Pure.

id: 7                     the sequence number; only stored events have an id
event: tool_ended         the kind
data: {"kind": ...}       the event in the public JSON form, on one line
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote, unquote

from treadle.core.events import Delta, Ephemeral, Event, UnknownEvent
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.results.wire import plain_wire, wire_bytes

Hide: TypeAlias = Callable[[Any], Any]
"""Returns JSON data without the secrets that this process knows."""

HEARTBEAT: Final = b": still here\n\n"
"""A comment, which readers pass over."""

CUT_LEAST: Final = 256
CUT_MOST: Final = 1 << 20
_NUMBER: Final = "[0-9]{1,15}"
PLACE: Final = rf"[\s\S]+:{_NUMBER}"
"""How a request names a task and the sequence number of an event."""

MOST_STREAMED: Final = 8
"""How many tasks one stream follows at most."""

HEAD_CHARS: Final = 200
"""How many characters of a text that was cut are still sent."""

_PLAIN_KIND: Final = re.compile(r"[A-Za-z0-9_]{1,60}")
_OF_THE_EVENT: Final = frozenset({"format", "kind", "task_id", "agent_path", "description"})
"""What no cut takes from an event, at its top: readers go by it, and it is short."""


def cut_size(cut: int | None) -> int | None:
    """Return the characters from which texts are cut, a power of two at most `cut`; None for no cut.

    Only few sizes are used, so that streams which ask for different ones share frames.

    Raises:
        ConfigurationError: it is not between 256 and 1,048,576.
    """
    if cut is None:
        return None
    if not CUT_LEAST <= cut <= CUT_MOST:
        raise ConfigurationError(f"cut must be from {CUT_LEAST} to {CUT_MOST} characters, got {cut}")
    return 1 << (cut.bit_length() - 1)


def cut_texts(document: Any, cut: int, href: str) -> Any:
    """Return JSON data whose long texts are replaced by `{"$cut": {"chars", "head", "href"}}`.

    Args:
        document: the data; what is not cut is shared with what is returned.
        cut: how long a text may be, in characters.
        href: where all of it is, as a path below the server's address.
    """
    if isinstance(document, str):
        if len(document) <= cut:
            return document
        return {"$cut": {"chars": len(document), "head": document[:HEAD_CHARS], "href": href}}
    if isinstance(document, dict):
        values = cast("dict[str, Any]", document)
        return {name: cut_texts(value, cut, href) for name, value in values.items()}
    if isinstance(document, list):
        return [cut_texts(value, cut, href) for value in cast("list[Any]", document)]
    return document


def event_document(event: Event | Ephemeral, cut: int | None, hide: Hide | None = None) -> Json:
    """Return an event in the public JSON form, without what `hide` takes out, and with its long texts cut."""
    document = cast("dict[str, Any]", plain_wire(event))
    if hide is not None:
        document = hide(document)
    if cut is None:
        return document
    task_id = quote(str(document.get("task_id", "")), safe="")
    seq = event.seq if isinstance(event, Event) else event.after + 1  # what was streamed is in the next event
    href = f"/v1/tasks/{task_id}/events/{seq}"
    return {
        name: value if name in _OF_THE_EVENT else cut_texts(value, cut, href)
        for name, value in document.items()
    }


def event_frame(event: Event | Ephemeral, cut: int | None = None, hide: Hide | None = None) -> bytes:
    """Return the frame of an event, without an id; of a delta several, if its text is to be cut.

    Args:
        event: the event.
        cut: from how many characters on its texts are cut; None for no cut.
        hide: returns data without secrets; None if none is known.
    """
    kind = event.tag if isinstance(event, UnknownEvent) else event.kind
    if not _PLAIN_KIND.fullmatch(kind):  # of a journal that others wrote: it must not break out of its line
        kind = UnknownEvent.kind
    if cut is not None and isinstance(event, Delta):
        pieces = _pieces(event_document(event, None, hide), cut)
        return b"".join([b"event: delta\ndata: %b\n\n" % wire_bytes(piece) for piece in pieces])
    plain = cut is None and hide is None
    data = wire_bytes(event if plain else event_document(event, cut, hide))
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _pieces(document: Any, size: int) -> list[Json]:
    """Return the document of a delta as several, each with a text of at most `size` characters."""
    text: str = document["text"]
    if len(text) <= size:
        return [document]
    at, tool, tool_at = document.get("at", 0), document.get("tool", ""), document.get("tool_at", 0)
    rest = {**document, "tool": "", "tool_at": tool_at + len(tool)}
    return [
        {**document, "text": text[:size]},
        *[
            {**rest, "text": text[begin : begin + size], "at": at + begin}
            for begin in range(size, len(text), size)
        ],
    ]


def frame(kind: str, value: Any, hide: Hide | None = None) -> bytes:
    """Return a frame of something else than an event, without an id."""
    data = wire_bytes(value if hide is None else hide(plain_wire(value)))
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def retry(milliseconds: int) -> bytes:
    """Return the frame that says when to open the stream again after it was lost."""
    return b"retry: %d\n\n" % milliseconds


# --------------------------------------------------------------------------------------- ids of several tasks


def cursor_of(places: Iterable[tuple[str, int]]) -> str:
    """Return the id of a stream of several tasks: how far each was read, as `ID:SEQ` joined by spaces."""
    return " ".join(f"{quote(task_id, safe='')}:{seq}" for task_id, seq in places)


def places_of(cursor: str) -> list[tuple[str, int]]:
    """Return the places in an id that `cursor_of` made.

    Raises:
        ValueError: it is no such id.
    """
    return [place_of(each, quoted=True) for each in cursor.split()]


def place_of(text: str, *, quoted: bool = False) -> tuple[str, int]:
    """Return the task and the sequence number of `ID:SEQ`.

    Raises:
        ValueError: it is not of this form.
    """
    task_id, colon, seq = text.rpartition(":")
    if not colon or not task_id:
        raise ValueError(f"{text!r:.80} is not of the form ID:SEQ")
    return unquote(task_id) if quoted else task_id, sequence_number(seq)


def sequence_number(text: str) -> int:
    """Return a sequence number; raises `ValueError` for anything but up to 15 decimal digits."""
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text!r:.80} is no sequence number")
    return int(text)
