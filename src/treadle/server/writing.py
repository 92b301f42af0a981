"""Write responses as JSON: small ones at once, large ones in a thread and in pieces, so that no request blocks others.

The JSON library holds the interpreter lock while it writes a value. So a long list is written item by item; between two
items the event loop runs.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import pydantic_core

from treadle.core.messages import Json
from treadle.core.redaction import Secrets
from treadle.results.wire import plain_wire, to_wire, wire_bytes

LARGE: Final = 100
"""A list of more items is written in a thread."""


async def content(value: Any, secrets: Secrets | None) -> bytes:
    """Return a value as JSON.

    Args:
        value: an object of a class that verbs return.
        secrets: the secrets to mask; None if there are none.
    """
    if _is_large(value):
        return await asyncio.to_thread(_json_bytes, value, secrets)
    return _hidden(value, secrets)


def _is_large(value: Any) -> bool:
    """Return whether a value contains a long list: as `messages`, as the items of a page, or the value itself."""
    if isinstance(value, tuple):
        return len(cast("tuple[Any, ...]", value)) > LARGE
    lists = [getattr(value, name, None) for name in ("messages", "items")]
    return any(isinstance(each, tuple) and len(cast("tuple[Any, ...]", each)) > LARGE for each in lists)


def _hidden(value: Any, secrets: Secrets | None) -> bytes:
    if secrets is None:
        return wire_bytes(value)
    return pydantic_core.to_json(secrets.hide_data(plain_wire(value)))


def _json_bytes(value: Any, secrets: Secrets | None) -> bytes:
    return b"".join(_pieces(to_wire(value), secrets))


def _pieces(document: Json, secrets: Secrets | None) -> list[bytes]:
    if isinstance(document, list):
        items = [_hidden(item, secrets) for item in cast("list[Json]", document)]
        return [b"[", b",".join(items), b"]"]
    if not isinstance(document, dict):
        return [_hidden(document, secrets)]
    pieces: list[bytes] = []
    for name, item in cast("dict[str, Json]", document).items():
        pieces += [b"," if pieces else b"{", _hidden(name, None), b":"]
        pieces += _pieces(item, secrets) if isinstance(item, list) else [_hidden(item, secrets)]
    return [*pieces, b"}"] if pieces else [b"{}"]
