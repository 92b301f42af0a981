"""What kind of failure a provider's refusal is, judged by type, status and headers; never by searching prose."""

from __future__ import annotations

from treadle.errors import ModelErrorKind

_KINDS: dict[int, ModelErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "permission",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "overloaded",
    413: "too_large",
    422: "invalid_request",
    425: "overloaded",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}


def kind_of_status(status: int) -> ModelErrorKind:
    """Return what kind of failure an HTTP status tells of."""
    if (kind := _KINDS.get(status)) is not None:
        return kind
    if status >= 500:
        return "server"
    return "invalid_request" if 400 <= status < 500 else "unknown"
