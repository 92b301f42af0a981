"""The rule of stopping: what became of a request to cancel, pause or interrupt a task, as the task's journal tells.

A request is an item of the inbox that the owner turns into an event. The call that sent it returns when it was obeyed:

    cancel               the task has ended. Nothing lifts a cancel.
    pause, interrupt     the request is in force and nothing of the task runs any more; or the task has ended.

A pause or an interrupt is in force until a `Resumed` event. Where nothing ran when that was recorded, the request was
obeyed first and lifted afterwards: the caller is told how the task stood in between. Where a call still ran, the
request was lifted before it was obeyed: the caller is told how the task stops next. A pause and an interrupt that are
both in force are obeyed together, and the task is `paused`. A request that the owner never recorded came too late for
its attempt: it is sent again if another attempt has begun.

    5  tool_started
    6  pause_requested     pause() waits, since a call runs
    7  tool_ended          the request is obeyed: the task is given back, `paused`
    8  resumed             pause() returns the state as of event 7, however late it looks

Were event 7 not there, `resumed` would have lifted the pause before it was obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from treadle.core import events as e
from treadle.core.data import frozen

StopKind: TypeAlias = Literal["cancel", "pause", "interrupt"]


@frozen
class Fate:
    """What became of a request.

    Args:
        kind: `unrecorded`: no event is its own; `refused`: the task is being cancelled; `in_force`; `lifted`, by the
            event after `seq`; `ended`: the task ended at `seq`.
        seq: the last event under which the request was in force.
    """

    kind: Literal["unrecorded", "refused", "in_force", "lifted", "ended"]
    seq: int = 0


def fate_of(item_id: str, events: Iterable[e.Event]) -> Fate:
    """Return what became of the request with this inbox id, by the events since it was sent."""
    request: e.Event | None = None
    for event in events:
        if request is None:
            if getattr(event, "inbox", None) == item_id:
                request = event
        elif isinstance(event, e.TaskEnded):
            return Fate("ended", event.seq)
        elif isinstance(event, e.Resumed) and isinstance(request, (e.PauseRequested, e.InterruptRequested)):
            return Fate("lifted", event.seq - 1)
    if request is None:
        return Fate("unrecorded")
    return Fate("refused" if isinstance(request, e.CommandRejected) else "in_force")
