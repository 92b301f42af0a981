"""What can happen to a task: one closed list of facts, past tense, journalled and never changed.

`seq` is an event's position in its task's journal (from 1) and `time` microseconds since 1970, UTC; neither is a
field of its own in the stored record. The tag of an event is the snake_case of its class name. `Delta`s are not
events: they tell watchers what is being written just now and are never journalled.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, field, fields
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from treadle.core.children import SpentBy
from treadle.core.data import frozen, mutable
from treadle.core.display import LINE, Displayed, View, one_line
from treadle.core.messages import Content, File, Json, Message, Role
from treadle.core.model import NO_USAGE, Finish, SideCall, Usage
from treadle.core.tools import EffectClass
from treadle.core.unknown_names import explains_names
from treadle.errors import PASSING

Outcome = Literal[
    "ok", "error", "timeout", "invalid", "refused", "denied", "cancelled", "abandoned", "unknown"
]
EndState = Literal["completed", "degraded", "failed", "cancelled"]
RequestVerdict = Literal["allow", "ask", "deny"]
StopReason = Literal["crash", "interrupted", "timeout", "abandoned", "error", "parked"]


JOURNAL_FORMAT: Final = 4
"""The newest journal format that this version knows: with it, a task can be driven on over every event of a journal.

A release that adds a kind of event raises it, and the class says so in `since`: a driver that does not know the kind
leaves the task alone, since what it does not know may forbid what it would do next.
"""


@frozen
class Failure:
    """An error as it is journalled: its kind, its message and where it came from.

    `model` is who failed, as `provider:model`, if a model did.
    """

    source: Literal["model", "tool", "agent", "subagent", "limit", "worker", "store"]
    kind: str
    message: str
    call: str | None = None
    status: int | None = None
    retry_after: float | None = None
    model: str = ""

    @property
    def provider(self) -> str:
        """The provider of the model that failed; an empty text if none did."""
        return self.model.partition(":")[0]

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later: a provider was busy, broken, or not reached."""
        return self.source == "model" and self.kind in PASSING


@frozen
class StateChange:
    """What a call changed in the task's `extra_state`: keys with their new values, and keys that are gone."""

    values: dict[str, Json] = field(default_factory=dict[str, Json])
    removed: tuple[str, ...] = ()


@frozen
class EventOrigin:
    """Where an event comes from: the task, and the agents on the path to it, from that of the root task on."""

    task_id: str
    agent_path: tuple[str, ...]


class Occurrence(Displayed):
    """What events and deltas tell when they are handed out, beside their fields: none of it is stored with them.

    Their unknown attributes are explained once `explain_names` was called.
    """

    __slots__ = ("origin", "tool_name")

    kind: ClassVar[str]
    says: ClassVar[str] = ""
    """the description, with `{it.field}` where a field stands"""

    origin: EventOrigin
    """set when the event is handed out"""

    tool_name: str
    """set, of events that tell of a call, when they are applied to the task's state or read from its journal"""

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The agents on the path to the task, the root's first and its own last; empty if it was not handed out."""
        return _path_of(self)

    @property
    def description(self) -> str:
        """What happened, as one plain line: facts alone, no messages, arguments, results or texts of errors."""
        said = self.says.format(it=self) if self.says else self.kind.replace("_", " ")
        line = one_line(said, 200)
        return line if line.isprintable() else "".join([sign if sign.isprintable() else "�" for sign in line])

    def __str__(self) -> str:
        return self.description

    def _shown(self) -> list[tuple[str, Any]]:
        """Return the fields that do not have their default, by name."""
        shown: list[tuple[str, Any]] = []
        for item in fields(self):  # pyright: ignore[reportArgumentType]  all that derive from it are data classes
            value: Any = getattr(self, item.name)
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            if item.repr and value != default:
                shown.append((item.name, value))
        return shown

    def _view(self) -> View:
        shown = [(name, value) for name, value in self._shown() if name not in ("seq", "time", "after")]
        short = [each for each in shown if len(repr(each[1])) <= LINE]
        return View(
            title=type(self).__name__,
            name=str(getattr(self, "seq", "")),
            facts=tuple(short),
            text=self.description,
            values=tuple([each for each in shown if each not in short]),
        )

    def __repr__(self) -> str:
        shown = [f"{name}={one_line(repr(value))}" for name, value in self._shown()]
        return f"{type(self).__name__}({', '.join(shown)})"


def explain_names() -> None:
    """Let events explain unknown attributes from now on: call it before a program gets events, or their classes.

    Python then reads every attribute of an event more slowly, and driving a step reads more than a hundred: a process
    in which no program looks at events is spared that.
    """
    if "__getattr__" not in vars(Occurrence):
        explains_names("event")(Occurrence)


def _path_of(occurrence: Occurrence) -> tuple[str, ...]:
    origin: EventOrigin | None = getattr(occurrence, "origin", None)
    return origin.agent_path if origin is not None else ()


class _OfTask(Occurrence):
    __slots__ = ()

    @property
    def task_id(self) -> str:
        """The task it happened to; empty if the event was not handed out."""
        origin: EventOrigin | None = getattr(self, "origin", None)
        return origin.task_id if origin is not None else ""


class CallOccurrence(_OfTask):
    """What tells of a call: `tool` is the name of the called tool."""

    __slots__ = ()

    call: str

    @property
    def tool(self) -> str:
        """The name of the called tool; empty if the event was neither handed out nor applied."""
        return getattr(self, "tool_name", "")


@mutable
class Event(_OfTask):
    """The envelope of every event.

    A kind added later says in `since` which journal format has it, or that it is `ignorable`: that a driver which does
    not know it decides right without it. Its documents are marked so, for such drivers.
    """

    kind: ClassVar[str] = ""
    since: ClassVar[int] = 1
    ignorable: ClassVar[bool] = False
    format: ClassVar[int] = 1
    """the journal format that a driver must know to drive a task on over this event"""

    seq: int = field(default=0, kw_only=True, compare=False)
    time: int = field(default=0, kw_only=True, compare=False)

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
        if "format" not in cls.__dict__:
            cls.format = 1 if cls.ignorable else cls.since


class IllegalEvent(ValueError):
    """An event that cannot follow what happened before it."""


def _changes_state(event: Any) -> int:
    """Return the journal format of an event that may change the state: older drivers would go on without the change."""
    return 1 if event.changes is None else 3


_format_of_changes: Any = property(_changes_state)


# ------------------------------------------------------------------------------------------ the task


@mutable
class TaskCreated(Event):
    """A task exists. `base` is the version of the thread whose messages it starts from.

    `incarnation` tells apart the tasks that had one id, one after the other: it is part of the idempotency keys. It is
    empty where the id was made by chance, and in journals that were written before there was one.
    """

    says = "a task was created for agent {it.agent}"

    agent: str
    input: tuple[Content, ...]
    thread: str
    base: int = 0
    fingerprint: str = ""
    options: dict[str, Json] | None = None
    extra_state: Json = None
    parent: str | None = None
    parent_call: str | None = None
    depth: int = 0
    incarnation: str = ""

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: without the incarnation it would change the keys of calls."""
        return 2 if self.incarnation else 1


@mutable
class TaskForked(Event):
    """All events before this one are those of `parent`; from here on this task goes its own way."""

    says = "forked from task {it.parent}"

    parent: str
    agent: str
    thread: str
    fingerprint: str = ""
    options: dict[str, Json] | None = None


@mutable
class ThreadAwaited(Event):
    """The task waits for its thread, which other tasks have: `holders`. Waiting is not counted as driven time."""

    says = "waits for its thread"

    holders: tuple[str, ...] = ()


@mutable
class ThreadEntered(Event):
    """The task has its thread. `base` is the version of the thread it starts from; None: as before."""

    says = "entered its thread"

    base: int | None = None


@mutable
class SummaryRequested(Event):
    """The task's answer is to replace, for models, what its thread held at `version`, up to version `covers`."""

    says = "is to summarise its thread up to version {it.covers}"

    covers: int
    version: int


@mutable
class MessagesImported(Event):
    """Imported messages: all that the task adds to its thread."""

    says = "messages were imported into the thread"

    messages: tuple[Message, ...]


@mutable
class InstructionsSet(Event):
    """The agent's instructions, as they were worked out for this task, and what that changed in its `extra_state`."""

    says = "the instructions were worked out"

    text: str
    changes: StateChange | None = None
    format = _format_of_changes


@mutable
class VersionChanged(Event):
    """The task goes on with another version of its agent."""

    says = "goes on with another version of the agent"

    fingerprint: str
    previous: str


@mutable
class OptionsChanged(Event):
    """The task goes on with other options, such as raised limits."""

    says = "goes on with other options"

    options: dict[str, Json] | None
    by: str | None = None


@mutable
class InputReceived(Event):
    """Input arrived; the next step that starts reads it."""

    says = "input arrived, as {it.role}"

    parts: tuple[Content, ...]
    role: Role = "user"
    observation: bool = False
    by: str | None = None
    inbox: str | None = None


# ------------------------------------------------------------------------------------------- a step


@mutable
class StepStarted(Event):
    """A step began; the only place where unread input enters the conversation."""

    says = "step {it.index} began, attempt {it.attempt}"

    step: str
    index: int
    attempt: int = 1


Join: TypeAlias = Literal["all", "any", "optional"] | int
"""Which of the steps that a step waits for have to end well: all, one, none (but all have to end), or so many."""


@frozen
class NextStep:
    """A step that is to follow. `after` names steps it waits for, of the same plan or that came before.

    `input` is JSON data for it. `join` says how many of those it waits for have to end well: `all`, `any` (one, and the
    others are stopped), `Quorum(n)`, or `optional`: it begins once all have ended, however they did.
    """

    name: str
    input: Json = None
    after: tuple[str, ...] = ()
    join: Join = "all"


@mutable
class StepsPlanned(Event):
    """The first steps of a task whose steps are functions."""

    says = "the first steps were planned"

    steps: tuple[NextStep, ...]


@mutable
class ModelRequested(Event):
    """A step that is a function wants the model asked. Without `messages`: with the conversation as the step sees it.

    With `after_conversation`, `messages` follow it, but neither they nor the answer come into it. `key` is how the
    request is known when the function is entered again, `digest` what was asked; without `tools` the agent's offer
    chooses. With `follows`, what that request of the same step told, and its answer, come before `messages`.
    """

    says = "step {it.step} asks the model"

    step: str
    call: str
    key: str
    digest: str
    messages: tuple[Message, ...] | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    after_conversation: bool = False
    follows: str | None = None


@mutable
class CallRequested(Event):
    """A step that is a function wants a tool called; `asked` if the model asked for it in this step's own answer."""

    says = "step {it.step} asks for a call of {it.name}"

    step: str
    call: str
    key: str
    digest: str
    name: str
    arguments: dict[str, Json]
    problem: str | None = None
    asked: bool = False


@mutable
class ValueKept(Event):
    """A value that a function found, to be the same when it is entered again."""

    says = "step {it.step} stored a value"

    step: str
    key: str
    value: Json


@mutable
class WorkerFailed(Event):
    """A worker could not say what comes first, or have its last look at the answer."""

    says = "the worker failed: {it.error.kind}"

    error: Failure


@mutable
class AnswerFinalized(Event):
    """A worker had its last look at the task's answer before the task ends."""

    says = "the worker finalized the answer"

    output: Json = None


@mutable
class ModelStarted(Event):
    """A request went out to the model. `final` asks for a last answer without tools; `call` is a function's request.

    `offered` names the tools in it, if the agent offers but some of its own (`Agent.offer`); None: all of them.
    """

    says = "model {it.model} was asked, attempt {it.attempt}"

    step: str
    model: str
    attempt: int = 1
    final: bool = False
    offered: tuple[str, ...] | None = None
    call: str | None = None


@frozen
class TypedAnswer:
    """How an answer reads as the agent's output type: the value, or what is wrong with it, as the model is told.

    `call` is the id of the call that gives the answer, if a tool is there for it; such a call never runs.
    """

    output: Json = None
    problem: str | None = None
    call: str | None = None


@mutable
class ModelReturned(Event):
    """The model answered; ids of the calls in `message` are their places in the task.

    `typed` is there if the answer is to be of a type, and is one: not when it calls tools, and not when it was refused.
    `model` is who answered, if not the one that was asked; `also` are other requests that were sent on the way. `cost`
    is in pico-dollars (see `treadle.core.spending`), computed when the answer came; None: it is not known.
    """

    says = "the model answered ({it.finish}), {it.usage.input_tokens} tokens in, {it.usage.output_tokens} out"

    step: str
    message: Message
    finish: Finish = "stop"
    usage: Usage = NO_USAGE
    typed: TypedAnswer | None = None
    call: str | None = None
    model: str = ""
    also: tuple[SideCall, ...] = ()
    cost: int | None = None


@mutable
class ModelFailed(Event):
    """The model did not answer. With `retry_at` it is asked again, not before that: microseconds since 1970, UTC.

    `model` is who failed, if not the one that was asked; `route` says which of several it was, and `next_route` which
    is to be asked next (see `FailedAttempt`). `also` are other requests that were sent on the way. `usage` and `cost`
    are those of an answer that came and was of no use.
    """

    says = "the model failed: {it.error.kind}"

    step: str
    error: Failure
    call: str | None = None
    retry_at: int | None = None
    model: str = ""
    route: str = ""
    next_route: str = ""
    also: tuple[SideCall, ...] = ()
    usage: Usage = NO_USAGE
    cost: int | None = None


@mutable
class RequestJudged(Event):
    """A policy decided on a request to `model` before it went out, by `rule`; `call` is a function's request.

    A request that is asked about goes out once the task, which pauses for it, is resumed.
    """

    says = "a request to {it.model} was judged: {it.verdict}"

    since = 4
    step: str
    verdict: RequestVerdict
    model: str
    rule: str | None = None
    reason: str = ""
    call: str | None = None


@mutable
class TimerFired(Event):
    """The time has come at which the model may be asked again; `call` is a function's request."""

    says = "the model may be asked again"

    step: str
    call: str | None = None


@mutable
class ModelStopped(Event):
    """A request was given up before its answer arrived: it is asked again when the task goes on."""

    says = "the request to the model was stopped: {it.reason}"

    step: str
    reason: StopReason
    call: str | None = None


JudgedVerdict = Literal["allow", "deny", "replace"]
ApprovalScope = Literal["once", "task"]
"""What an approval holds for: this call, or every call of the task that the same rule asks about for the same tool."""


@mutable
class CallJudged(Event, CallOccurrence):
    """A policy decided on a call before it started, by `rule`; None if no rule applies to it.

    With `replace` the call has other `arguments`, in place of the `previous` ones, and is judged anew.
    """

    says = "{it.tool} was judged ({it.call}): {it.verdict}"

    since = 4
    step: str
    call: str
    verdict: JudgedVerdict
    rule: str | None = None
    reason: str = ""
    arguments: dict[str, Json] | None = None
    previous: Json = None


@mutable
class ApprovalRequested(Event, CallOccurrence):
    """A person is to decide whether a call starts: request `number` of this call, which `rule` asks for.

    `definition` and `digest` bind an approval to the tool as it is defined now, and to the arguments of the call.
    Unanswered until `expires`, in microseconds since 1970, UTC, the call is denied. `preview` is what the tool says it
    would do. Only `approvers` may decide, if there are any, and none of the `excluded`.
    """

    says = "{it.tool} needs an approval ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    definition: str
    digest: str
    expires: int
    rule: str | None = None
    reason: str = ""
    preview: Json = None
    approvers: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@mutable
class ApprovalGiven(Event, CallOccurrence):
    """A call was approved; with `arguments` in place of the `previous` ones, which are checked before it starts."""

    says = "{it.tool} was approved ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    scope: ApprovalScope = "once"
    arguments: dict[str, Json] | None = None
    previous: Json = None
    by: str | None = None
    inbox: str | None = None


@mutable
class ApprovalDenied(Event, CallOccurrence):
    """A call was denied: it does not start, and the model is told the reason."""

    says = "{it.tool} was denied ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    reason: str | None = None
    by: str | None = None
    inbox: str | None = None


@mutable
class ApprovalExpired(Event, CallOccurrence):
    """A request for approval was not answered in time, so the call is denied."""

    says = "the request to approve {it.tool} expired ({it.call})"

    since = 4
    step: str
    call: str
    number: int


@mutable
class ApprovalVoided(Event, CallOccurrence):
    """An approval does not hold for what was about to start, for the reason `why`: the call is judged anew."""

    says = "the approval of {it.tool} does not hold ({it.call})"

    since = 4
    step: str
    call: str
    number: int
    why: str


@mutable
class ToolStarted(Event, CallOccurrence):
    """A call began: durable before a call that may write starts. With `undoes` it takes back that call.

    The call of an agent is the task `child`; it begins again, and that task goes on, each time its parent does.
    """

    says = "{it.tool} began ({it.call}), attempt {it.attempt}"

    step: str
    call: str
    effect: EffectClass = "read"
    attempt: int = 1
    undo: bool = False
    undoes: str | None = None
    child: str | None = None


@mutable
class ToolStopped(Event, CallOccurrence):
    """A begun call was given up; unless its `reason` is `error`, it is not known what it did.

    Reads and idempotent calls start again when the task goes on. Of any other call the outcome is unknown.

    That of an agent rests with its task: it goes on with it. `parked` says that this task stopped of its own, and
    `error` what it waits for; `spent` is what it spent so far, by agent. `unseen` are microseconds for which both were
    driven and of which, since a driver was killed, only that task's journal tells.
    """

    says = "{it.tool} was stopped ({it.call}): {it.reason}"

    step: str
    call: str
    reason: StopReason
    error: Failure | None = None
    spent: tuple[SpentBy, ...] = ()
    unseen: int = 0


@mutable
class ToolEnded(Event, CallOccurrence):
    """The one end of a call, also of one that never ran. `observation` None means: the output as text.

    `sources` say what the result rests on, `artifacts` what the call made: both are kept with the task. Of an agent's
    call, `spent` is what it and all below it spent, by agent, and `harmless` that none of its calls changed anything;
    `unseen` as in `ToolStopped`. `changes` are what the call changed in the task's `extra_state`.
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
    format = _format_of_changes


@mutable
class StateOverwritten(Event):
    """Two that ran beside each other changed the same `keys` of the task's `extra_state`: the values of `kept` stand.

    `kept` and `lost` are ids of calls, or of steps that are functions; `kept` comes later in call order.
    """

    says = "{it.kept} overwrote what {it.lost} had set in the extra state"

    since = 3
    step: str
    kept: str
    lost: str
    keys: tuple[str, ...]


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
class StepCompleted(Event):
    """A step ended well. `last` means it holds the task's answer; `direct` that a tool's result is the answer.

    Of a step that is a function, `next` are the steps it planned, `sources` and `artifacts` what it adds itself, and
    `changes` what it changed in the task's `extra_state`.
    """

    says = "step {it.step} completed"

    step: str
    last: bool = False
    output: Json = None
    direct: bool = False
    reason: str | None = None
    next: tuple[NextStep, ...] = ()
    sources: tuple[Json, ...] = ()
    artifacts: tuple[File, ...] = ()
    changes: StateChange | None = None
    format = _format_of_changes


@mutable
class StepFailed(Event):
    """A step could not be finished; it stays the next one, unless the steps after it can do without it.

    `degrades`: the task is degraded if it goes on without the step, and no other step takes its place.
    """

    says = "step {it.step} failed: {it.error.kind}"

    step: str
    error: Failure
    degrades: bool = False


@mutable
class StepSkipped(Event):
    """A step was given up, and the task goes on without it: it failed and a caller skipped it, or no step needs it.

    A step that is a function may give itself up (`by` is then `step`): `reason` says why, `error` what failed, and
    `degrades` is as in `StepFailed`.
    """

    says = "step {it.step} was given up"

    step: str
    by: str | None = None
    inbox: str | None = None
    reason: str | None = None
    error: Failure | None = None
    degrades: bool = False


@mutable
class InputEdited(Event):
    """A caller replaced the input that the next step will read."""

    says = "the input of the next step was edited"

    parts: tuple[Content, ...]
    previous: tuple[Content, ...]
    by: str | None = None


@mutable
class CallEdited(Event, CallOccurrence):
    """A caller changed the arguments of a call that has not begun."""

    says = "the arguments of {it.tool} were edited ({it.call})"

    step: str
    call: str
    arguments: dict[str, Json]
    previous: Json
    by: str | None = None


@mutable
class ResultReplaced(Event, CallOccurrence):
    """In a fork: what if this call had returned something else."""

    says = "the result of {it.tool} was replaced ({it.call})"

    call: str
    output: Json
    previous: Json = None


# ------------------------------------------------------------------------------------------ control


@mutable
class PauseRequested(Event):
    """Running calls may end, nothing new starts."""

    says = "a pause was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class InterruptRequested(Event):
    """What runs is stopped; the task can be resumed."""

    says = "an interrupt was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class Resumed(Event):
    """A paused or interrupted task goes on."""

    says = "the task goes on"

    by: str | None = None
    inbox: str | None = None


@mutable
class CancelRequested(Event):
    """The task is to end, for good."""

    says = "a cancel was requested"

    by: str | None = None
    reason: str | None = None
    inbox: str | None = None


@mutable
class LimitReached(Event):
    """A limit was reached: `limit` is the name of the field of `Limits`; `detail` says more, where there is more.

    `room` says whether a last request to the model fits, as far as tasks above and beside it have a say in that.
    """

    says = "the limit on {it.limit} was reached: {it.used:g} of {it.allowed:g}"

    limit: str
    allowed: float
    used: float
    detail: str | None = None
    room: bool = True


@mutable
class CommandRejected(Event):
    """A command from the inbox did not fit the task any more."""

    says = "the command {it.command} no longer fitted the task"

    command: str
    reason: str
    inbox: str


@mutable
class DriverSurvived(Event):
    """The driver that owned the task under `epoch` lost it, or gave it back, and lives: it did not die of it."""

    says = "the driver of epoch {it.epoch} is alive"

    epoch: int
    inbox: str | None = None


@mutable
class UndoRequested(Event):
    """Steps are to be taken back: those after index `to`; `calls` are compensated first, in this order."""

    says = "an undo to step {it.to} was requested"

    to: int
    steps: tuple[str, ...]
    calls: tuple[str, ...] = ()
    forced: bool = False
    by: str | None = None
    inbox: str | None = None


UndoVerdict = Literal["compensated", "not_compensated", "nothing_to_compensate", "unknown"]


@frozen
class UndoneCall:
    """What became of one call of an undone step."""

    call: str
    tool: str
    verdict: UndoVerdict
    why: str | None = None


@mutable
class Rewound(Event):
    """The task stands again where it stood after step index `to`; what comes next is a new branch.

    `steps` are those taken back, if steps depend on each other.
    """

    says = "rewound to step {it.to}"

    to: int
    branch: int
    calls: tuple[UndoneCall, ...] = ()
    steps: tuple[str, ...] = ()


@mutable
class TaskEnded(Event):
    """An attempt ended. `thread_version` is the thread's version with this task in it, 0 if it is not in it.

    `kept` says that the messages of a task that did not end well stay in its thread.
    """

    says = "the task ended: {it.state}"

    state: EndState
    output: Json = None
    error: Failure | None = None
    reasons: tuple[str, ...] = ()
    thread_version: int = 0
    kept: bool = False


@mutable
class TaskReopened(Event):
    """An ended task goes on in another attempt; its messages leave its thread."""

    says = "attempt {it.attempt} began: {it.reason}"

    attempt: int
    reason: str
    by: str | None = None


@mutable
class UnknownEvent(Event):
    """An event of a kind that this version does not know, kept as inert data.

    A task that has one is not driven by this version, unless the event is marked `inert`: ignorable by any driver.
    """

    says = "an event of the unknown kind {it.tag}"

    tag: str
    data: Json
    inert: bool = False

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: one that this version does not, unless the event is inert."""
        return 1 if self.inert else JOURNAL_FORMAT + 1


# --------------------------------------------------------------------------------- ephemeral deltas


Channel: TypeAlias = Literal["draft", "final", "reasoning", "arguments"]
"""What is being written: text that may or must be the answer, reasoning, or arguments of a call."""


@mutable
class Delta(_OfTask):
    """Some more of what a model is writing, in a `channel`: `draft`, `final`, `reasoning` or `arguments`.

    `final` is text that can only be the answer to this request, `draft` text after which the model may still
    call tools, or which a step that is a function asked for.
    """

    says = "the model is writing: {it.channel}"

    kind: ClassVar[str] = "delta"
    step: str
    channel: Channel
    text: str
    after: int = 0
    """sequence number of the last event when this was written"""

    index: int = 0
    """of `arguments`: which call of the answer, from 0"""

    tool: str = ""
    """of `arguments`: some more of the called tool's name, which comes first"""

    call: str | None = None
    """of a function's request: which of them, as in `ModelStarted`"""

    @property
    def is_text(self) -> bool:
        """Whether this is text for people, draft or final."""
        return self.channel == "draft" or self.channel == "final"


@mutable
class ModelRestarted(_OfTask):
    """What was told of an answer until now is void: another attempt at it begins, with nothing said yet."""

    says = "model {it.model} begins its answer anew, attempt {it.attempt}"

    kind: ClassVar[str] = "model_restarted"
    step: str
    model: str
    attempt: int
    call: str | None = None
    after: int = 0


@mutable
class RawChunk(_OfTask):
    """A piece of an answer as the provider sent it, if it was requested: JSON data in the provider's own shape."""

    says = "a piece of the provider's answer"

    kind: ClassVar[str] = "raw_chunk"
    step: str
    data: Json
    call: str | None = None
    after: int = 0


@mutable
class ToolProgress(CallOccurrence):
    """A tool says how far it is."""

    says = "{it.tool} tells how far it is ({it.call})"

    kind: ClassVar[str] = "tool_progress"
    step: str
    call: str
    value: Json
    after: int = 0


@mutable
class ChildEvent(Occurrence):
    """Something happened in a task below: in `task_id`, which the agents of `path` lead to, from the first below on.

    It comes as it happens and may be missed; the journal of that task has it. `call` is the call of this task's that it
    belongs to.
    """

    says = "in task {it.task_id}: {it.event.description}"

    kind: ClassVar[str] = "child_event"
    step: str
    call: str
    task_id: str
    path: tuple[str, ...]
    event: Event | Delta | ModelRestarted | ToolProgress
    after: int = 0

    @property
    def agent_path(self) -> tuple[str, ...]:
        """The agents on the path to the task below, from that of the root task on."""
        return (*_path_of(self), *self.path)


Ephemeral: TypeAlias = Delta | ModelRestarted | RawChunk | ToolProgress | ChildEvent

TaskEvent: TypeAlias = (
    TaskCreated
    | TaskForked
    | ThreadAwaited
    | ThreadEntered
    | SummaryRequested
    | MessagesImported
    | InstructionsSet
    | VersionChanged
    | OptionsChanged
    | InputReceived
    | InputEdited
    | StepsPlanned
    | StepStarted
    | ModelRequested
    | CallRequested
    | ValueKept
    | RequestJudged
    | ModelStarted
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
    | ToolStarted
    | ToolStopped
    | OutcomeSettled
    | OutcomeUnresolved
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
