"""Errors of a tool that must not reach the event loop: exits, interrupts and cancellations that it raised itself."""

from __future__ import annotations

import asyncio

from treadle.core.observation import error_text
from treadle.errors import ToolError


def contained(error: BaseException) -> Exception:
    """Return an error that a coroutine may raise: this one if ordinary, else a `ToolError` that names it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = ToolError(f"the tool raised {error_text(error)}")
    wrapped.__cause__ = error
    return wrapped


def from_outside(error: BaseException) -> bool:
    """Return whether an error came to the tool from its caller: a cancelled task, or a coroutine being closed."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is None
        except RuntimeError:  # no loop runs, so the coroutine is being thrown away
            return True
    return False
