"""The abandoned calls of the tasks that this process drives, in event loops and in threads.

The limit here is for calls in event loops. The pool of threads (`tools`) limits its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from treadle.core.abandoned import AbandonedCall, AbandonedCalls

_LOG: Final = logging.getLogger("treadle.tools")

_in_loops: Final = AbandonedCalls()
_in_threads: Final = AbandonedCalls()

refuse_if_too_many = _in_loops.refuse_if_too_many


def give_up(work: asyncio.Task[Any], name: str, task_id: str, call_id: str) -> None:
    """List a call until its asyncio task ends, or its event loop is closed."""
    call = AbandonedCall(name, task_id, call_id, time.monotonic())
    _in_loops.add(work, call, lambda: not work.get_loop().is_closed())
    work.add_done_callback(_end_late)


def _end_late(work: asyncio.Task[Any]) -> None:
    """Remove a call that has ended after all, and log its delay."""
    call = _in_loops.remove(work)
    if call is not None:
        _LOG.warning("%s", call.late_text(time.monotonic()))


def leave_behind(still_runs: Callable[[], bool], name: str, task_id: str, call_id: str) -> None:
    """List a call whose work continues in a thread, until that work ends."""
    _in_threads.add(object(), AbandonedCall(name, task_id, call_id, time.monotonic()), still_runs)


def still_running() -> tuple[AbandonedCall, ...]:
    """Return all calls that were abandoned and have not ended."""
    return (*_in_loops.running(), *_in_threads.running())
