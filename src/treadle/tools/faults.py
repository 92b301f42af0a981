"""Contain the errors of a tool that must not reach the event loop: its own exits, interrupts and cancellations."""

from __future__ import annotations

import asyncio

from treadle.core.observation import whole_error_text
from treadle.core.questions import AwaitingAnswer
from treadle.core.tracebacks import StandsForCause
from treadle.errors import ToolError


class _Raised(StandsForCause, ToolError):
    """A tool raised an error that a coroutine must not raise."""


def contained(error: BaseException) -> Exception:
    """Return an ordinary error as it is, and any other as a `ToolError` with its text.

    Re-raises `AwaitingAnswer`, which is not an error.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    if isinstance(error, AwaitingAnswer):
        raise error
    wrapped = _Raised(f"the tool raised {whole_error_text(error)}")
    wrapped.__cause__ = error
    return wrapped


def from_outside(error: BaseException) -> bool:
    """Return whether an error comes from outside the tool, as a cancellation, a closed coroutine or a question does."""
    if isinstance(error, AwaitingAnswer):
        return True
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is None
        except RuntimeError:  # no loop runs: the coroutine is being garbage-collected
            return True
    return False


def contain(error: BaseException) -> None:
    """Raise an ordinary error instead of one from inside the tool that must not reach the event loop.

    Returns for an ordinary error, and for one from outside the tool. The caller then raises it again.
    """
    if not isinstance(error, Exception) and not from_outside(error):
        raise contained(error) from error
