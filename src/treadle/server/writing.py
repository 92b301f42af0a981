"""Responses as JSON: small ones at once, large ones in a thread and piece by piece, so that no other request waits.

The library that writes JSON holds the interpreter until it has written all of a value. So a long list is written item
by item: between two of them the event loop goes on.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import pydantic_core

from treadle.core.messages import Json
from treadle.core.redaction import Secrets
from treadle.results.wire import plain_wire, to_wire, wire_bytes

LARGE: Final = 100
"""From how many items on a list is written in a thread."""


async def content(value: Any, secrets: Secrets | None) -> bytes:
    """Return a value as JSON.

    Args:
        value: in the classes that verbs return.
        secrets: what must not be told; None if nothing is known.
    """
    if _is_large(value):
        return await asyncio.to_thread(_written, value, secrets)
    return _hidden(value, secrets)


def _is_large(value: Any) -> bool:
    """Whether a value holds a long list: of messages, or as a page or another list itself."""
    if isinstance(value, tuple):
        return len(cast("tuple[Any, ...]", value)) > LARGE
    lists = [getattr(value, name, None) for name in ("messages", "items")]
    return any(isinstance(each, tuple) and len(cast("tuple[Any, ...]", each)) > LARGE for each in lists)


def _hidden(value: Any, secrets: Secrets | None) -> bytes:
    if secrets is None:
        return wire_bytes(value)
    return pydantic_core.to_json(secrets.hide_data(plain_wire(value)))


def _written(value: Any, secrets: Secrets | None) -> bytes:
    return b"".join(_pieces(to_wire(value), secrets))


def _pieces(document: Json, secrets: Secrets | None) -> list[bytes]:
    if isinstance(document, list):
        written = [_hidden(item, secrets) for item in cast("list[Json]", document)]
        return [b"[", b",".join(written), b"]"]
    if not isinstance(document, dict):
        return [_hidden(document, secrets)]
    pieces: list[bytes] = []
    for name, item in cast("dict[str, Json]", document).items():
        pieces += [b"," if pieces else b"{", _hidden(name, None), b":"]
        pieces += _pieces(item, secrets) if isinstance(item, list) else [_hidden(item, secrets)]
    return [*pieces, b"}"] if pieces else [b"{}"]
