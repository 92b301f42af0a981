"""The records of a task's steps: `StepState`, `CallState` for a tool call, and `ModelCall` for a request to a model.

Plain data. The rules that change these records are in `fold` and `schedule`, and those of requests in `model_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import takewhile
from typing import Final, Literal

from treadle.core.data import frozen, mutable
from treadle.core.events import (
    AnswerHeld,
    CallReport,
    Failure,
    InputReceived,
    ModelRequested,
    Outcome,
    RequestVerdict,
    StateChange,
    TypedAnswer,
)
from treadle.core.ids import base_call_id, repeated_call_id, sleep_id
from treadle.core.labels import Label
from treadle.core.messages import Content, File, Json, Message, ToolCall, copied
from treadle.core.model import NO_USAGE, Finish, Tries, Usage
from treadle.core.permits import Permit
from treadle.core.questions import Question
from treadle.core.team import Team
from treadle.core.tickets import Ticket
from treadle.core.tools import EffectClass

CallStatus = Literal[
    "proposed", "begun", "asking", "sleeping", "deferred", "lost", "unresolved", "parked", "ended"
]
"""The statuses of a tool call.

`asking`: its tool asked a person, and starts again with the answer. `sleeping`: its tool sleeps, and starts again when
the time is up. `deferred`: its tool returned, and its work continues in the background. `lost`: the call began and its
outcome is not known. `unresolved`: `reconcile=` could not tell the outcome either. `parked`: the call of an agent whose
task has stopped and not ended.
"""

UndoStatus = Literal["none", "begun", "lost", "not_happened", "done", "failed", "skipped"]
"""The statuses of a call's compensation.

The outcome of a `lost` compensation is not known. A `not_happened` one begins again. So does `none`, which never began,
or failed and was requested again.
"""

ModelCallStatus = Literal["proposed", "begun", "held", "answered", "failed"]
"""The statuses of a request to a model.

`proposed`: to be sent, for the first time or again. `failed`: the last attempt failed, and no timer sends it again.
`held`: the answer has arrived, and guardrails have not passed it yet.
"""

_FAILURES: Final = ("error", "timeout", "abandoned")
"""The kinds of failure of a call itself that leave its outcome unknown."""


@frozen
class Sleep:
    """The sleep of a call, or of a step function if `call` is empty. `due` in microseconds since 1970, UTC.

    `place` counts the sleeps of the call, or of the step, from 1.
    """

    step: str
    call: str
    due: int
    place: int

    @property
    def id(self) -> str:
        """The id of the sleep, unique in the task."""
        return sleep_id(self.call or self.step, self.place)


@mutable
class ModelCall:
    """A request to a model, and its answer. A plain step has one, and a step function any number.

    A step function's request has the `ModelRequested` event that made it. In a plain step, the request is the
    conversation, and the same record serves each request of the step.
    """

    id: str | None = None
    """id of a step function's request; None in a plain step"""

    request: ModelRequested | None = None
    status: ModelCallStatus = "proposed"
    attempt: int = 0
    asked_at: int = 0
    """when the attempts began in the present epoch"""

    tries: Tries | None = None
    """the failed attempts, until another one follows"""

    offered: tuple[str, ...] | None = None
    """names of the tools in the request, also of a repeated one; None for all of the agent's"""

    final: bool = False
    """whether the request asks for a last answer without tools"""

    permit: RequestVerdict | None = None
    """the policies' verdict on the next request, if they judge requests to models"""

    held: AnswerHeld | None = None
    """the answer, until guardrails pass it"""

    void: bool = False
    """whether guardrails have rewritten input of the request in flight, so that its answer is discarded"""

    message: Message | None = None
    finish: Finish = "stop"
    usage: Usage = NO_USAGE
    error: Failure | None = None
    follows: ModelCall | None = None
    """the answered request that this one continues"""

    side_length: int = 0
    """the number of messages that `side_messages` returns"""

    def side_messages(self) -> list[Message]:
        """Return the messages of the request that are not in the conversation."""
        messages, call = list[Message](), self
        while call.request is not None:
            messages[:0] = call.request.messages or ()
            if call.follows is None:
                break
            call = call.follows
            assert call.message is not None, "only an answered request is continued"
            messages.insert(0, call.message)
        return messages

    @property
    def in_conversation(self) -> bool:
        """Whether the answer becomes a message of the conversation."""
        return self.request is None or self.request.messages is None

    @property
    def sees_conversation(self) -> bool:
        """Whether the request shows the conversation to the model."""
        return self.request is None or self.request.messages is None or self.request.after_conversation


@frozen
class FailedChild:
    """A failed task of an agent's call that another task replaced."""

    task: str
    error: Failure | None


@mutable
class CallState:
    """One tool call on the task's present branch."""

    id: str
    step: str
    name: str
    arguments: dict[str, Json]
    problem: str | None = None
    status: CallStatus = "proposed"
    before: int = 0
    """the number of earlier calls of the task, those of the same answer included"""

    attempt: int = 0
    effect: EffectClass = "write"
    undo: bool = False
    started: int = 0
    began: int = 0
    """the event of its first start, or of the call that it repeats, so that each attempt reads the same state"""

    ended: int = 0
    outcome: Outcome | None = None
    output: Json = None
    guarded: bool = False
    """whether guardrails replaced `output`"""

    returned: Json = None
    """the tool's own output, if guardrails replaced it"""

    observation: tuple[Content, ...] | None = None
    label: Label | None = None
    """the label of its result; None for the default of tool results"""

    frame: str = ""
    """the nonce of the frame around its result"""

    cut: bool = False
    """whether the model saw only a part of its result"""

    whole: str | None = None
    """the whole text of a cut result, if it is not the output"""

    exposed: tuple[str, ...] = ()
    """`private` if its tool declares it; for an agent's call, the declared effects of tools whose results it saw"""

    display: str | None = None
    error: Failure | None = None
    sources: tuple[Json, ...] = ()
    artifacts: tuple[File, ...] = ()
    changes: StateChange | None = None
    rewritten: dict[str, Json] | None = None
    """the arguments that the last attempt ran with, if middleware changed them"""

    report: CallReport | None = None
    """further facts about its run"""

    host: str | None = None
    """the kind of process of its function, if not the driver's"""

    stopped: Failure | None = None
    """the failure of the last attempt"""

    stopped_before: Failure | None = None
    """the failure of an earlier attempt"""

    doubted: int = 0
    """the time at which its outcome became unknown, in microseconds since 1970, UTC"""

    cut_off: int = 0
    """the number of attempts that were stopped before their end, with unknown effects"""

    offered: tuple[str, ...] | None = None
    """names of the tools in the request that asked for the call, None for all of the agent's"""

    answers: bool = False
    """whether the call is the task's answer, by the output tool: it never runs and does not count for limits"""

    from_model: bool = False
    """for a step function's call, whether the model asked for it in the step's own answer"""

    permit: Permit | None = None
    """the decision on its start; None if there is none"""

    requests: int = 0
    """the number of requests for approval"""

    replaced: int = 0
    """the number of times that a policy replaced its arguments"""

    questions: tuple[Question, ...] = ()
    """the questions of its tool, the newest at each place of its code"""

    asked_questions: int = 0
    """the number of its questions, repeated ones included"""

    attempts_that_asked: int = 0
    """the number of attempts that ended in a question or a sleep"""

    is_halfway: bool = False
    """whether an attempt that asked or slept may have changed something before, until a later one fails"""

    slept: int = 0
    """the place of its tool's last finished sleep"""

    values: Mapping[str, Json] | None = None
    """the values that its tool keeps for later attempts, by name"""

    ticket: Ticket | None = None
    """the status of its ticket, if it has one"""

    child: str | None = None
    """id of the task that performs the call, if the tool is an agent"""

    since: int = 0
    """the driven time of this task when the child began, in microseconds"""

    began_at: int = 0
    """the driven time of this task when the newest attempt to run the child began"""

    ran: int = 0
    """the microseconds of the earlier attempts to run this child"""

    failed_children: tuple[FailedChild, ...] = ()
    """the failed tasks of the call before this child"""

    acted: bool = False
    """whether one of them may have had effects"""

    undo_status: UndoStatus = "none"
    undo_attempt: int = 0
    undo_error: str | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the call may have taken effect, because an attempt was cut off and none has returned since."""
        return self.cut_off > 0 and self.effect != "read"

    @property
    def took_effect(self) -> bool:
        """Whether its tool is known to have returned, even if the call failed afterwards."""
        return self.outcome == "ok" or (self.report is not None and self.report.took_effect)

    @property
    def doubts(self) -> int:
        """The number of attempts that may have taken effect, for the call that replaces this one."""
        return self.cut_off or int(self.acted or (self.child is not None and self.effect != "read"))

    @property
    def was_deferred(self) -> bool:
        """Whether its tool returned and left work in the background."""
        return self.ticket is not None and self.ticket.seq > 0

    @property
    def failed(self) -> bool:
        """Whether a new attempt of its step repeats the failed call, with the same idempotency key."""
        if self.outcome == "unknown":
            return self.effect == "idempotent" and self.error is not None and self.error.kind in _FAILURES
        return self.outcome in ("error", "timeout")

    @property
    def repeats_unasked(self) -> bool:
        """Whether it repeats a failed call and has not begun. A step function may not ask for it any more."""
        is_new = self.status == "proposed" and not self.attempt and self.permit is None
        return is_new and base_call_id(self.id) != self.id

    @property
    def tasks(self) -> list[str]:
        """The ids of the tasks of an agent's call, the failed ones first, then its child."""
        failed = [failed.task for failed in self.failed_children]
        return failed if self.child is None else [*failed, self.child]

    @property
    def as_tool_call(self) -> ToolCall:
        """The call for `undo=` and `reconcile=`, with the arguments and the output of its tool."""
        arguments = self.arguments if self.rewritten is None else self.rewritten
        output = self.returned if self.guarded else self.output
        if self.report is not None and self.report.took_effect:
            output = self.report.returned
        return ToolCall(self.id, self.name, copied(arguments), output=copied(output))


def repeat_call(step: StepState, call: CallState) -> CallState:
    """Replace an ended call by a new one that repeats it, and return the new one."""
    again = CallState(repeated_call_id(call.id), call.step, call.name, call.arguments, call.problem)
    again.from_model, again.offered, again.frame = call.from_model, call.offered, call.frame
    again.effect, again.cut_off, again.began = call.effect, call.doubts, call.began
    # Questions that expired without an answer are asked again, and all after them.
    again.questions = tuple(takewhile(lambda question: question.is_answered, call.questions))
    again.asked_questions, again.values = call.asked_questions, call.values
    step.calls[step.calls.index(call)] = step.open[again.id] = again
    return again


@mutable
class Checkpoint:
    """The position of a task at the end of a step, for an undo."""

    messages: int
    turn: int
    tool_calls: int
    unread: tuple[InputReceived, ...]
    reasons: int
    rejected: int = 0
    team: Team | None = None


@mutable
class StepState:
    """One step on the task's present branch."""

    id: str
    index: int
    attempt: int = 1
    agent: str = ""
    """the agent of the step after a handoff; before, the agent that the task was created for"""

    status: Literal["running", "completed", "failed", "skipped"] = "running"
    model_call: ModelCall = field(default_factory=ModelCall)
    """the request of a plain step; step functions keep theirs in `StepNode.model_calls`"""

    paused: bool = False
    """whether the failure policy asked for a pause after a failure in the step"""

    text: str = ""
    text_calls: tuple[str, ...] = ()
    """the tools whose calls this text resembles"""

    typed: TypedAnswer | None = None
    calls: list[CallState] = field(default_factory=list[CallState])
    open: dict[str, CallState] = field(default_factory=dict[str, CallState])
    usage: Usage = NO_USAGE
    cost: int = 0
    unpriced: tuple[str, ...] = ()
    """as in `TaskState`"""

    input: tuple[Content, ...] = ()
    read: tuple[InputReceived, ...] = ()
    """the received messages of `input`"""

    shown: tuple[str, ...] = ()
    """untrusted origins of its function's messages beside the conversation, and of repeated failed calls"""

    exposed: tuple[str, ...] = ()
    """the effects that the tools of these calls declare, as in `CallState`"""

    routed: bool = False
    """whether the agent's router has chosen the next step"""

    first_message: int = 0
    answer_at: int = 0
    """index of the model's newest answer in the conversation"""

    answered_calls: int = 0
    """the number of `calls` from answers before the newest one, or before the coming one"""

    last: bool = False
    output: Json = None
    sources: tuple[Json, ...] = ()
    artifacts: tuple[File, ...] = ()
    error: Failure | None = None
    started: int = 0
    ended: int = 0
    started_seq: int = 0
    ended_seq: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def unasked(self) -> bool:
        """Whether the step will ask the model (again), so that messages that arrive now belong to it."""
        status = self.model_call.status
        return (status == "proposed" or status == "failed") and len(self.calls) == self.answered_calls
