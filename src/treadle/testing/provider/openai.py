"""The common parts of OpenAI's two wire formats: keys, ids of requests, errors, strict schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from treadle.testing.provider.wire import Refused, fresh_id, mapping

_ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "requests"}


class OpenAI:
    """The common part of OpenAI's wire formats."""

    def key(self, headers: Mapping[str, str]) -> str:
        """Return the bearer token."""
        return headers.get("authorization", "").removeprefix("Bearer ").strip()

    def request_id(self) -> dict[str, str]:
        """Return the header with OpenAI's id of a request."""
        return {"x-request-id": fresh_id("req_")}

    def error(
        self, status: int, message: str, code: str | None = None, param: str | None = None
    ) -> dict[str, Any]:
        """Return OpenAI's error envelope."""
        kind = _ERROR_TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
        code = code or _ERROR_CODES.get(status)
        return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def check_strict(schema: Any, param: str) -> None:
    """Raise unless a strict schema closes every object and requires every property."""
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            check_strict(item, param)
    if not isinstance(schema, dict):
        return
    node = cast("dict[str, Any]", schema)
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            raise Refused(f"Invalid schema in '{param}': strict needs 'additionalProperties': false.", param)
        missing = set(node.get("properties", {})) - set(node.get("required", []))
        if missing:
            raise Refused(
                f"Invalid schema in '{param}': strict needs 'required' to hold {sorted(missing)}.", param
            )
    for name, inner in node.items():
        if name in ("properties", "$defs"):
            inner = list(mapping(inner, param).values())
        if name in ("properties", "$defs", "items", "anyOf", "allOf"):
            check_strict(inner, param)
