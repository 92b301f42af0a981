"""Events of delayed calls: background work, which any process can complete with a ticket, and sleeps."""

from __future__ import annotations

from typing import TypeAlias

from treadle.core.data import mutable
from treadle.core.events.calls import CallReport
from treadle.core.events.occurrence import CallOccurrence, Event, StateChange
from treadle.core.labels import Label
from treadle.core.messages import Json

__all__ = [
    "CallDeferred",
    "SleepEnded",
    "SleepStarted",
    "TicketCompleted",
    "TicketExpired",
    "TicketFailed",
    "TicketIssued",
    "TicketProgressed",
]


@mutable
class TicketIssued(Event, CallOccurrence):
    """A call that is about to start got a ticket, which can end it: `ticket` is its digest.

    Each start of the call has its own ticket, and any of them ends the call. So tickets from before a crash stay valid.
    """

    says = "{it.tool} was given a ticket ({it.call})"

    since = 5
    step: str
    call: str
    ticket: str


@mutable
class CallDeferred(Event, CallOccurrence):
    """A tool returned and its work continues in the background. The call ends when its ticket is completed.

    Without that it ends with a timeout at `expires`, in microseconds since 1970, UTC. `details` are the tool's details
    of the work, and `changes` its changes of the task's `extra_state`. `report` is the part of middleware, and `label`
    is as in `ToolEnded`.
    """

    says = "{it.tool} goes on in the background ({it.call})"

    since = 5
    step: str
    call: str
    expires: int
    details: Json = None
    changes: StateChange | None = None
    report: CallReport | None = None
    label: Label | None = None


@mutable
class TicketProgressed(Event, CallOccurrence):
    """The holder of a ticket reported progress. The event may follow the end of the task."""

    says = "the work of {it.tool} in the background progressed ({it.call})"

    since = 5
    step: str
    call: str
    value: Json
    by: str | None = None
    inbox: str | None = None


@mutable
class TicketCompleted(Event, CallOccurrence):
    """The holder of a ticket delivered the result of its call, which ends with it. It may come before `CallDeferred`.

    Like `TicketProgressed` and the end of the call, it may follow the end of the task. The result is then stored.
    """

    says = "the work of {it.tool} in the background is done ({it.call})"

    since = 5
    step: str
    call: str
    output: Json = None
    by: str | None = None
    inbox: str | None = None


@mutable
class TicketFailed(Event, CallOccurrence):
    """The holder of a ticket reported that the work failed, and why. Otherwise it is like `TicketCompleted`."""

    says = "the work of {it.tool} in the background failed ({it.call})"

    since = 5
    step: str
    call: str
    error: str
    by: str | None = None
    inbox: str | None = None


@mutable
class TicketExpired(Event, CallOccurrence):
    """A ticket expired, so its call ends with a timeout."""

    says = "the ticket of {it.tool} expired ({it.call})"

    since = 5
    step: str
    call: str


@mutable
class SleepStarted(Event, CallOccurrence):
    """A tool, or a step function if `call` is empty, sleeps until a time, in microseconds since 1970, UTC.

    A tool's sleep ends its attempt. The tool starts again from its top under the same key. `place` counts the sleeps of
    the call or step, from 1.
    """

    says = "a sleep began in step {it.step}"

    since = 5
    step: str
    call: str
    until: int
    place: int = 1


@mutable
class SleepEnded(Event, CallOccurrence):
    """A sleep is over."""

    says = "a sleep in step {it.step} is over"

    since = 5
    step: str
    call: str
    place: int = 1


TicketEvent: TypeAlias = (
    SleepStarted
    | SleepEnded
    | TicketIssued
    | CallDeferred
    | TicketProgressed
    | TicketCompleted
    | TicketFailed
    | TicketExpired
)
"""The events of this module."""
