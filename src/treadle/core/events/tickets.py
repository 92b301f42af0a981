"""Events of calls that go on later: work outside of the task, which a ticket completes from anywhere, and sleeps."""

from __future__ import annotations

from treadle.core.data import mutable
from treadle.core.events.calls import CallReport
from treadle.core.events.occurrence import CallOccurrence, Event, StateChange
from treadle.core.labels import Label
from treadle.core.messages import Json


@mutable
class TicketIssued(Event, CallOccurrence):
    """A call that is about to start was given a ticket, by which it may end: `ticket` is its digest.

    Each start of the call has a ticket of its own, and each of them ends the call: what an earlier start handed out
    before its driver crashed stays good.
    """

    says = "{it.tool} was given a ticket ({it.call})"

    since = 5
    step: str
    call: str
    ticket: str


@mutable
class CallDeferred(Event, CallOccurrence):
    """A tool returned and its work goes on in the background: the call ends when its ticket is completed.

    Not completed until `expires`, in microseconds since 1970, UTC, it ends as one that took too long. `details` are
    what the tool says of the work, `changes` what it changed in the task's `extra_state`, `report` what its middleware
    did, and `label` as in `ToolEnded`.
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
    """The holder of a ticket reported how far the work is; it may follow the end of the task."""

    says = "the work of {it.tool} in the background progressed ({it.call})"

    since = 5
    step: str
    call: str
    value: Json
    by: str | None = None
    inbox: str | None = None


@mutable
class TicketCompleted(Event, CallOccurrence):
    """The holder of a ticket delivered the result of its call, which ends with it; it may come before `CallDeferred`.

    Like `TicketProgressed` and the end of the call, it may follow the end of the task: the result is kept.
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
    """The holder of a ticket reported that the work failed, and why; else as `TicketCompleted`."""

    says = "the work of {it.tool} in the background failed ({it.call})"

    since = 5
    step: str
    call: str
    error: str
    by: str | None = None
    inbox: str | None = None


@mutable
class TicketExpired(Event, CallOccurrence):
    """A ticket was not completed in time: its call ends as one that took too long."""

    says = "the ticket of {it.tool} expired ({it.call})"

    since = 5
    step: str
    call: str


@mutable
class SleepStarted(Event, CallOccurrence):
    """A tool, or a step function if `call` is empty, sleeps until a time, in microseconds since 1970, UTC.

    That of a tool ends its attempt: it starts again from its top under the same key. `place` counts the sleeps of the
    call, or of the step, from 1.
    """

    says = "a sleep began in step {it.step}"

    since = 5
    step: str
    call: str
    until: int
    place: int = 1


@mutable
class SleepEnded(Event, CallOccurrence):
    """The time of a sleep has come."""

    says = "a sleep in step {it.step} is over"

    since = 5
    step: str
    call: str
    place: int = 1
