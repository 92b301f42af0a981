"""Errors with advice for unsupported uses of an object, such as `await`, `for` or a call.

A class is decorated with uses that users of other libraries try. Type checkers report them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from treadle.errors import MisusedVerb

if TYPE_CHECKING:
    from typing_extensions import TypeIs

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
    """Return a class decorator that makes these uses of an instance raise `MisusedVerb`.

    Args:
        **uses: advice by the use, one of `_USES`.
    """

    def decorate(cls: type[T]) -> type[T]:
        for name, text in uses.items():
            use = refusal(_USES[name], text)
            setattr(cls, f"__{name.rstrip('_')}__", use)
            if name in ("enter", "aenter"):  # Python looks for both before it calls one
                setattr(cls, f"__{name.replace('enter', 'exit')}__", use)
            if name == "len":  # else `if` would call it
                members: Any = cls
                members.__bool__ = _true
        return cls

    return decorate


def can_be_called(value: object) -> TypeIs[Callable[..., Any]]:
    """Return whether a value is a function, a class or a callable object.

    Objects whose call only raises advice, such as an Agent, do not count.
    """
    return callable(value) and not hasattr(cast("Any", type(value)).__call__, "advice")


def no_function(value: object) -> str:
    """Return a value that is not a function as text for an error, with the advice of its class."""
    advice = getattr(getattr(type(value), "__call__", None), "advice", "")  # noqa: B004
    return f"{value!r:.200}{f', which {advice}' if advice else ''}"


def _true(_: object) -> bool:
    return True


def refusal(use: str, text: str) -> Callable[..., Any]:
    """Return a method that raises `MisusedVerb`."""

    def refuse(self: Any, *_: object, **__: object) -> Any:
        raise MisusedVerb(f"{type(self).__name__} {use}: {text}")

    cast("Any", refuse).advice = f"{use}: {text}"
    return refuse
