"""Uses of an object that Python refuses by a bare error, such as `await`, `for` or a call: here it says what to write.

A class is decorated with the uses that users of other libraries try. A type checker reports them without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from treadle.errors import MisusedVerb

T = TypeVar("T")

_USES: Final = {
    "iter": "has no plain `for`",
    "aiter": "has no `async for`",
    "enter": "has no plain `with`",
    "aenter": "has no `async with`",
    "await_": "is not awaited",
    "call": "is not called",
    "len": "has no len()",
}


def refuses(**uses: str) -> Callable[[type[T]], type[T]]:
    """Make a class decorator: these uses of an instance raise `MisusedVerb`.

    Args:
        **uses: what to write instead, by the use, one of `_USES`.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, text in uses.items():
            use = refusal(_USES[name], text)
            setattr(cls, f"__{name.rstrip('_')}__", use)
            if name in ("enter", "aenter"):  # Python looks for both before it calls one
                setattr(cls, f"__{name.replace('enter', 'exit')}__", use)
            if name == "len":  # else an `if` would ask for it
                members: Any = cls
                members.__bool__ = _true
        return cls

    return decorate


def _true(_: object) -> bool:
    return True


def refusal(use: str, text: str) -> Callable[..., Any]:
    """Return a method that raises `MisusedVerb`."""

    def refuse(self: Any, *_: object, **__: object) -> Any:
        raise MisusedVerb(f"{type(self).__name__} {use}: {text}")

    return refuse
