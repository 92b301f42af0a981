"""Spare processes, which have loaded a tool's module and wait half a minute for its next call.

There is one for each kind.

Most of a process's start time is spent on imports. A spare imports between two calls of the same tool, while the model
thinks. It serves one call as any other process does. It belongs to the event loop that made it, and ends with this
process at the latest.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Final

from treadle.errors import ToolError
from treadle.tools.hosts.process import Loaded, ToolProcess

SPARE_SECONDS: Final = 30.0
"""Seconds that a spare waits for a call."""

MAX_SPARES: Final = 4
"""Most spares that wait at the same time."""

_lock: Final = threading.Lock()
_spares: Final[dict[Loaded, ToolProcess]] = {}
_ending: Final[set[asyncio.Task[None]]] = set()


def take(loaded: Loaded) -> ToolProcess:
    """Return a spare of this kind, or a new process. End spares of the same tool that loaded an older version.

    Raises:
        HostUnavailable: a process cannot be started as declared.
    """
    with _lock:
        spare = _spares.pop(loaded, None)
        stale = [(old, each) for old, each in _spares.items() if old.is_of_the_tool_of(loaded)]
    for old, each in stale:
        _retire(old, each)
    return spare if spare is not None and not spare.is_over() else ToolProcess(loaded)


def refill(loaded: Loaded) -> None:
    """Start a spare, unless this kind has one or there are enough."""
    for other, spare in list(_spares.items()):
        if time.monotonic() - spare.started > 2 * SPARE_SECONDS:
            _retire(other, spare)  # its own event loop is closed, so its timer cannot fire
    with _lock:
        if loaded in _spares or len(_spares) >= MAX_SPARES:
            return
        try:
            spare = _spares[loaded] = ToolProcess(loaded)
        except (ToolError, OSError):
            return  # the next call reports the reason
    asyncio.get_running_loop().call_later(SPARE_SECONDS, _retire, loaded, spare)


async def end_spares() -> None:
    """End all spares and wait until they are gone."""
    with _lock:
        spares = list(_spares.values())
        _spares.clear()
    for spare in spares:
        await spare.end()


def _retire(loaded: Loaded, spare: ToolProcess) -> None:
    with _lock:
        if _spares.get(loaded) is not spare:
            return  # a call took it
        del _spares[loaded]
    task = asyncio.get_running_loop().create_task(spare.end())
    _ending.add(task)
    task.add_done_callback(_ending.discard)


def waiting() -> tuple[int, ...]:
    """Return the process ids of the spares."""
    with _lock:
        return tuple([spare.pid for spare in _spares.values()])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spares.clear)  # spares belong to the parent
