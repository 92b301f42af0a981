"""Events of calls of tools and of agents."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, TypeAlias

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

__all__ = [
    "ArgumentsRewritten",
    "CallEdited",
    "CallReport",
    "OutcomeSettled",
    "OutcomeUnresolved",
    "ResultReplaced",
    "ToolEnded",
    "ToolStarted",
    "ToolStopped",
]

Outcome = Literal[
    "ok", "error", "timeout", "invalid", "refused", "denied", "cancelled", "abandoned", "unknown"
]


def _start_format(event: Any) -> int:
    """Return the journal format of a start. Older versions cannot read a label, a host or effects."""
    return 1 if event.label is None and event.host is None and not event.exposed else 5


_format_of_start: Any = property(_start_format)


@mutable
class ToolStarted(Event, CallOccurrence):
    """A call began. The event is durable before a call that may write starts. With `undoes` it undoes that call.

    The call of an agent is the task `child`. Both begin again each time the parent is resumed. `label` is the label of
    the tool's results, if it is not the default of tools. `host` is the kind of process of the tool's function, if it
    is not the driver's process. `exposed` is `private` if the tool declares its results to be private.
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


def _stop_format(event: Any) -> int:
    """Return the journal format of a stop. Older drivers would resume the failed task."""
    return 1 if event.failed is None else 5


_format_of_stop: Any = property(_stop_format)


@mutable
class ArgumentsRewritten(Event, CallOccurrence):
    """Middleware, by the names `by`, changed the `arguments` with which the tool of a call runs.

    The event is durable before a tool that may write runs. The next start of the call begins with the requested
    arguments again.
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
    """A begun call was stopped. Unless its `reason` is `error`, its effect is not known.

    Reads and idempotent calls start again when the task goes on. The outcome of any other call is `unknown`. A person,
    `reconcile=` or the options settle it. A call that its tool had not begun is settled at once. An agent's call stops
    and goes on with its task. `parked` means that this task stopped by itself, and `error` is the reason. `spent` is
    its spending so far, by agent. `unseen` are microseconds of driven time that only that task's journal has, because a
    driver was killed. With `failed`, that task has ended with `error`, and the call begins again with a new one.
    `harmless` is as in `ToolEnded`, for the failed task.
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

    @property
    def unknown(self) -> bool:
        """Whether the outcome of the call is not known and must be settled."""
        return getattr(self, "in_doubt", False)


@frozen
class CallReport:
    """Further facts about the run of a call.

    `answered_by` is the middleware that returned the result without running the tool. `notes` are the notes of
    middleware, by name. `secrets` are the names of the secrets that the tool received. `ran` is false if the tool has a
    host and its function did not begin there. `took_effect` is true for a call that failed after its tool had returned,
    for instance in middleware. `returned` is the tool's output for its `undo=`, if it has one.
    """

    answered_by: str | None = None
    notes: dict[str, Json] = field(default_factory=dict[str, Json])
    secrets: tuple[str, ...] = ()
    ran: bool = True
    took_effect: bool = False
    returned: Json = None


def _end_format(event: Any) -> int:
    """Return the journal format of a call's end. Older versions cannot read a report, a label or a cut."""
    if event.report is not None or event.label is not None or event.cut or event.exposed:
        return 5
    return 1 if event.changes is None else 3


_format_of_end: Any = property(_end_format)


@mutable
class ToolEnded(Event, CallOccurrence):
    """A call ended, or was not run. Without `observation`, the model sees the output as text.

    `sources` are the sources of the result, and `artifacts` the files that the call made. Both are stored with the
    task. `changes` are the call's changes of the task's `extra_state`, and `report` is the part of middleware. `label`
    is the origin and trust of the result, if they differ from those at the start. `cut` is true if the observation is
    only a part. `whole` is then its whole text, if that is not the output.

    For an agent's call, `spent` is the spending of it and all tasks below it, by agent. `harmless` is true if none of
    its calls changed anything. `unseen` is as in `ToolStopped`. `exposed` are the declared effects of the tools whose
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
    """`reconcile=` could not tell whether a lost call took effect, so a person or the options decide."""

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
    """A fork replaced the result of this call."""

    says = "the result of {it.tool} was replaced ({it.call})"

    call: str
    output: Json
    previous: Json = None


CallEvent: TypeAlias = (
    CallEdited
    | ToolStarted
    | ArgumentsRewritten
    | ToolStopped
    | OutcomeSettled
    | OutcomeUnresolved
    | ToolEnded
    | ResultReplaced
)
"""The events of this module."""
