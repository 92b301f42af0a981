"""`once` inside of itself: a function that asks for the value that it is about to return would wait for ever."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_making: Final[ContextVar[tuple[tuple[int, str], ...]]] = ContextVar("treadle_once", default=())


@contextmanager
def making(owner: object, name: str) -> Generator[None]:
    """Note that the code inside makes a value; its asyncio tasks and threads know it too, by their context.

    Args:
        owner: whose value it is: the requests of one attempt.
        name: the name of the value.
    """
    token = _making.set((*_making.get(), (id(owner), name)))
    try:
        yield
    finally:
        _making.reset(token)


def is_making(owner: object, name: str) -> bool:
    """Return whether the code that asks runs to make that value."""
    return (id(owner), name) in _making.get()


def nested(name: str) -> str:
    """Return what is wrong with asking for a value while it is made."""
    return (
        f"once({name!r:.80}, ...) is called inside the function of once({name!r:.80}, ...), and would wait for itself: "
        "use another name"
    )
