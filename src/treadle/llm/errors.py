"""What kind of failure a provider's refusal is, judged by type, status and headers; never by searching prose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, cast
from urllib.parse import quote

from treadle.errors import ModelError, ModelErrorKind

MESSAGE_MAX = 500
"""Characters of a provider's words that an error repeats."""

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


_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)([?&](?:[\w-]*key|[\w-]*token|sig|signature|secret)=)[^&\s\"'<>]+"), r"\1[secret]"),
    (re.compile(r"(://)[^/@\s:]+:[^/@\s]+@"), r"\1[secret]@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+(?=\S*\d)[\w.~+/=-]{8,}"), r"\1 [secret]"),
    (
        re.compile(r"(?i)((?:x-goog-api-key|x-api-key|api[_-]?key)[\"']?\s*[:=]\s*[\"']?)[\w.~+/=-]{8,}"),
        r"\1[secret]",
    ),
    (re.compile(r"\b(?:sk|rk|gsk|xai|hf)[-_][\w-]{16,}|\bAIza[\w-]{20,}"), "[secret]"),
)
"""What keys look like, and where they stand in addresses and headers: for those whose value is not known here."""


def kind_of_status(status: int) -> ModelErrorKind:
    """Return what kind of failure an HTTP status tells of."""
    if (kind := _BY_STATUS.get(status)) is not None:
        return kind
    if status >= 500:
        return "server"
    return "invalid_request" if 400 <= status < 500 else "unknown"


def model_error(error: Exception, *, secrets: Iterable[str] = ()) -> ModelError:
    """Return what an SDK, pydantic-ai or the HTTP client raised as a `ModelError`.

    Args:
        error: what was raised.
        secrets: values that must not appear in the message.
    """
    if isinstance(error, ModelError):
        return error
    status = _status(error)
    return ModelError(
        shortened(_words(error), secrets),
        kind=_kind(error, status),
        status=status,
        retry_after=_retry_after(error),
    )


def shortened(words: str, secrets: Iterable[str] = ()) -> str:
    """Return words for an error message: on one line, without secrets, at most `MESSAGE_MAX` characters."""
    for secret in secrets:
        if secret:
            words = words.replace(secret, "[secret]").replace(quote(secret, safe=""), "[secret]")
    for pattern, instead in _SECRETS:
        words = pattern.sub(instead, words)
    words = re.sub(r"\s+", " ", words).strip()
    return words if len(words) <= MESSAGE_MAX else words[: MESSAGE_MAX - 1] + "…"


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


def _words(error: Exception) -> str:
    """Return the provider's own words when it sent some, else those of whoever raised."""
    body: Any = getattr(error, "body", None)
    if isinstance(body, str) and body.strip():
        return body
    for place in (*_places(error), {"message": _object(body).get("error")}):
        if isinstance(message := place.get("message"), str) and message:
            return message
    return str(error) or type(error).__name__


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
