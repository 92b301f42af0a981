"""Events of steps, and of what steps that are functions asked for."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import Event, Failure, StateChange
from treadle.core.messages import File, Json, Message


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
    others are stopped), `Quorum(n)`, or `optional`: it begins once all have ended, however they did. `retries` is how
    often the step is tried again after it failed: its function is entered anew, and so are its calls that failed.
    """

    name: str
    input: Json = None
    after: tuple[str, ...] = ()
    join: Join = "all"
    retries: int = 0


@mutable
class RouteChosen(Event):
    """The router of an agent said how a step goes on: by the calls in `message`, in place of an answer of the model.

    Without a message the model is asked.
    """

    says = "the router chose how step {it.step} goes on"

    since = 5
    step: str
    message: Message | None = None


@mutable
class StepsPlanned(Event):
    """The first steps of a task whose steps are functions."""

    says = "the first steps were planned"

    steps: tuple[NextStep, ...]

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: older ones try no step again."""
        return 5 if any(step.retries for step in self.steps) else 1


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
    """A value that a step function, or a `call`, found: it is the same when the function is entered again."""

    says = "step {it.step} stored a value"

    step: str
    key: str
    value: Json
    call: str = ""

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: older ones know of no values of calls."""
        return 5 if self.call else 1


@mutable
class WorkerFailed(Event):
    """A worker could not say what comes first, or have its last look at the answer."""

    says = "the worker failed: {it.error.kind}"

    error: Failure


@mutable
class AnswerFinalized(Event):
    """The answer is to be the task's end: a caller asked for that, or a worker had its last look at the answer.

    `by` is the name of the caller and `inbox` that of its command; of a worker both are None.
    """

    says = "the answer was finalized"

    output: Json = None
    by: str | None = None
    inbox: str | None = None

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know: older versions cannot read a caller, nor a command."""
        return 1 if self.by is None and self.inbox is None else 5


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


@frozen
class NextAgent:
    """The agent that the conversation moves to when a step has ended, and the call that asked for it."""

    agent: str
    call: str
    tool: str
    """the name of the called tool"""


def _format_of_end(event: Any) -> int:
    """Return the journal format of the end of a step: older drivers know no other agent and no retries."""
    if event.next_agent is not None or (event.next and any(step.retries for step in event.next)):
        return 5
    return 1 if event.changes is None else 3


_format: Any = property(_format_of_end)


@mutable
class StepCompleted(Event):
    """A step ended well. `last` means it holds the task's answer; `direct` that a tool's result is the answer.

    With `next_agent` the next step belongs to another agent: `AgentChanged` follows before it begins.

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
    next_agent: NextAgent | None = None
    format = _format


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
