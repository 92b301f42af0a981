"""Refusals in the form of the OpenAI API, for routes whose clients expect it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

PATH: Final = "/v1/responses"
"""The path of the routes that refuse in this form."""

_KINDS: Final = {401: "authentication_error", 403: "permission_error", 429: "too_many_requests"}
_CODES: Final = {"agent_unknown": "model_not_found", "unauthenticated": "invalid_api_key"}
_PARAMS: Final = {"agent_unknown": "model"}
_OF_PROBLEMS: Final = ("type", "title", "status", "detail", "instance", "field")
_WORDS: Final = re.compile(r"(?<!^)(?=[A-Z])")


def is_openai(path: str) -> bool:
    """Return whether a path belongs to a route that refuses in this form."""
    return path == PATH or path.startswith(f"{PATH}/")


def openai_status(document: Mapping[str, Any], status: int) -> int:
    """Return the status of a refusal.

    The official clients repeat a request after 409. That helps only if a task is busy.
    """
    name = str(document.get("type", "")).rpartition(":")[2]
    if status == 422 or (status == 409 and not name.endswith("Busy")):
        return 400
    return status


def openai_error(document: Mapping[str, Any], status: int) -> dict[str, Any]:
    """Return a problem document as an error of the OpenAI API.

    Args:
        document: the problem document.
        status: its status.
    """
    name = _WORDS.sub("_", str(document.get("type", "")).rpartition(":")[2]).lower()
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    further = {name: value for name, value in document.items() if name not in _OF_PROBLEMS}
    return {
        "error": {
            "message": document.get("detail") or document.get("title") or "",
            "type": kind,
            "param": document.get("field") or _PARAMS.get(name),
            "code": _CODES.get(name, name) or None,
        },
        **further,
        "request_id": document.get("instance"),
    }
