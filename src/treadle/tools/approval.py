"""What a tool says about approvals: functions that take its arguments by name, and a digest of its code."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, Final

CONTEXT: Final = "ctx"
"""The parameter in which a function beside a tool takes the `ToolContext`; the tool may call it otherwise."""


def names_taken(fn: Callable[..., Any], known: Collection[str]) -> tuple[str, ...] | str:
    """Return which of the known names a function takes as arguments, or what is wrong with its parameters.

    Args:
        fn: the function; with `**` it takes all.
        known: the names of the tool's arguments, and of the context.
    """
    names: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names += [name for name in known if name != CONTEXT and name not in names]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            return f"takes {parameter.name!r} by position, and arguments are passed by name"
        elif parameter.name in known:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            listed = ", ".join(sorted(known))
            return f"takes {parameter.name!r}, which is no argument of the tool: it may take {listed}"
    return tuple(names)


def code_digest(fn: Any) -> str:
    """Return a digest of a function's code: another one where the function would run differently.

    Functions that it calls do not count. Empty for what has no Python code.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    code: Any = getattr(fn, "__code__", None)
    if code is None:
        code = getattr(getattr(fn, "__call__", None), "__func__", fn)  # noqa: B004
        code = getattr(code, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    return hashlib.sha256(_facts(code).encode("utf-8", "backslashreplace")).hexdigest()


def _facts(code: CodeType) -> str:
    """Return what a piece of code does, without the places where it is written down."""
    return repr((code.co_code, code.co_names, code.co_varnames, [_constant(each) for each in code.co_consts]))


def _constant(value: Any) -> str:
    """Return a constant as text that is the same in each process."""
    if isinstance(value, CodeType):
        return _facts(value)
    if isinstance(value, frozenset):
        return f"frozenset({sorted(_constant(each) for each in value)})"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return f"({', '.join(_constant(each) for each in value)})"  # pyright: ignore[reportUnknownVariableType]
    return repr(value)
