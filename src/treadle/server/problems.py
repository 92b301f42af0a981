"""Convert errors of the library and of the server to problem documents (RFC 9457).

The outcome of a task is a result, never a problem. A problem means that a request was not carried out. Any other error
is a fault of the server. Its response contains only the request's id; the log has the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from treadle.core.messages import Json
from treadle.drivers.agent_registry import UNKNOWN_HERE
from treadle.errors import (
    AgentUnknown,
    ApproverRefused,
    ConfigurationError,
    JournalCorrupt,
    NotFound,
    StoreError,
    StoreFormatError,
    TaskBusy,
    TaskMoved,
    TaskStateError,
    ThreadBusy,
    ToolsetUnavailable,
    TreadleError,
    WrongArguments,
)
from treadle.results.problem_documents import TYPE, error_to_wire
from treadle.results.wire import wire_bytes
from treadle.server.openai_errors import is_openai, openai_error, openai_status

MEDIA: Final = "application/problem+json"
AGAIN: Final = "1"
"""Seconds after which a request that another request blocked may be repeated."""

log = logging.getLogger("treadle.server")


class Problem(Exception):
    """A request that the server refuses before any task is affected.

    Args:
        status: the status of the response.
        name: the problem's name, in the form of a class.
        detail: the problem and its remedy.
        headers: headers of the response.
        fields: further fields of the document.
    """

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **fields: Json,
    ) -> None:
        super().__init__(detail)
        self.status, self.name, self.detail = status, name, detail
        self.headers, self.fields = dict(headers or {}), fields


def unauthenticated() -> Problem:
    """Return the problem of a request without valid credentials."""
    detail = "the request names no principal: send `Authorization: Bearer TOKEN`, with a token that the server accepts"
    return Problem(401, "Unauthenticated", detail, {"WWW-Authenticate": 'Bearer realm="treadle"'})


def server_fault() -> Problem:
    """Return the problem for a fault of the server, whose details are in the log."""
    return Problem(500, "ServerFault", "the server failed; its log tells more")


STATUS: Final[tuple[tuple[type[TreadleError], int], ...]] = (
    (AgentUnknown, 404),
    (NotFound, 404),
    (ApproverRefused, 403),
    (TaskMoved, 412),
    (TaskStateError, 409),
    (ConfigurationError, 422),
    (WrongArguments, 422),
    (ToolsetUnavailable, 503),
    (JournalCorrupt, 500),
    (StoreFormatError, 500),
    (StoreError, 503),
)
"""The status of each refusal of the library; the first matching class counts, and any other error is a fault."""


def status_of(error: TreadleError) -> int | None:
    """Return the status of an error of the library; None if it is a fault."""
    return next((status for cls, status in STATUS if isinstance(error, cls)), None)


def problem_of(error: Exception, instance: str, hide: Callable[[str], str], path: str = "") -> Response:
    """Return the response to a failed request.

    Args:
        error: the error.
        instance: the id of the request.
        hide: returns a message without text that callers must not read.
        path: the path of the request, whose protocol may have a form of its own for errors.
    """
    if isinstance(error, Problem):
        return _response(
            _document(error.status, error.name, error.detail, error.fields),
            error.status,
            instance,
            error.headers,
            path,
        )
    status = status_of(error) if isinstance(error, TreadleError) else None
    if status is None:
        log.error("request %s failed: %s", instance, error, exc_info=error)
        return problem_of(server_fault(), instance, hide, path)
    headers = {"Retry-After": AGAIN} if isinstance(error, (TaskBusy, ThreadBusy)) or status == 503 else {}
    document = error_to_wire(error, hide(_for_callers(error)))
    if isinstance(error, StoreError) and not isinstance(error, JournalCorrupt):
        # The message comes from the database, with paths, hosts and users.
        log.error("request %s met a store that failed: %s", instance, error)
        document["detail"] = f"{document['title']} The server's log tells more."
    elif isinstance(error, ToolsetUnavailable):
        # The message quotes the toolset's client, with addresses and credentials of the server's side.
        log.warning("request %s met a toolset that is not available: %s", instance, error)
        document["detail"] = (
            f"the toolset {error.toolset!r:.80} is not available; the server's log has the reason"
        )
    return _response(document, status, instance, headers, path)


AGENTS_LISTED: Final = "`treadle agents --url` and GET /v1/agents list those it has"


def _for_callers(error: Exception) -> str:
    """Return a message without advice that only a program with the runner could follow."""
    message = str(error)
    if isinstance(error, AgentUnknown) and UNKNOWN_HERE in message:
        subject = message.rpartition(UNKNOWN_HERE)[0]
        return f"{subject}which this server was not given: {AGENTS_LISTED}"
    return message


def _document(status: int, name: str, detail: str, fields: Mapping[str, Json]) -> dict[str, Json]:
    return {**fields, "type": f"{TYPE}{name}", "title": HTTPStatus(status).phrase, "detail": detail}


def _response(
    document: Mapping[str, Any], status: int, instance: str, headers: Mapping[str, str], path: str
) -> Response:
    if is_openai(path):
        status = openai_status(document, status)
        error = openai_error({**document, "instance": instance}, status)
        return Response(wire_bytes(error), status, headers, "application/json")
    content = wire_bytes({**document, "status": status, "instance": instance})
    return Response(content, status, headers, MEDIA)
