"""Uses of an object that Python refuses by a bare error, such as `await`, `for` or a call: here the error has advice.

A class is decorated with the uses that users of other libraries try. A type checker reports them without it.
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
    """Make a class decorator: these uses of an instance raise `MisusedVerb`.

    Args:
        **uses: advice by the use, one of `_USES`.
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


def can_be_called(value: object) -> TypeIs[Callable[..., Any]]:
    """Return whether a value is a function, a class or an object with a call of its own.

    Objects whose call only raises advice, such as an Agent, are callable for Python alone.
    """
    return callable(value) and not hasattr(cast("Any", type(value)).__call__, "advice")


def no_function(value: object) -> str:
    """Return a value that is passed in place of a function, for an error message, with advice if its class has some."""
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
