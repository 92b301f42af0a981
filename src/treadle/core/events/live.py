"""Live occurrences for watchers, which are never journalled."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from treadle.core.data import mutable
from treadle.core.events.occurrence import CallOccurrence, Event, Occurrence, OfTask, path_of
from treadle.core.messages import Json

__all__ = [
    "ChildEvent",
    "Delta",
    "Ephemeral",
    "ModelRestarted",
    "RawChunk",
    "TaskStood",
    "ToolProgress",
]

Channel: TypeAlias = Literal["draft", "final", "reasoning", "arguments"]
"""The kind of text that a model is writing. `draft` may be the answer, and `final` is the answer."""


@mutable
class Delta(OfTask):
    """A piece of the answer that a model is writing, in a `channel`: `draft`, `final`, `reasoning` or `arguments`.

    `final` is text that is certainly the answer to this request. `draft` is text after which the model may still call
    tools, or text for a step function.
    """

    says = "the model is writing: {it.channel}"

    kind: ClassVar[str] = "delta"
    step: str
    channel: Channel
    text: str
    after: int = 0
    """sequence number of the last event at that time"""

    index: int = 0
    """for `arguments`: the index of the call in the answer, from 0"""

    tool: str = ""
    """for `arguments`: the next part of the called tool's name, which precedes them"""

    call: str | None = None
    """for a function's request: its id, as in `ModelStarted`"""

    at: int = 0
    """how many characters of this channel (for `arguments`, of this call) the attempt had written before"""

    call_id: str | None = None
    """for `arguments`: the id of the call"""

    tool_at: int = 0
    """for `arguments`: how many characters of the called tool's name the attempt had written before"""

    @property
    def is_text(self) -> bool:
        """Whether this is text for people, draft or final."""
        return self.channel == "draft" or self.channel == "final"


@mutable
class ModelRestarted(OfTask):
    """The deltas of an answer so far are void, because another attempt at it begins."""

    says = "model {it.model} begins its answer anew, attempt {it.attempt}"

    kind: ClassVar[str] = "model_restarted"
    step: str
    model: str
    attempt: int
    call: str | None = None
    after: int = 0


@mutable
class RawChunk(OfTask):
    """A raw piece of an answer, if requested: JSON data in the provider's own form."""

    says = "a piece of the provider's answer"

    kind: ClassVar[str] = "raw_chunk"
    step: str
    data: Json
    call: str | None = None
    after: int = 0


@mutable
class ToolProgress(CallOccurrence):
    """A tool reported its progress."""

    says = "{it.tool} reported progress ({it.call})"

    kind: ClassVar[str] = "tool_progress"
    step: str
    call: str
    value: Json
    after: int = 0


@mutable
class ChildEvent(Occurrence):
    """An event happened in the task `task_id` below. `path` are the agents on the way to it, from the first below on.

    It is sent live and may be missed. The journal of that task has it. `call` is this task's call that it belongs to.
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
        """The agents on the path to the task below, from the root task's agent on."""
        return (*path_of(self), *self.path)


@mutable
class TaskStood(OfTask):
    """The state of a followed task, at first and after each change. `head` is its journal's last event then.

    Args:
        state: the task's state. It is `running` while the task is driven.
        driven: whether a living driver of any process drives it.
        live: whether that driver is in this process, so that deltas follow.
    """

    says = "the task is {it.state}"

    kind: ClassVar[str] = "task_stood"
    state: str
    driven: bool
    live: bool
    head: int

    @property
    def after(self) -> int:
        """The sequence number of the last event at that time: `head`."""
        return self.head


Ephemeral: TypeAlias = Delta | ModelRestarted | RawChunk | ToolProgress | ChildEvent | TaskStood
