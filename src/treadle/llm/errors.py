"""What kind of failure a provider's refusal is, judged by type, status and headers; never by searching prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from html import unescape
from math import isfinite
from typing import Any, cast

from treadle.core.redaction import NO_SECRETS, Secrets, hide_named
from treadle.errors import ModelError, ModelErrorKind

MESSAGE_MAX = 500
"""Characters of a provider's message that an error repeats."""

_LOOKED_AT, _MARGIN = 4_000, 1_000
"""Characters of a message that are looked through for secrets, and those at their end of which nothing is repeated."""

_TEXT_MAX = 300
"""Characters of a body that is no JSON and no markup, and short enough to be a message."""

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
    "insufficient_quota": "permission",
    "model_not_found": "not_found",
    "overloaded_error": "overloaded",
    "rate_limit_exceeded": "rate_limit",
    "request_too_large": "too_large",
    "string_above_max_length": "too_large",
}
"""Codes that machines are meant to read, where they say more than the status."""

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
"""Codes of failures that are told in the middle of an answer, when the status has long been 200."""

# By name, so that no SDK is imported to recognise its errors. Of several, the first in the class's order counts.
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
    "DecodingError": "connection",  # what was compressed got damaged on the way
    "TransportError": "connection",
    "StreamError": "connection",
    "JSONDecodeError": "unparsable",
    "UnicodeDecodeError": "unparsable",
    "ValidationError": "unparsable",
    "TimeoutError": "timeout",
    "OSError": "connection",
    # What SDKs raise when they stumble over an answer that is not as they expect.
    "ArithmeticError": "unparsable",
    "AssertionError": "unparsable",
    "AttributeError": "unparsable",
    "LookupError": "unparsable",
    "TypeError": "unparsable",
    "ValueError": "unparsable",
}


PASSING: frozenset[ModelErrorKind] = frozenset(
    ("rate_limit", "overloaded", "server", "timeout", "connection", "not_sent")
)
"""What may be otherwise in a while: 408, 409, 425, 429 and 5xx, deadlines, lost connections, requests held back."""

OF_SERVICE: frozenset[ModelErrorKind] = frozenset(("overloaded", "server", "timeout", "connection"))
"""What tells that a service is not well, whoever asks and whatever is asked."""

ELSEWHERE: frozenset[ModelErrorKind] = PASSING | frozenset[ModelErrorKind](
    ("authentication", "permission", "not_found")
)
"""What another model may do better: what passes, and what is wrong with one account or one model."""


def kind_of_status(status: int) -> ModelErrorKind:
    """Return what kind of failure an HTTP status tells of."""
    if (kind := _BY_STATUS.get(status)) is not None:
        return kind
    if status >= 500:
        return "server"
    return "invalid_request" if 400 <= status < 500 else "unknown"


def model_error(error: Exception, *, secrets: Secrets = NO_SECRETS) -> ModelError:
    """Return what an SDK, pydantic-ai or the HTTP client raised as a `ModelError`, apart from what led to it.

    Args:
        error: what was raised.
        secrets: values that must not appear in the message.
    """
    ours = next((cause for cause in _chain(error) if isinstance(cause, ModelError)), None)
    if ours is None:
        status = _status(error)
        return ModelError(
            shortened(_words(error, status), secrets),
            kind=_kind(error, status),
            status=status,
            retry_after=_retry_after(error),
        )
    ours.args = (shortened(str(ours), secrets),)
    ours.__cause__ = ours.__context__ = None  # a chain would show what is hidden
    return ours.with_traceback(None)


def shortened(words: str, secrets: Secrets = NO_SECRETS) -> str:
    """Return words for an error message: on one line, without secrets, at most `MESSAGE_MAX` characters."""
    looked_at = secrets.hide(words[:_LOOKED_AT], deep=True)
    if len(words) > _LOOKED_AT:
        looked_at = looked_at[:-_MARGIN]  # it may end with the beginning of a secret
    looked_at = re.sub(r"\s+", " ", hide_named(looked_at)).strip()
    return looked_at if len(looked_at) <= MESSAGE_MAX else looked_at[: MESSAGE_MAX - 1] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that response headers (names in lower case) ask to wait, from a number or an HTTP date."""
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
    """Return the HTTP status, or what stands for it in a failure that is told in the middle of an answer."""
    told = [place.get("code") for place in _places(error)]
    for status in (getattr(error, "status_code", None), *told):
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


def _kind(error: Exception, status: int | None) -> ModelErrorKind:
    for code in _codes(error):
        if (kind := _BY_CODE.get(code)) is not None:
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
        return "unparsable"  # all that is left of its meanings: something came, and it was no answer
    return kind


def _codes(error: Exception) -> Iterable[str]:
    for name in ("provider_error_code", "provider_error_type", "code", "type"):
        if isinstance(code := getattr(error, name, None), str):
            yield code
    for place in _places(error):
        for name in ("code", "type"):
            if isinstance(code := place.get(name), str):
                yield code
        for detail in _details(place):
            if isinstance(code := detail.get("reason"), str):
                yield code


def _places(error: Exception) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return where the body of a response may say what is wrong, the likelier first."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    there = _object(body)
    return _object(there.get("error")), there


def _details(place: dict[str, Any]) -> list[dict[str, Any]]:
    details = place.get("details")
    return [_object(each) for each in cast("list[Any]", details)] if isinstance(details, list) else []


def _words(error: Exception, status: int | None) -> str:
    """Return the message that a provider sent; of a body without one only what kind of thing it was."""
    body: Any = getattr(error, "body", None)
    for place in (*_places(error), {"message": _object(body).get("error")}):
        if isinstance(message := place.get("message"), str) and message:
            return message if not _is_page(message) else _about_page(message, status)
    if any(cls.__name__ == "UnexpectedModelBehavior" for cls in type(error).__mro__):
        return str(getattr(error, "message", "")) or type(error).__name__
    if isinstance(body, str) and body.strip():
        return _about_page(body, status) if _is_page(body) else _about_text(body, status)
    if body not in (None, ""):
        return f"{_answered(status)} without a message, and a body of {len(str(body)):,} characters"
    if hasattr(error, "errors") and type(error).__name__ == "ValidationError":
        return _about_fields(error)
    return str(error) or type(error).__name__


def _answered(status: int | None) -> str:
    return "the provider answered" if status is None else f"the provider answered with HTTP status {status}"


def _is_page(body: str) -> bool:
    return body.lstrip()[:1] == "<"


def _about_page(body: str, status: int | None) -> str:
    title = re.search(r"<title[^>]*>([^<]{1,100})", body[:_LOOKED_AT], re.IGNORECASE)
    called = f" called {unescape(title[1]).strip()!r}" if title is not None else ""
    return f"{_answered(status)} and a page of markup{called}, not with an error of its API"


def _about_text(body: str, status: int | None) -> str:
    """Return a short text, such as proxies send, as it is; of JSON and long texts only that they came."""
    if len(body) <= _TEXT_MAX and body.lstrip()[:1] not in ("{", "["):
        return body
    return f"{_answered(status)} without a message, and a body of {len(body):,} characters"


def _about_fields(error: Any) -> str:
    """Return what a validation found, without the values it found it in."""
    found = [
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_input=False)
    ]
    return f"what came is not an answer of this API: {'; '.join(found[:3])}"


def _retry_after(error: Exception) -> float | None:
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    if isinstance(headers, Mapping):
        there = cast("Mapping[Any, Any]", headers)
        asked = retry_after({str(name).lower(): str(value) for name, value in there.items()})
        if asked is not None:
            return asked
    for place in _places(error):
        for detail in _details(place):  # how Google says it: "retryDelay": "34.07s"
            if isinstance(asked := detail.get("retryDelay"), str):
                return retry_after({"retry-after": asked.removesuffix("s")})
    asked = getattr(error, "retry_after", None)
    return retry_after({"retry-after": str(asked)}) if isinstance(asked, (int, float)) else None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
