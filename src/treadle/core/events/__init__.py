"""The events of a task: a closed list of facts, in the past tense, journalled and never changed.

`seq` is an event's position in its task's journal (from 1) and `time` is in microseconds since 1970, UTC; the stored
record has no separate field for them. The tag of an event is the snake_case of its class name. `Delta`s are not events:
they show watchers the text that is being written, and are never journalled.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias, get_args

from treadle.core.data import mutable
from treadle.core.events.approvals import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGiven,
    ApprovalRequested,
    ApprovalScope,
    ApprovalVoided,
    CallJudged,
    JudgedVerdict,
)
from treadle.core.events.calls import (
    ArgumentsRewritten,
    CallEdited,
    CallReport,
    Outcome,
    OutcomeSettled,
    OutcomeUnresolved,
    ResultReplaced,
    ToolEnded,
    ToolStarted,
    ToolStopped,
)
from treadle.core.events.control import (
    CancelRequested,
    CommandRejected,
    DriverSurvived,
    InterruptRequested,
    PauseRequested,
    Resumed,
    Rewound,
    StepRequested,
    UndoneCall,
    UndoRequested,
    UndoVerdict,
)
from treadle.core.events.guardrails import AnswerHeld, GuardedContent, GuardrailJudged, GuardrailWord
from treadle.core.events.live import (
    Channel,
    ChildEvent,
    Delta,
    Ephemeral,
    ModelRestarted,
    RawChunk,
    TaskStood,
    ToolProgress,
)
from treadle.core.events.occurrence import (
    JOURNAL_FORMAT,
    CallOccurrence,
    Event,
    EventOrigin,
    Failure,
    IllegalEvent,
    Occurrence,
    StateChange,
    StopReason,
    explain_names,
)
from treadle.core.events.questions import (
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    QuestionOccurrence,
)
from treadle.core.events.requests import (
    ModelFailed,
    ModelReturned,
    ModelStarted,
    ModelStopped,
    RequestJudged,
    RequestVerdict,
    TimerFired,
    TypedAnswer,
)
from treadle.core.events.steps import (
    AnswerFinalized,
    CallRequested,
    Join,
    ModelRequested,
    NextAgent,
    NextStep,
    RouteChosen,
    StateOverwritten,
    StepCompleted,
    StepFailed,
    StepSkipped,
    StepsPlanned,
    StepStarted,
    ValueKept,
    WorkerFailed,
)
from treadle.core.events.tasks import (
    AgentChanged,
    AgentOverride,
    EndState,
    InputEdited,
    InputReceived,
    InstructionsSet,
    LimitReached,
    MessagesImported,
    OptionsChanged,
    SummaryRequested,
    TaskCreated,
    TaskEnded,
    TaskForked,
    TaskReopened,
    ThreadAwaited,
    ThreadEntered,
    VersionChanged,
)
from treadle.core.events.tickets import (
    CallDeferred,
    SleepEnded,
    SleepStarted,
    TicketCompleted,
    TicketExpired,
    TicketFailed,
    TicketIssued,
    TicketProgressed,
)
from treadle.core.messages import Json

__all__ = [
    "END_STATES",
    "EVENTS",
    "JOURNAL_FORMAT",
    "AgentChanged",
    "AgentOverride",
    "AnswerFinalized",
    "AnswerHeld",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalGiven",
    "ApprovalRequested",
    "ApprovalScope",
    "ApprovalVoided",
    "ArgumentsRewritten",
    "CallDeferred",
    "CallEdited",
    "CallJudged",
    "CallOccurrence",
    "CallReport",
    "CallRequested",
    "CancelRequested",
    "Channel",
    "ChildEvent",
    "CommandRejected",
    "Delta",
    "DriverSurvived",
    "EndState",
    "Ephemeral",
    "Event",
    "EventOrigin",
    "Failure",
    "GuardedContent",
    "GuardrailJudged",
    "GuardrailWord",
    "IllegalEvent",
    "InputEdited",
    "InputReceived",
    "InstructionsSet",
    "InterruptRequested",
    "Join",
    "JudgedVerdict",
    "LimitReached",
    "MessagesImported",
    "ModelFailed",
    "ModelRequested",
    "ModelRestarted",
    "ModelReturned",
    "ModelStarted",
    "ModelStopped",
    "NextAgent",
    "NextStep",
    "Occurrence",
    "OptionsChanged",
    "Outcome",
    "OutcomeSettled",
    "OutcomeUnresolved",
    "PauseRequested",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionExpired",
    "QuestionOccurrence",
    "RawChunk",
    "RequestJudged",
    "RequestVerdict",
    "ResultReplaced",
    "Resumed",
    "Rewound",
    "RouteChosen",
    "SleepEnded",
    "SleepStarted",
    "StateChange",
    "StateOverwritten",
    "StepCompleted",
    "StepFailed",
    "StepRequested",
    "StepSkipped",
    "StepStarted",
    "StepsPlanned",
    "StopReason",
    "SummaryRequested",
    "TaskCreated",
    "TaskEnded",
    "TaskEvent",
    "TaskForked",
    "TaskReopened",
    "TaskStood",
    "ThreadAwaited",
    "ThreadEntered",
    "TicketCompleted",
    "TicketExpired",
    "TicketFailed",
    "TicketIssued",
    "TicketProgressed",
    "TimerFired",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "ToolStopped",
    "TypedAnswer",
    "UndoRequested",
    "UndoVerdict",
    "UndoneCall",
    "UnknownEvent",
    "ValueKept",
    "VersionChanged",
    "WorkerFailed",
    "explain_names",
    "known_part",
]


@mutable
class UnknownEvent(Event):
    """An event that this version does not know, kept as inert data: of an unknown kind, or with unknown content.

    This version does not drive a task that has one, unless the event is marked `inert`: ignorable by any driver.
    `known` is the known part of an event of a known kind with further fields or other values. Views use it, and `data`
    has everything.
    """

    says = "an event of the unknown kind {it.tag}"

    tag: str
    data: Json
    inert: bool = False
    known: Event | None = field(default=None, repr=False, compare=False, kw_only=True)

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: newer than this version's, unless the event is inert."""
        return 1 if self.inert else JOURNAL_FORMAT + 1


def known_part(event: Event) -> Event:
    """Return the known part of an event: the event itself, unless it has unknown fields or values."""
    return event if type(event) is not UnknownEvent or event.known is None else event.known


TaskEvent: TypeAlias = (
    TaskCreated
    | TaskForked
    | ThreadAwaited
    | ThreadEntered
    | SummaryRequested
    | MessagesImported
    | InstructionsSet
    | VersionChanged
    | AgentChanged
    | OptionsChanged
    | InputReceived
    | InputEdited
    | StepsPlanned
    | StepStarted
    | RouteChosen
    | ModelRequested
    | CallRequested
    | ValueKept
    | RequestJudged
    | ModelStarted
    | AnswerHeld
    | GuardrailJudged
    | ModelReturned
    | ModelFailed
    | ModelStopped
    | TimerFired
    | CallEdited
    | CallJudged
    | ApprovalRequested
    | ApprovalGiven
    | ApprovalDenied
    | ApprovalExpired
    | ApprovalVoided
    | QuestionAsked
    | QuestionAnswered
    | QuestionExpired
    | ToolStarted
    | ArgumentsRewritten
    | ToolStopped
    | OutcomeSettled
    | OutcomeUnresolved
    | SleepStarted
    | SleepEnded
    | TicketIssued
    | CallDeferred
    | TicketProgressed
    | TicketCompleted
    | TicketFailed
    | TicketExpired
    | ToolEnded
    | StateOverwritten
    | StepCompleted
    | StepFailed
    | StepSkipped
    | WorkerFailed
    | AnswerFinalized
    | ResultReplaced
    | LimitReached
    | PauseRequested
    | InterruptRequested
    | Resumed
    | StepRequested
    | CancelRequested
    | CommandRejected
    | DriverSurvived
    | UndoRequested
    | Rewound
    | TaskEnded
    | TaskReopened
    | UnknownEvent
)
"""The closed union of journalled events."""
EVENTS: dict[str, type[Event]] = {cls.kind: cls for cls in get_args(TaskEvent) if cls is not UnknownEvent}
"""Every journalled event by its tag."""
END_STATES: tuple[str, ...] = get_args(EndState)
