"""Events of steps, and of the requests of step functions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import Event, Failure, StateChange
from treadle.core.messages import File, Json, Message

__all__ = [
    "AnswerFinalized",
    "CallRequested",
    "ModelRequested",
    "NextAgent",
    "NextStep",
    "RouteChosen",
    "StateOverwritten",
    "StepCompleted",
    "StepFailed",
    "StepSkipped",
    "StepStarted",
    "StepsPlanned",
    "ValueKept",
    "WorkerFailed",
]


@mutable
class StepStarted(Event):
    """A step began. Unread input enters the conversation only here."""

    says = "step {it.index} began, attempt {it.attempt}"

    step: str
    index: int
    attempt: int = 1


Join: TypeAlias = Literal["all", "any", "optional"] | int
"""The number of the awaited steps that must succeed: all, one, a number, or `optional`, if all must only end."""


@frozen
class NextStep:
    """A planned step. `after` names the steps that it waits for, of the same plan or earlier.

    `input` is JSON data for it. `join` is how many of the steps in `after` must succeed: `all`, `any`, `Quorum(n)` or
    `optional`. With `any` one is enough, and the others are stopped. With `optional` the step begins once all have
    ended, with any outcome. `retries` is how often a failed step is tried again. Its function is then entered again,
    and repeats the failed calls that it asks for again.
    """

    name: str
    input: Json = None
    after: tuple[str, ...] = ()
    join: Join = "all"
    retries: int = 0


@mutable
class RouteChosen(Event):
    """The router of an agent chose the next calls of a step. They are in `message`, which replaces a model's answer.

    Without a message the model is asked.
    """

    says = "the router chose how step {it.step} goes on"

    since = 5
    step: str
    message: Message | None = None


@mutable
class StepsPlanned(Event):
    """The first steps of a task of step functions were planned."""

    says = "the first steps were planned"

    steps: tuple[NextStep, ...]

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Older drivers do not retry steps."""
        return 5 if any(step.retries for step in self.steps) else 1


@mutable
class ModelRequested(Event):
    """A step function requests an answer of the model, by default to the conversation as the step sees it.

    `messages` replace the conversation. With `after_conversation` they follow it, but neither they nor the answer are
    added to it. `key` identifies the request when the function is entered again, and `digest` its content. Without
    `tools` the agent's offer chooses. With `follows`, the messages and the answer of that request of the same step
    precede `messages`.
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
    """A step function requests a call of a tool. `asked` is true if the answer of this step itself asked for it."""

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
    """A step function, or a `call`, stored a value for the next time that it runs."""

    says = "step {it.step} stored a value"

    step: str
    key: str
    value: Json
    call: str = ""

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Older drivers do not support values of calls."""
        return 5 if self.call else 1


@mutable
class WorkerFailed(Event):
    """A worker failed to choose the first step, or to inspect the answer."""

    says = "the worker failed: {it.error.kind}"

    error: Failure


@mutable
class AnswerFinalized(Event):
    """A caller finalized the answer, or a worker inspected it.

    `by` is the name of the caller and `inbox` the id of its command. For a worker both are None.
    """

    says = "the answer was finalized"

    output: Json = None
    by: str | None = None
    inbox: str | None = None

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Older versions cannot read a caller or a command."""
        return 1 if self.by is None and self.inbox is None else 5


@mutable
class StateOverwritten(Event):
    """Parallel calls or steps changed the same `keys` of the task's `extra_state`. The values of `kept` win.

    `kept` and `lost` are ids of calls, or of step functions. `kept` comes later in call order.
    """

    says = "{it.kept} overwrote values of {it.lost} in the extra state"

    since = 3
    step: str
    kept: str
    lost: str
    keys: tuple[str, ...]


@frozen
class NextAgent:
    """The next agent of the conversation after a step, and the call that asked for it."""

    agent: str
    call: str
    tool: str
    """the name of the called tool"""


def _format_of_end(event: Any) -> int:
    """Return the journal format of the end of a step. Older drivers do not support handoffs and retries."""
    if event.next_agent is not None or (event.next and any(step.retries for step in event.next)):
        return 5
    return 1 if event.changes is None else 3


_format: Any = property(_format_of_end)


@mutable
class StepCompleted(Event):
    """A step succeeded. `last`: its output is the task's answer. `direct`: the answer is a tool's result.

    With `next_agent` the next step belongs to another agent, and `AgentChanged` follows before it begins.

    For a step function, `next` are the steps it planned. `sources` and `artifacts` are its own additions, and `changes`
    its changes of the task's `extra_state`.
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
    next_agent: NextAgent | None = None
    format = _format


@mutable
class StepFailed(Event):
    """A step failed. It stays the next one, unless the steps after it can start without it.

    `degrades`: the task is degraded if it continues without the step, unless another step replaces it.
    """

    says = "step {it.step} failed: {it.error.kind}"

    step: str
    error: Failure
    degrades: bool = False


@mutable
class StepSkipped(Event):
    """A step was skipped, and the task continues without it. It had failed, skipped itself, or no step needs it.

    For a step function that skips itself, `by` is `step`, and `reason` states why. `error` is the failure, and
    `degrades` is as in `StepFailed`.
    """

    says = "step {it.step} was skipped"

    step: str
    by: str | None = None
    inbox: str | None = None
    reason: str | None = None
    error: Failure | None = None
    degrades: bool = False


StepEvent: TypeAlias = (
    StepsPlanned
    | StepStarted
    | RouteChosen
    | ModelRequested
    | CallRequested
    | ValueKept
    | StateOverwritten
    | StepCompleted
    | StepFailed
    | StepSkipped
    | WorkerFailed
    | AnswerFinalized
)
"""The events of this module."""
