"""Events of calls of tools and of agents."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from treadle.core.children import SpentBy
from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import (
    CallOccurrence,
    Event,
    Failure,
    StateChange,
    StopReason,
    format_of_commands,
)
from treadle.core.labels import Label
from treadle.core.messages import Content, File, Json
from treadle.core.tools import EffectClass

Outcome = Literal[
    "ok", "error", "timeout", "invalid", "refused", "denied", "cancelled", "abandoned", "unknown"
]


def _reads_start(event: Any) -> int:
    """Return the journal format of a start: older versions cannot read one with a label, a host or effects."""
    return 1 if event.label is None and event.host is None and not event.exposed else 5


_format_of_start: Any = property(_reads_start)


@mutable
class ToolStarted(Event, CallOccurrence):
    """A call began: durable before a call that may write starts. With `undoes` it takes back that call.

    The call of an agent is the task `child`; it begins again, and that task goes on, each time its parent does.
    `label` is that of all that the tool says, where it declares another one than tools have by default. `host` says
    where the tool's function runs, if that is not the driver's process. `exposed` is `private` if the tool declares its
    results to be that.
    """

    says = "{it.tool} began ({it.call}), attempt {it.attempt}"

    step: str
    call: str
    effect: EffectClass = "read"
    attempt: int = 1
    undo: bool = False
    undoes: str | None = None
    child: str | None = None
    label: Label | None = None
    host: str | None = None
    exposed: tuple[str, ...] = ()
    format = _format_of_start


def _needed_to_know(event: Any) -> int:
    """Return the journal format of a stop: older drivers would go on with the task that failed."""
    return 1 if event.failed is None else 5


_format_of_stop: Any = property(_needed_to_know)


@mutable
class ArgumentsRewritten(Event, CallOccurrence):
    """The tool of a begun call runs with other `arguments` than were asked for: middleware `by` these names wrote them.

    It is durable before a tool that may write runs. The next start of the call begins with what was asked for again.
    """

    says = "the arguments of {it.tool} were rewritten ({it.call})"

    since = 5
    step: str
    call: str
    attempt: int
    arguments: dict[str, Json]
    by: tuple[str, ...] = ()


@mutable
class ToolStopped(Event, CallOccurrence):
    """A begun call was given up; unless its `reason` is `error`, it is not known what it did.

    Reads and idempotent calls start again when the task goes on. Of any other call the outcome is unknown.

    That of an agent rests with its task: it goes on with it. `parked` says that this task stopped of its own, and
    `error` what it waits for; `spent` is what it spent so far, by agent. `unseen` are microseconds for which both were
    driven and of which, since a driver was killed, only that task's journal tells. With `failed` that task, which it
    names, has ended for `error`, and the call begins again with a new one; `harmless` says as in `ToolEnded` what the
    one that failed changed.
    """

    says = "{it.tool} was stopped ({it.call}): {it.reason}"

    step: str
    call: str
    reason: StopReason
    error: Failure | None = None
    spent: tuple[SpentBy, ...] = ()
    unseen: int = 0
    failed: str | None = None
    harmless: bool = False
    format = _format_of_stop


@frozen
class CallReport:
    """What else there is to tell of how a call ran.

    `answered_by` is the middleware whose answer the result is, without the tool having run; `notes` are what middleware
    noted, by name; `secrets` are the names of the secrets that the tool was given. `ran` is false where the tool has a
    host, and its function began in no process of that. `took_effect` is true of a call that failed after its tool had
    returned, as when middleware raised then; `returned` is the tool's output for its `undo=`, if it has one.
    """

    answered_by: str | None = None
    notes: dict[str, Json] = field(default_factory=dict[str, Json])
    secrets: tuple[str, ...] = ()
    ran: bool = True
    took_effect: bool = False
    returned: Json = None


def _reads_end(event: Any) -> int:
    """Return the journal format of a call's end: older versions cannot read one with a report, a label or a cut."""
    if event.report is not None or event.label is not None or event.cut or event.exposed:
        return 5
    return 1 if event.changes is None else 3


_format_of_end: Any = property(_reads_end)


@mutable
class ToolEnded(Event, CallOccurrence):
    """The one end of a call, also of one that never ran. `observation` None means: the output as text.

    `sources` say what the result rests on, `artifacts` what the call made: both are kept with the task. Of an agent's
    call, `spent` is what it and all below it spent, by agent, and `harmless` that none of its calls changed anything;
    `unseen` as in `ToolStopped`. `changes` are what the call changed in the task's `extra_state`, and
    `report` tells of the part that middleware had. `label` says where the result comes from and whether it is trusted,
    where that is not what the call began with. `cut` says that the observation is a part, and `whole` is its whole
    text, where that is not the output. Of an agent's call, `exposed` are the declared effects of the tools whose
    results that agent has seen.
    """

    says = "{it.tool} ended ({it.call}): {it.outcome}"

    step: str
    call: str
    outcome: Outcome = "ok"
    output: Json = None
    observation: tuple[Content, ...] | None = None
    display: str | None = None
    error: Failure | None = None
    sources: tuple[Json, ...] = ()
    artifacts: tuple[File, ...] = ()
    spent: tuple[SpentBy, ...] = ()
    harmless: bool = False
    unseen: int = 0
    changes: StateChange | None = None
    report: CallReport | None = None
    label: Label | None = None
    cut: bool = False
    whole: str | None = None
    exposed: tuple[str, ...] = ()
    format = _format_of_end


@mutable
class OutcomeSettled(Event, CallOccurrence):
    """A person or `reconcile=` found out whether a lost call took effect."""

    says = "the outcome of {it.tool} was settled ({it.call}): {it.verdict}"

    step: str
    call: str
    verdict: Literal["happened", "not_happened"]
    output: Json = None
    by: str | None = None
    inbox: str | None = None


@mutable
class OutcomeUnresolved(Event, CallOccurrence):
    """`reconcile=` could not tell whether a lost call took effect: a person or the options decide."""

    says = "the outcome of {it.tool} is not known ({it.call})"

    step: str
    call: str
    error: Failure | None = None


@mutable
class CallEdited(Event, CallOccurrence):
    """A caller changed the arguments of a call that has not begun."""

    says = "the arguments of {it.tool} were edited ({it.call})"

    step: str
    call: str
    arguments: dict[str, Json]
    previous: Json
    by: str | None = None
    inbox: str | None = None
    format = format_of_commands


@mutable
class ResultReplaced(Event, CallOccurrence):
    """In a fork: what if this call had returned something else."""

    says = "the result of {it.tool} was replaced ({it.call})"

    call: str
    output: Json
    previous: Json = None
