"""Read from its bytecode whether a tool's function calls `ask` on its `ToolContext` parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

_LOADS: Final = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE", "LOAD_FAST_CHECK")


def asks(fn: Callable[..., Any], context: str | None) -> bool:
    """Return whether a function calls `ask` on its context. Calls inside other functions are not seen.

    Args:
        fn: the function of a tool.
        context: the name of the parameter that takes the `ToolContext`; None if it takes none.
    """
    if context is None:
        return False
    while isinstance(fn, functools.partial):
        fn = fn.func
    code: Any = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return isinstance(code, CodeType) and any(_asks_in(each, context) for each in _codes(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a piece of code and all that is defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _asks_in(code: CodeType, context: str) -> bool:
    if "ask" not in code.co_names:
        return False
    import dis  # few tools ask

    loaded: Any = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval == "ask" and loaded == context:
            return True
        loaded = step.argval if step.opname.startswith(_LOADS) else None
    return False
