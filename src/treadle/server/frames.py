"""Build frames of `text/event-stream` from events. Pure.

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
"""Returns JSON data with known secrets masked."""

HEARTBEAT: Final = b": still here\n\n"
"""A comment, which readers ignore."""

CUT_LEAST: Final = 256
CUT_MOST: Final = 1 << 20
_NUMBER: Final = "[0-9]{1,15}"
PLACE: Final = rf"[\s\S]+:{_NUMBER}"
"""A task and the sequence number of an event, in a request."""

MOST_STREAMED: Final = 8
"""Maximum number of tasks in one stream."""

HEAD_CHARS: Final = 200
"""Number of characters that are kept of a cut text."""

_PLAIN_KIND: Final = re.compile(r"[A-Za-z0-9_]{1,60}")
_OF_THE_EVENT: Final = frozenset({"format", "kind", "task_id", "agent_path", "description"})
"""Top-level fields of an event that are never cut: readers need them, and they are short."""


def cut_size(cut: int | None) -> int | None:
    """Return the length at which texts are cut: a power of two, at most `cut`; None for no cut.

    There are few lengths, so that streams with different cuts share frames.

    Raises:
        ConfigurationError: `cut` is not between 256 and 1,048,576.
    """
    if cut is None:
        return None
    if not CUT_LEAST <= cut <= CUT_MOST:
        raise ConfigurationError(f"cut must be from {CUT_LEAST} to {CUT_MOST} characters, got {cut}")
    return 1 << (cut.bit_length() - 1)


def cut_texts(document: Any, cut: int, href: str) -> Any:
    """Return JSON data whose long texts are replaced by `{"$cut": {"chars", "head", "href"}}`.

    Args:
        document: the data; the result shares its uncut parts.
        cut: the longest uncut text, in characters.
        href: the path of the whole text, below the server's address.
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
    """Return an event in the public JSON form, masked by `hide`, with its long texts cut."""
    document = cast("dict[str, Any]", plain_wire(event))
    if hide is not None:
        document = hide(document)
    if cut is None:
        return document
    task_id = quote(str(document.get("task_id", "")), safe="")
    seq = event.seq if isinstance(event, Event) else event.after + 1  # the next event has the streamed text
    href = f"/v1/tasks/{task_id}/events/{seq}"
    return {
        name: value if name in _OF_THE_EVENT else cut_texts(value, cut, href)
        for name, value in document.items()
    }


def event_frame(event: Event | Ephemeral, cut: int | None = None, hide: Hide | None = None) -> bytes:
    """Return the frame of an event, without an id; a delta whose text is cut has several frames.

    Args:
        event: the event.
        cut: the length in characters at which texts are cut; None for no cut.
        hide: masks secrets in data; None if there are none.
    """
    kind = event.tag if isinstance(event, UnknownEvent) else event.kind
    if not _PLAIN_KIND.fullmatch(kind):  # in a foreign journal the kind could break out of its line
        kind = UnknownEvent.kind
    if cut is not None and isinstance(event, Delta):
        pieces = _pieces(event_document(event, None, hide), cut)
        return b"".join([b"event: delta\ndata: %b\n\n" % wire_bytes(piece) for piece in pieces])
    plain = cut is None and hide is None
    data = wire_bytes(event if plain else event_document(event, cut, hide))
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _pieces(document: Any, size: int) -> list[Json]:
    """Split the document of a delta into several, each with a text of at most `size` characters."""
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
    """Return a frame without an id for an object that is not an event."""
    data = wire_bytes(value if hide is None else hide(plain_wire(value)))
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def retry(milliseconds: int) -> bytes:
    """Return the frame with the reconnection delay."""
    return b"retry: %d\n\n" % milliseconds


# --------------------------------------------------------------------------------------- ids of several tasks


def cursor_of(places: Iterable[tuple[str, int]]) -> str:
    """Return the id of a stream of several tasks: the position in each, as `ID:SEQ` joined by spaces."""
    return " ".join(f"{quote(task_id, safe='')}:{seq}" for task_id, seq in places)


def places_of(cursor: str) -> list[tuple[str, int]]:
    """Return the positions in an id that `cursor_of` made.

    Raises:
        ValueError: it is not such an id.
    """
    return [place_of(each, quoted=True) for each in cursor.split()]


def place_of(text: str, *, quoted: bool = False) -> tuple[str, int]:
    """Return the task and the sequence number of `ID:SEQ`.

    Raises:
        ValueError: the text has another form.
    """
    task_id, colon, seq = text.rpartition(":")
    if not colon or not task_id:
        raise ValueError(f"{text!r:.80} is not of the form ID:SEQ")
    return unquote(task_id) if quoted else task_id, sequence_number(seq)


def sequence_number(text: str) -> int:
    """Return a sequence number; raise `ValueError` unless the text is 1 to 15 decimal digits."""
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(f"{text!r:.80} is no sequence number")
    return int(text)
