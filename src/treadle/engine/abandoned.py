"""Calls that were given up: they ignored two cancellations, and still run, in their event loop or in a thread.

Nothing can end them but themselves or their process. So they are named, and a limit on their number turns what would
fill the process with them into an error of one call. The limit here is on those in event loops: where threads are
(`tools`) there is another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from treadle.core.data import frozen
from treadle.errors import ToolError

MAX_ABANDONED: Final = 16
"""With this many abandoned calls still running, no new tool call starts."""


@frozen
class AbandonedCall:
    """A call that was cancelled twice and still runs.

    Args:
        name: the tool's name, or `the model`.
        task_id: whose call it is.
        call_id: the call, or the step whose answer was asked for.
        since: monotonic seconds.
    """

    name: str
    task_id: str
    call_id: str
    since: float


_given_up: dict[asyncio.Task[Any], AbandonedCall] = {}


def give_up(work: asyncio.Task[Any], name: str, task_id: str, call_id: str) -> None:
    """Take note of a call that is left behind, until it ends."""
    _given_up[work] = AbandonedCall(name, task_id, call_id, time.monotonic())
    work.add_done_callback(lambda ended: _given_up.pop(ended, None))


_in_threads: list[tuple[Callable[[], bool], AbandonedCall]] = []


def leave_behind(still_runs: Callable[[], bool], name: str, task_id: str, call_id: str) -> None:
    """Take note of a call whose work goes on in a thread, until it does not."""
    _in_threads[:] = [one for one in _in_threads if one[0]()]
    _in_threads.append((still_runs, AbandonedCall(name, task_id, call_id, time.monotonic())))


def still_running() -> tuple[AbandonedCall, ...]:
    """Return all calls that were given up and have not ended."""
    _in_threads[:] = [one for one in _in_threads if one[0]()]
    return (*_in_loops(), *[call for _, call in _in_threads])


def _in_loops() -> tuple[AbandonedCall, ...]:
    """Return those in event loops; those of a closed one run no more."""
    found = list(_given_up.items())
    for work, _ in found:
        if work.get_loop().is_closed():
            _given_up.pop(work, None)
    return tuple([call for work, call in found if work in _given_up])


def refuse_if_too_many() -> None:
    """Raise `ToolError` when as many abandoned calls run as may."""
    if len(_given_up) < MAX_ABANDONED:  # on the way of every call
        return
    running = _in_loops()
    if len(running) >= MAX_ABANDONED:
        names = ", ".join(sorted({call.name for call in running}))
        raise ToolError(
            f"{len(running)} calls that ignored their cancellation still run ({names}), so no further one is started; "
            "restart the process to be rid of them"
        )
