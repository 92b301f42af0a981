"""Events of a task as a whole: its beginning, its options, its input and its ends."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from treadle.core.data import frozen, mutable
from treadle.core.events.occurrence import (
    CommandEvent,
    Event,
    Failure,
    StateChange,
    format_of_changes,
    format_of_commands,
)
from treadle.core.messages import Content, Json, Message, Role

__all__ = [
    "AgentChanged",
    "AgentOverride",
    "ForkChange",
    "InputEdited",
    "InputReceived",
    "InstructionsSet",
    "LimitReached",
    "MessagesImported",
    "OptionsChanged",
    "SummaryRequested",
    "TaskCreated",
    "TaskEnded",
    "TaskForked",
    "TaskReopened",
    "ThreadAwaited",
    "ThreadEntered",
    "VersionChanged",
]

EndState = Literal["completed", "degraded", "failed", "cancelled"]


@mutable
class TaskCreated(Event):
    """A task was created. `base` is the version of the thread whose messages it starts from.

    `incarnation` distinguishes successive tasks with the same id in the idempotency keys. It is empty if the id is
    random, and in older journals. `frame_key` is random: the nonces of the frames around untrusted content are derived
    from it. No tool and no model gets it. For older journals they are derived from other fields of this event.
    `untrusted` are the untrusted origins of the content that the task inherits from its parent or its thread. `exposed`
    are the declared effects of the tools whose results its parent, or an earlier task of its thread, had seen. `by` is
    the name of the caller, if it gave one.
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
    frame_key: str = field(default="", compare=False)
    untrusted: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    by: str | None = None

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Without the incarnation it would change the keys of calls.

        Older versions cannot read the key of frames, inherited origins or effects, or a caller.
        """
        if self.frame_key or self.untrusted or self.exposed or self.by is not None:
            return 5
        return 2 if self.incarnation else 1


@frozen
class AgentOverride:
    """The overrides of a fork over the code of its agent. They stay if that code changes.

    Args:
        agent: the name of the agent. Empty: the task's agent at the fork point.
        instructions: replace its instructions. None: its own.
        model: `provider:model`, replaces its model. None: its own.
    """

    agent: str = ""
    instructions: str | None = None
    model: str | None = None


@frozen
class ForkChange:
    """One thing that a fork changes after the events that it shares with its parent.

    `kind` is a message to continue with (`input`), other `instructions`, another `model` or `agent`, or the replaced
    `result` of a call. `text` is its beginning. `call` and `tool` name the call of a result.
    """

    kind: Literal["input", "instructions", "model", "agent", "result"]
    text: str = ""
    tool: str | None = None
    call: str | None = None


@mutable
class TaskForked(Event):
    """A task was forked. All events before this one are those of `parent`.

    `override` are its overrides over its agent's code, and `by` is the name of the caller.
    """

    says = "forked from task {it.parent}"

    parent: str
    agent: str
    thread: str
    fingerprint: str = ""
    options: dict[str, Json] | None = None
    by: str | None = None
    override: AgentOverride | None = None

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Older versions cannot read a caller or an override."""
        return 1 if self.by is None and self.override is None else 5


@mutable
class ThreadAwaited(Event):
    """The task waits for its thread, which other tasks (`holders`) use. Waiting is not counted as driven time."""

    says = "waits for its thread"

    holders: tuple[str, ...] = ()


@mutable
class ThreadEntered(Event):
    """The task entered its thread. `base` is the version of the thread that it starts from. None: as before.

    `untrusted` are the untrusted origins in that version. `exposed` are the declared effects of the tools whose results
    its tasks have seen.
    """

    says = "entered its thread"

    base: int | None = None
    untrusted: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()

    @property
    def format(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The journal format that a driver must know. Older versions cannot read the origins."""
        return 5 if self.untrusted or self.exposed else 1


@mutable
class SummaryRequested(Event):
    """For models, the task's answer will replace the messages of its thread at `version`, up to version `covers`."""

    says = "is to summarise its thread up to version {it.covers}"

    covers: int
    version: int


@mutable
class MessagesImported(Event):
    """Messages were imported. The task adds only these to its thread."""

    says = "messages were imported into the thread"

    messages: tuple[Message, ...]


@mutable
class InstructionsSet(Event):
    """The agent's instructions were computed for this task. `changes` are changes of its `extra_state`."""

    says = "the instructions were computed"

    text: str
    changes: StateChange | None = None
    format = format_of_changes


@mutable
class VersionChanged(Event):
    """The task continues with another version of its agent."""

    says = "goes on with another version of the agent"

    fingerprint: str
    previous: str


@mutable
class AgentChanged(Event):
    """The conversation moved to another agent, as the end of `step` requested. Later steps belong to it.

    `previous` is the former agent, and `call` the call that asked for the move.
    """

    says = "the conversation moved from agent {it.previous} to agent {it.agent}"

    since = 5
    step: str
    call: str
    agent: str
    previous: str
    fingerprint: str = ""


@mutable
class OptionsChanged(Event):
    """The task continues with other options, such as raised limits."""

    says = "goes on with other options"

    options: dict[str, Json] | None
    by: str | None = None


@mutable
class InputReceived(CommandEvent):
    """Input arrived. The next step that starts reads it."""

    says = "input arrived, as {it.role}"
    command = "send"
    while_cancelling = True

    parts: tuple[Content, ...]
    role: Role = "user"
    observation: bool = False
    by: str | None = None
    inbox: str | None = None


@mutable
class InputEdited(Event):
    """A caller replaced the input that the next step will read."""

    says = "the input of the next step was edited"

    parts: tuple[Content, ...]
    previous: tuple[Content, ...]
    by: str | None = None
    inbox: str | None = None
    format = format_of_commands


@mutable
class LimitReached(Event):
    """A limit was reached. `limit` is the field of `Limits`. `detail` has further facts, if any.

    `room` is true if a last request to the model fits, counting tasks above and beside it.
    """

    says = "the limit on {it.limit} was reached: {it.used:g} of {it.allowed:g}"

    limit: str
    allowed: float
    used: float
    detail: str | None = None
    room: bool = True


@mutable
class TaskEnded(Event):
    """An attempt at the task ended. `thread_version` is the thread's version with this task, or 0 without it.

    `kept`: the messages of a task that did not succeed stay in its thread.
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
    """An ended task continues in another attempt. Its messages leave its thread."""

    says = "attempt {it.attempt} began: {it.reason}"

    attempt: int
    reason: str
    by: str | None = None


LifecycleEvent: TypeAlias = (
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
    | LimitReached
    | TaskEnded
    | TaskReopened
)
"""The events of this module."""
