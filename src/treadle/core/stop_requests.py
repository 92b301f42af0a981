"""The fate of a request to cancel, pause or interrupt a task, according to the task's journal.

A request is an inbox item that the owner turns into an event. The call that sent it returns once it was obeyed:

    cancel               the task has ended. A cancel is never lifted.
    pause, interrupt     the request is in force and the task's calls have stopped; or the task has ended.

A pause or an interrupt is in force until a `Resumed` event. If no call ran when that was recorded, the request was
obeyed first and lifted afterwards: the caller gets the state in between. If a call still ran, the request was lifted
before it was obeyed: the caller gets the state when the task stops next. A pause and an interrupt that are both in
force are obeyed together, and the task is `paused`. A request that the owner never recorded came too late for its
attempt: it is sent again if another attempt has begun.

    5  tool_started
    6  pause_requested     pause() waits, since a call runs
    7  tool_ended          the request is obeyed: the task is released, `paused`
    8  resumed             pause() returns the state as of event 7, however late it looks

Without event 7, `resumed` would have lifted the pause before it was obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from treadle.core import events as e
from treadle.core.data import frozen

StopKind: TypeAlias = Literal["cancel", "pause", "interrupt"]


@frozen
class Fate:
    """The fate of a request.

    Args:
        kind: `unrecorded`: it has no event; `refused`: the task is being cancelled; `in_force`; `lifted`, by the event
            after `seq`; `ended`: the task ended at `seq`.
        seq: the last event under which the request was in force.
    """

    kind: Literal["unrecorded", "refused", "in_force", "lifted", "ended"]
    seq: int = 0


def fate_of(item_id: str, events: Iterable[e.Event]) -> Fate:
    """Return the fate of the request with this inbox id, by the events since it was sent."""
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
