"""Helpers for approvals: the arguments of an option's function by name, and a digest of a tool's code."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Collection
from types import CodeType
from typing import Any, Final

CONTEXT: Final = "ctx"
"""The name of the `ToolContext` parameter in `needs_approval=` and `preview=`. The tool itself may use another."""


def names_taken(fn: Callable[..., Any], argument_names: Collection[str]) -> tuple[str, ...] | str:
    """Return the names that a function takes as arguments, or the problem with its parameters.

    Args:
        fn: the function. With `**` it takes all names except the context.
        argument_names: the names of the tool's arguments, and of the context.
    """
    names: list[str] = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            names += [name for name in argument_names if name != CONTEXT and name not in names]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            return f"takes {parameter.name!r} by position, and arguments are passed by name"
        elif parameter.name in argument_names:
            names.append(parameter.name)
        elif parameter.default is parameter.empty:
            allowed = ", ".join(sorted(argument_names))
            return f"takes {parameter.name!r}, which is not an argument of the tool: it may take {allowed}"
    return tuple(names)


def code_digest(fn: Any) -> str:
    """Return a digest of a function's own bytecode and constants. It changes with the function's behaviour.

    Functions that it calls are not included. Empty for a callable without Python code.
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
    """Return the behaviour of a code object as text, without file names and line numbers."""
    return repr((code.co_code, code.co_names, code.co_varnames, [_constant(each) for each in code.co_consts]))


def _constant(value: Any) -> str:
    """Return a constant as text that is the same in every process."""
    if isinstance(value, CodeType):
        return _facts(value)
    if isinstance(value, frozenset):
        return f"frozenset({sorted(_constant(each) for each in value)})"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple):
        return f"({', '.join(_constant(each) for each in value)})"  # pyright: ignore[reportUnknownVariableType]
    return repr(value)
