"""Errors of a tool that must not reach the event loop: exits, interrupts and cancellations that it raised itself."""

from __future__ import annotations

import asyncio

from treadle.core.observation import whole_error_text
from treadle.core.questions import AwaitingAnswer
from treadle.core.tracebacks import StandsForCause
from treadle.errors import ToolError


class _Raised(StandsForCause, ToolError):
    """A tool raised an error that no coroutine may raise."""


def contained(error: BaseException) -> Exception:
    """Return an error that a coroutine may raise: this one if ordinary, else a `ToolError` that names it.

    Raises `AwaitingAnswer`, which is no error.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    if isinstance(error, AwaitingAnswer):
        raise error
    wrapped = _Raised(f"the tool raised {whole_error_text(error)}")
    wrapped.__cause__ = error
    return wrapped


def from_outside(error: BaseException) -> bool:
    """Return whether an error is not the tool's own: its task is cancelled, its coroutine closed, a person asked."""
    if isinstance(error, AwaitingAnswer):
        return True
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is None
        except RuntimeError:  # no loop runs, so the coroutine is being thrown away
            return True
    return False
