"""A function as an observer."""

from __future__ import annotations

from collections.abc import Callable

from treadle.ports import Notice


class Callback:
    """Calls a function with each notice.

    Args:
        function: the function; it is called in a thread of its own.
        deltas: whether it is called with deltas too.
    """

    def __init__(self, function: Callable[[Notice], object], *, deltas: bool = False) -> None:
        self._function = function
        self.deltas = deltas
        self.name: str = getattr(function, "__qualname__", repr(function))

    def observe(self, notice: Notice) -> None:
        self._function(notice)

    def __repr__(self) -> str:
        return f"Callback({self._function!r})"
