"""The events of a task: a closed list of facts, which are journalled and never change.

`seq` is an event's position in its task's journal, from 1. `time` is in microseconds since 1970, UTC. The stored record
has no separate field for them. The tag of an event is the snake_case of its class name. `Delta`s are not events: they
show watchers the text that a model is writing, and are never journalled.

Each module names its public classes in `__all__` and its journalled events in a union. The public names, `TaskEvent`
and `EVENTS` are made from these.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias, get_args

from treadle.core.data import mutable
from treadle.core.events import (
    approvals,
    calls,
    control,
    guardrails,
    live,
    occurrence,
    questions,
    requests,
    steps,
    tasks,
    tickets,
)
from treadle.core.events.approvals import *
from treadle.core.events.approvals import ApprovalScope as ApprovalScope
from treadle.core.events.approvals import JudgedVerdict as JudgedVerdict
from treadle.core.events.calls import *
from treadle.core.events.calls import Outcome as Outcome
from treadle.core.events.control import *
from treadle.core.events.control import UndoVerdict as UndoVerdict
from treadle.core.events.guardrails import *
from treadle.core.events.guardrails import GuardedContent as GuardedContent
from treadle.core.events.guardrails import GuardrailWord as GuardrailWord
from treadle.core.events.live import *
from treadle.core.events.live import Channel as Channel
from treadle.core.events.occurrence import *
from treadle.core.events.occurrence import JOURNAL_FORMAT as JOURNAL_FORMAT
from treadle.core.events.occurrence import CommandEvent as CommandEvent
from treadle.core.events.occurrence import Event
from treadle.core.events.occurrence import IllegalEvent as IllegalEvent
from treadle.core.events.occurrence import Occurrence as Occurrence
from treadle.core.events.occurrence import StopReason as StopReason
from treadle.core.events.occurrence import explain_names as explain_names
from treadle.core.events.questions import *
from treadle.core.events.questions import QuestionOccurrence as QuestionOccurrence
from treadle.core.events.requests import *
from treadle.core.events.requests import RequestVerdict as RequestVerdict
from treadle.core.events.steps import *
from treadle.core.events.steps import Join as Join
from treadle.core.events.tasks import *
from treadle.core.events.tasks import EndState as EndState
from treadle.core.events.tickets import *
from treadle.core.messages import Json


@mutable
class UnknownEvent(Event):
    """An event of an unknown kind or with unknown content, kept as inert data.

    This version does not drive a task that has one, unless the event is marked `inert`: any driver may ignore it. For
    an event of a known kind, `known` is the known part. Views use it, and `data` has everything.
    """

    says = "an event of the unknown kind {it.tag}"

    tag: str
    data: Json
    inert: bool = False
    known: Event | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. It is newer than this version's, unless the event is inert."""
        return 1 if self.inert else JOURNAL_FORMAT + 1


def known_part(event: Event) -> Event:
    """Return the known part of an event: itself, unless it has unknown fields or values."""
    return event if type(event) is not UnknownEvent or event.known is None else event.known


TaskEvent: TypeAlias = (
    tasks.LifecycleEvent
    | steps.StepEvent
    | requests.RequestEvent
    | guardrails.GuardrailEvent
    | calls.CallEvent
    | approvals.ApprovalEvent
    | questions.QuestionEvent
    | tickets.TicketEvent
    | control.ControlEvent
    | UnknownEvent
)
"""The closed union of journalled events."""
EVENTS: dict[str, type[Event]] = {cls.kind: cls for cls in get_args(TaskEvent) if cls is not UnknownEvent}
"""Every journalled event by its tag."""
COMMANDS: dict[str, type[CommandEvent]] = {
    cls.command: cls for cls in EVENTS.values() if issubclass(cls, CommandEvent)
}
"""The events that describe their commands, by the kinds of the inbox items."""
END_STATES: tuple[str, ...] = get_args(EndState)

if not TYPE_CHECKING:  # type checkers see the names that the star imports bring
    __all__ = ["EVENTS", "TaskEvent", "UnknownEvent"]
    __all__ += approvals.__all__
    __all__ += calls.__all__
    __all__ += control.__all__
    __all__ += guardrails.__all__
    __all__ += live.__all__
    __all__ += occurrence.__all__
    __all__ += questions.__all__
    __all__ += requests.__all__
    __all__ += steps.__all__
    __all__ += tasks.__all__
    __all__ += tickets.__all__
