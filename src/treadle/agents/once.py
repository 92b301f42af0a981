"""Nested `once`: a function that requests the value it is about to return would wait for ever."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_making: Final[ContextVar[tuple[tuple[int, str], ...]]] = ContextVar("treadle_once", default=())


@contextmanager
def making(owner: object, name: str) -> Generator[None]:
    """Note that the code inside the block makes a value. The note holds for its asyncio tasks and threads too.

    Args:
        owner: the owner of the value: the requests of one attempt.
        name: the name of the value.
    """
    token = _making.set((*_making.get(), (id(owner), name)))
    try:
        yield
    finally:
        _making.reset(token)


def is_making(owner: object, name: str) -> bool:
    """Return whether the calling code is making that value."""
    return (id(owner), name) in _making.get()


def nested(name: str) -> str:
    """Return the error text for requesting a value while it is made."""
    return (
        f"once({name!r:.80}, ...) is called inside the function of once({name!r:.80}, ...), and would wait for itself: "
        "use another name"
    )
