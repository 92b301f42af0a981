"""Limits on a server's traffic: the size of messages, and the amount of data between two answers.

This module also masks a server's secrets in the logs of the `mcp` package and its HTTP client.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final, cast

from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from treadle.core.redaction import hidden_in_logs
from treadle.tools.flood import MAX_PARTS, parts_of

_LOGGERS: Final = ("httpcore2", "httpx2", "mcp")
"""Packages that log URLs at INFO, and messages at DEBUG."""


class _HidesSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if secrets := hidden_in_logs.get():
            message = record.getMessage()
            if record.exc_info:
                message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
            record.msg, record.args, record.exc_info = secrets.hide(message, deep=True), None, None
        return True


_hides: Final = _HidesSecrets()


def hide_in_logs() -> None:
    """Mask the secrets of `hidden_in_logs`, from the context of each log record, in the logs of these packages.

    A logger's filter does not apply to records of its children, so each existing logger gets the filter.
    """
    for name in (*_LOGGERS, *logging.Logger.manager.loggerDict):
        if name.partition(".")[0] in _LOGGERS:
            logging.getLogger(name).addFilter(_hides)


MAX_MESSAGE: Final = 8 * 2**20
"""Largest message, in bytes."""

MAX_ENTRIES: Final = 2_000
"""Most entries in a list of results, such as tools or content parts. Pydantic validates each of them."""

LISTS: Final = ("content", "contents", "messages", "prompts", "resourceTemplates", "resources", "tools")
"""The result fields whose entries pydantic validates."""

MAX_UNANSWERED: Final = 32 * 2**20
"""Most bytes from a server between two answers."""

MAX_REQUESTS: Final = 100
"""Most requests from a server between two answers."""

MAX_NOISE: Final = 1_000
"""Most invalid lines from a server between two answers."""


class Flooded(Exception):
    """A server broke a limit; the text names it."""


class Traffic:
    """Counts a server's traffic between two answers.

    Only a response to an open request counts as an answer.
    """

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._bytes = self._parts = self._requests = self._noise = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request to the server is open."""
        return not self._open

    def sent(self, message: JSONRPCMessage) -> None:
        """Record a message to the server."""
        if isinstance(message, JSONRPCRequest):
            self._open.add(message.id)

    def received(self, message: JSONRPCMessage, size: int) -> None:
        """Count a message of the server; raises `Flooded`."""
        if isinstance(message, (JSONRPCResponse, JSONRPCError)) and message.id in self._open:
            self._open.discard(message.id)
            self._bytes = self._parts = self._requests = self._noise = 0
            return
        self._bytes += size
        self._requests += isinstance(message, JSONRPCRequest)
        if self._requests > MAX_REQUESTS:
            raise Flooded(f"sent more than {MAX_REQUESTS} requests of its own without an answer")
        if self._bytes > MAX_UNANSWERED:
            raise Flooded(f"sent more than {MAX_UNANSWERED:,} bytes without an answer")

    def received_bytes(self, data: bytes) -> None:
        """Count a part of a message; raises `Flooded`."""
        self._bytes, self._parts = self._bytes + len(data), self._parts + parts_of(data)
        if self._bytes > MAX_UNANSWERED:
            raise Flooded(f"sent more than {MAX_UNANSWERED:,} bytes without an answer")
        if self._parts > MAX_PARTS:
            raise Flooded(f"sent more than {MAX_PARTS:,} objects and lists without an answer")

    def received_noise(self, size: int) -> None:
        """Count an invalid line; raises `Flooded`."""
        self._noise += 1
        self._bytes += size
        if self._noise > MAX_NOISE or self._bytes > MAX_UNANSWERED:
            raise Flooded(f"wrote {self._noise:,} lines that are not JSON-RPC messages")


# ------------------------------------------------------------------------------------------ one message


def parsed(line: bytes) -> JSONRPCMessage | None:
    """Parse the message in a line, None if there is none. Raises `Flooded` if it has too many parts.

    A lone surrogate, as in a text that was cut within a character, is replaced. An invalid response becomes an error
    response, so that its request fails now instead of at its deadline.
    """
    if parts_of(line) > MAX_PARTS:
        raise Flooded(f"wrote a message of more than {MAX_PARTS:,} objects and lists")
    for candidate in (line, _LONE_SURROGATE.sub(_replaced, line)):
        try:
            return jsonrpc_message_adapter.validate_json(candidate, by_name=False)
        except ValueError:
            continue
    return _misshapen(line)


def bounded(message: JSONRPCMessage) -> JSONRPCMessage:
    """Return a message, or an error response if a list in a response has too many entries."""
    if isinstance(message, JSONRPCResponse):
        for name in LISTS:
            entries: Any = message.result.get(name)
            if isinstance(entries, list) and len(cast("list[Any]", entries)) > MAX_ENTRIES:
                return _unreadable(message.id, f"sent more than {MAX_ENTRIES:,} entries in {name!r}")
    return message


_LONE_SURROGATE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Match an escaped backslash or a surrogate pair, which stay, or a lone surrogate."""


def _replaced(match: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if match["lone"] else match[0]


def _misshapen(line: bytes) -> JSONRPCMessage | None:
    """Return an error response for an invalid response; None if its request is unknown."""
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "method" in document:
        return None
    request_id: Any = cast("dict[str, Any]", document).get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, (int, str)):
        return None
    return _unreadable(request_id, "sent an answer that is none")


def _unreadable(request_id: RequestId, reason: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=reason))
