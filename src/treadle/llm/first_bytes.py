"""The first bytes of a streamed answer, which show whether it is a stream of events.

The SDKs skip lines other than events, so such an answer looks empty to them. The content type does not help: some
servers send a stream as `application/json`.
"""

from __future__ import annotations

import json
import re
from contextvars import ContextVar
from typing import Final

from treadle.core.lazy_pattern import lazy_pattern

_MOST: Final = 16_000
"""Number of bytes kept; a longer document is not checked for completeness."""


class FirstBytes:
    """The first bytes of the response to one request."""

    __slots__ = ("_bytes", "_host")

    def __init__(self) -> None:
        self._bytes = b""
        self._host = ""

    def begin(self, host: str) -> None:
        """Note that a response arrives.

        Args:
            host: the server.
        """
        self._bytes, self._host = b"", host

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body, unless enough is kept."""
        if len(self._bytes) < _MOST:
            self._bytes += piece[: _MOST - len(self._bytes)]

    def problem(self) -> str | None:
        """Return why a response is not a stream of JSON events; None if it is one, or is empty."""
        text = self._bytes.decode("utf-8", "replace").removeprefix("\ufeff").strip()
        if not text:
            return None
        about = self._about_events(text) if _EVENTS.match(text) else self._about_other(text)
        return None if about is None else f"{self._host} sent {about}"

    def _about_events(self, text: str) -> str | None:
        lines = text.splitlines()
        if len(self._bytes) >= _MOST:
            lines.pop()  # it was not kept whole
        for line in lines:
            data = line[5:].strip() if line.startswith("data:") else ""
            if data[:1] in ("{", "[") and not data.startswith("[DONE]") and (wrong := _mistake(data)):
                return f"a stream with malformed JSON: {wrong}"
        return None

    def _about_other(self, text: str) -> str:
        if text[0] not in "{[":
            return "text in place of a stream of events"
        wrong = None if len(self._bytes) >= _MOST else _mistake(text)
        if wrong is not None:
            return f"malformed JSON in place of a stream of events: {wrong}"
        return "a JSON document in place of a stream of events; stream=False asks for answers whole"


first_bytes: Final[ContextVar[FirstBytes | None]] = ContextVar("first_bytes", default=None)
"""The store for the first bytes of the next response, or None."""

_EVENTS: Final = lazy_pattern(r"(data|event|id|retry)\s*(:|$)|:", re.MULTILINE)


def _mistake(text: str) -> str | None:
    """Return why a text is not JSON, without the text; None if it is JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"{error.msg} (character {error.pos + 1})"
    except (ValueError, RecursionError):  # numbers and nesting beyond the limits of Python
        return None
    return None
