"""The kind of a provider's error, by its type, code, status and headers; never by searching its message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, cast
from urllib.parse import urlsplit

from treadle.core.redaction import NO_SECRETS, Secrets, hide_named
from treadle.errors import PASSING, ModelError, ModelErrorKind
from treadle.llm.first_bytes import FirstBytes

MESSAGE_MAX = 500
"""Characters of a provider's message in an error."""

_SEARCHED, _MARGIN = 4_000, 1_000
"""Characters of a message that are searched for secrets, and how many at their end are then left out."""

_TEXT_MAX = 300
"""The longest body that counts as a message, if it is neither JSON nor markup."""

_BY_STATUS: dict[int, ModelErrorKind] = {
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

_BY_CODE: dict[str, ModelErrorKind] = {
    "API_KEY_INVALID": "authentication",
    "billing_error": "permission",
    "content_filter": "refused",
    "context_length_exceeded": "too_large",
    "exceed_context_size_error": "too_large",  # llama.cpp
    "insufficient_quota": "permission",
    "model_not_found": "not_found",
    "overloaded_error": "overloaded",
    "rate_limit_exceeded": "rate_limit",
    "request_too_large": "too_large",
    "string_above_max_length": "too_large",
}
"""Machine-readable codes that are more precise than the status."""

_BY_PARAMETER: dict[str, ModelErrorKind] = {
    "input_text": "too_large",
    "input_tokens": "too_large",
}
"""Values of `param` by which vLLM names a measured length. No request has parameters of these names."""

_BY_CODE_ALONE: dict[str, ModelErrorKind] = {
    "api_error": "server",
    "authentication_error": "authentication",
    "internal_error": "server",
    "internal_server_error": "server",
    "invalid_request_error": "invalid_request",
    "not_found_error": "not_found",
    "permission_error": "permission",
    "rate_limit_error": "rate_limit",
    "server_error": "server",
    "timeout_error": "timeout",
}
"""Codes of failures in the middle of an answer, after the status 200."""

# By name, so that no SDK is imported to recognise its errors. The first match in the class's order counts.
_BY_TYPE: dict[str, ModelErrorKind] = {
    "ModelQuotaExceededError": "permission",
    "ModelRateLimitError": "rate_limit",
    "ModelUnavailableError": "overloaded",
    "ModelServerError": "server",
    "ModelTimeoutError": "timeout",
    "ModelRequestTimeout": "timeout",
    "ModelConnectionError": "connection",
    "ModelContextWindowExceededError": "too_large",
    "ModelAuthenticationError": "authentication",
    "ModelNotFoundError": "not_found",
    "ModelRequestRejectedError": "invalid_request",
    "ContentFilterError": "refused",
    "UnexpectedModelBehavior": "unparsable",
    "UserError": "invalid_request",
    "APITimeoutError": "timeout",
    "APIConnectionError": "connection",
    "APIResponseValidationError": "unparsable",
    "TimeoutException": "timeout",
    "DecodingError": "connection",  # damaged compression
    "TransportError": "connection",
    "StreamError": "connection",
    "JSONDecodeError": "unparsable",
    "UnicodeDecodeError": "unparsable",
    "ValidationError": "unparsable",
    "TimeoutError": "timeout",
    "OSError": "connection",
    # Errors that SDKs raise for an answer that they do not expect.
    "ArithmeticError": "unparsable",
    "AssertionError": "unparsable",
    "AttributeError": "unparsable",
    "LookupError": "unparsable",
    "TypeError": "unparsable",
    "ValueError": "unparsable",
}


OF_SERVICE: frozenset[ModelErrorKind] = frozenset(("overloaded", "server", "timeout", "connection"))
"""Failures of the service itself, for all callers and all requests."""

ELSEWHERE: frozenset[ModelErrorKind] = PASSING | frozenset[ModelErrorKind](
    ("authentication", "permission", "not_found")
)
"""Failures after which another model may answer: temporary ones, and those of one account or one model."""


def kind_of_status(status: int) -> ModelErrorKind:
    """Return the kind of failure for an HTTP status."""
    if (kind := _BY_STATUS.get(status)) is not None:
        return kind
    if status >= 500:
        return "server"
    return "invalid_request" if 400 <= status < 500 else "unknown"


def model_error(
    error: Exception, *, secrets: Secrets = NO_SECRETS, beginning: FirstBytes | None = None
) -> ModelError:
    """Return an error of an SDK, pydantic-ai or the HTTP client as a `ModelError`, without its causes.

    Args:
        error: the error.
        secrets: values that must not appear in the message.
        beginning: the first bytes of a streamed answer. They explain an answer that cannot be read.
    """
    known_error = next((cause for cause in _chain(error) if isinstance(cause, ModelError)), None)
    if known_error is None:
        status = _status(error)
        kind = _kind(error, status)
        message = _message(error, status)
        if kind in ("connection", "timeout") and status is None:
            message = _about_connection(error, message)
        if kind == "unparsable" and beginning is not None:
            message = beginning.problem() or message
        return ModelError(
            shortened(message, secrets),
            kind=kind,
            status=status,
            retry_after=_retry_after(error),
        )
    known_error.args = (shortened(str(known_error), secrets),)
    known_error.__cause__ = known_error.__context__ = None  # a chained error would show the secrets
    return known_error.with_traceback(None)


def shortened(message: str, secrets: Secrets = NO_SECRETS) -> str:
    """Return a message on one line, without secrets, cut to `MESSAGE_MAX` characters."""
    # as a whole, since half a secret beside a cut would not be recognised
    message = secrets.hide_undecoded(message)
    safe = secrets.hide(message[:_SEARCHED], deep=True)
    if len(message) > _SEARCHED:
        safe = safe[:-_MARGIN]  # it may end with the beginning of a secret
    safe = re.sub(r"\s+", " ", hide_named(safe)).strip()
    return safe if len(safe) <= MESSAGE_MAX else safe[: MESSAGE_MAX - 1] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen_ids: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen_ids:
        seen_ids.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _about_connection(error: Exception, message: str) -> str:
    """Return the message of a lost or refused connection: its cause, and the address without credentials."""
    links = list(_chain(error))
    url = next(filter(None, map(_requested_url, links)), None)
    if url is None:
        return message
    unconnected = any(type(link).__name__ in ("ConnectError", "ConnectTimeout") for link in links)
    if not unconnected:
        return f"{message.rstrip('.')} ({url})"
    cause = next((str(link) for link in reversed(links) if str(link) and not _is_vague(str(link))), message)
    return f"no connection to {url}: {cause}"


def _is_vague(message: str) -> bool:
    return message.rstrip(".") in ("Connection error", "All connection attempts failed", "Request timed out")


def _requested_url(error: BaseException) -> str | None:
    try:
        url = getattr(getattr(error, "request", None), "url", None)
    except RuntimeError:  # the HTTP client's errors have a request only once one was sent
        return None
    return None if url is None else shown_url(str(url))


def shown_url(url: str) -> str:
    """Return an address without the credentials, the query and the fragment in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds response headers ask to wait, as a number or an HTTP date. Names are in lower case."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if isfinite(seconds) and seconds >= 0:
            return seconds
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _status(error: Exception) -> int | None:
    """Return the HTTP status, or the status code in the body for a failure in the middle of an answer."""
    codes = [body.get("code") for body in _bodies(error)]
    for status in (getattr(error, "status_code", None), *codes):
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


def _kind(error: Exception, status: int | None) -> ModelErrorKind:
    for code in _codes(error):
        if (kind := _BY_CODE.get(code)) is not None:
            return kind
    for body in _bodies(error):
        if isinstance(name := body.get("param"), str) and (kind := _BY_PARAMETER.get(name)) is not None:
            return kind
    if status is not None:
        return kind_of_status(status)
    for code in _codes(error):
        if (kind := _BY_CODE_ALONE.get(code)) is not None:
            return kind
    for cls in type(error).__mro__:
        if (kind := _BY_TYPE.get(cls.__name__)) is not None:
            return kind
    cause = error.__cause__
    kind = _kind(cause, _status(cause)) if isinstance(cause, Exception) else "unknown"
    if kind == "unknown" and any(cls.__name__ == "ModelAPIError" for cls in type(error).__mro__):
        return "unparsable"  # the only meaning left: a response that is not an answer
    return kind


def _codes(error: Exception) -> Iterable[str]:
    for name in ("provider_error_code", "provider_error_type", "code", "type"):
        if isinstance(code := getattr(error, name, None), str):
            yield code
    for body in _bodies(error):
        for name in ("code", "type"):
            if isinstance(code := body.get(name), str):
                yield code
        for detail in _details(body):
            if isinstance(code := detail.get("reason"), str):
                yield code


def _bodies(error: Exception) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the objects of a response body that may describe the error: its `error` member, then the body."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    document = _object(body)
    return _object(document.get("error")), document


def _details(body: dict[str, Any]) -> list[dict[str, Any]]:
    details = body.get("details")
    return [_object(detail) for detail in cast("list[Any]", details)] if isinstance(details, list) else []


def _message(error: Exception, status: int | None) -> str:
    """Return the message of a provider; for a body without a message, a description of the body."""
    body: Any = getattr(error, "body", None)
    for document in (*_bodies(error), {"message": _object(body).get("error")}):
        if isinstance(message := document.get("message"), str) and message:
            return message if not _is_page(message) else about_page(message, status)
    if any(cls.__name__ == "UnexpectedModelBehavior" for cls in type(error).__mro__):
        return str(getattr(error, "message", "")) or type(error).__name__
    if isinstance(body, str) and body.strip():
        return about_page(body, status) if _is_page(body) else _about_text(body, status)
    if body not in (None, ""):
        return f"{_answered(status)} without a message, and a body of {len(str(body)):,} characters"
    if hasattr(error, "errors") and type(error).__name__ == "ValidationError":
        return _about_fields(error)
    return str(error) or type(error).__name__


def _answered(status: int | None) -> str:
    return "the provider answered" if status is None else f"the provider answered with HTTP status {status}"


def _is_page(body: str) -> bool:
    return body.lstrip()[:1] == "<"


def about_page(body: str, status: int | None) -> str:
    """Return a description of a page of markup instead of an answer: its status and its title.

    A title of more than 100 characters is left out. A part of it could end with half of a secret.
    """
    title = re.search(r"<title[^>]*>([^<]{1,100})<", body[:_SEARCHED], re.IGNORECASE)
    from html import unescape  # its tables are large, and few errors are pages

    called = f" called {unescape(title[1]).strip()!r}" if title is not None else ""
    return f"{_answered(status)} and a page of markup{called}, not with an error of its API"


def _about_text(body: str, status: int | None) -> str:
    """Return a short text, such as a proxy's, as it is. For JSON or a long text, return a description."""
    if len(body) <= _TEXT_MAX and body.lstrip()[:1] not in ("{", "["):
        return body
    return f"{_answered(status)} without a message, and a body of {len(body):,} characters"


def _about_fields(error: Any) -> str:
    """Return the messages of a validation error, without the invalid values."""
    problems = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        for problem in error.errors(include_input=False)
    ]
    return f"the response is not an answer of this API: {'; '.join(problems[:3])}"


def _retry_after(error: Exception) -> float | None:
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if isinstance(headers, Mapping):
        pairs = cast("Mapping[Any, Any]", headers).items()
        seconds = retry_after({str(name).lower(): str(value) for name, value in pairs})
        if seconds is not None:
            return seconds
    for body in _bodies(error):
        for detail in _details(body):  # Google's form: "retryDelay": "34.07s"
            if isinstance(delay := detail.get("retryDelay"), str):
                return retry_after({"retry-after": delay.removesuffix("s")})
    delay = getattr(error, "retry_after", None)
    return retry_after({"retry-after": str(delay)}) if isinstance(delay, (int, float)) else None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
