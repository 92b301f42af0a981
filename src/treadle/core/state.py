"""What a task's events add up to. State grows in place and is changed by `apply` alone.

A step that ended keeps a mark (how long the conversation was, how many answers there were), so that taking steps back
costs what those steps hold and never a pass over the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Literal

from treadle.core.children import SpentBy
from treadle.core.data import frozen, mutable
from treadle.core.events import (
    EndState,
    Failure,
    InputReceived,
    Outcome,
    TypedAnswer,
    UndoneCall,
    UnknownEvent,
)
from treadle.core.graph import Asked, Graph
from treadle.core.messages import Content, File, Json, Message, MessageView, ToolCall, copied
from treadle.core.model import NO_USAGE, Tries, Usage
from treadle.core.tools import EffectClass

CallStatus = Literal["proposed", "begun", "lost", "unresolved", "parked", "ended"]
"""`lost`: begun, and its outcome is not known. `unresolved`: `reconcile=` did not know either.

`parked`: an agent's, whose task is at rest and has not ended.
"""

UndoStatus = Literal["none", "begun", "lost", "not_happened", "done", "failed", "skipped"]
"""How a call's compensation stands. Of a `lost` one nobody knows the end; one found `not_happened` has none and begins
again, like `none`, which never began, or failed and is asked for once more."""


_FAILURES = ("error", "timeout", "abandoned")
"""Of a call whose outcome is unknown: the kinds of failure that are its own."""


@mutable
class CallState:
    """One tool call on the task's present branch."""

    id: str
    step: str
    name: str
    arguments: dict[str, Json]
    problem: str | None = None
    status: CallStatus = "proposed"
    attempt: int = 0
    effect: EffectClass = "write"
    undo: bool = False
    started: int = 0
    ended: int = 0
    outcome: Outcome | None = None
    output: Json = None
    observation: tuple[Content, ...] | None = None
    display: str | None = None
    error: Failure | None = None
    sources: tuple[Json, ...] = ()
    artifacts: tuple[File, ...] = ()
    stopped: Failure | None = None
    """why its last attempt stopped, if that failed"""

    cut_off: int = 0
    """how many of its attempts were stopped before their end, so that it is not known what these did"""

    offered: tuple[str, ...] | None = None
    """the tools that were offered when it was asked for; None: all that the agent has"""

    answers: bool = False
    """it gives the task's answer by a tool that is there for nothing else: it never runs, and is counted nowhere"""

    asked: bool = False
    """of a function's call: the model asked for it, in the step's own answer"""

    child: str | None = None
    """the task that it is, if it is the call of an agent"""

    since: int = 0
    """for how long its own task had been driven then, in microseconds"""

    undo_status: UndoStatus = "none"
    undo_attempt: int = 0
    undo_error: str | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether it may have taken effect or not: an attempt was cut off, and none has returned since."""
        return self.cut_off > 0 and self.effect != "read"

    @property
    def doubts(self) -> int:
        """How many of its attempts may have done what is not known, for a call that is made in its place."""
        return self.cut_off or int(self.child is not None and self.effect != "read")

    @property
    def failed(self) -> bool:
        """Whether it failed, and may be tried again when its step is: with the same idempotency key."""
        if self.outcome == "unknown":
            return self.effect == "idempotent" and self.error is not None and self.error.kind in _FAILURES
        return self.outcome in ("error", "timeout")

    @property
    def as_tool_call(self) -> ToolCall:
        """The call as `undo=` and `reconcile=` get it."""
        return ToolCall(self.id, self.name, copied(self.arguments), output=copied(self.output))


@mutable
class Checkpoint:
    """Where a task stood at the end of a step: enough to stand there again."""

    messages: int
    turn: int
    tool_calls: int
    unread: tuple[InputReceived, ...]
    reasons: int
    rejected: int = 0


@mutable
class StepState:
    """One step on the task's present branch."""

    id: str
    index: int
    attempt: int = 1
    status: Literal["running", "completed", "failed", "skipped"] = "running"
    model: Literal["idle", "begun", "returned"] = "idle"
    model_attempt: int = 0
    asked_at: int = 0
    """when trying to have its question answered began, under the present ownership"""

    tries: Tries | None = None
    """of a question that failed and is to be asked again"""

    final: bool = False
    offered: tuple[str, ...] | None = None
    """the tools in its newest request, if not all were: the same request, made again, offers the same"""

    paused: bool = False
    """after a failure in it the policy asked for a pause"""

    finish: str = "stop"
    text: str = ""
    typed: TypedAnswer | None = None
    calls: list[CallState] = field(default_factory=list[CallState])
    open: dict[str, CallState] = field(default_factory=dict[str, CallState])
    usage: Usage = NO_USAGE
    cost: int = 0
    unpriced: tuple[str, ...] = ()
    """as in `TaskState`"""

    input: tuple[Content, ...] = ()
    first_message: int = 0
    answer_at: int = 0
    """where in the conversation the newest answer of the model stands"""

    answered_calls: int = 0
    """how many of `calls` were asked for by answers before the newest, or before the one that is to come"""

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
        """Whether the model is still, or again, to be asked: words that arrive now belong to this step."""
        return self.model == "idle" and len(self.calls) == self.answered_calls


@mutable
class UndoState:
    """An undo that was requested and has not rewound yet."""

    to: int
    queue: list[CallState]
    steps: tuple[str, ...] = ()
    """those taken back, if steps depend on each other"""

    since: int = 0
    """the event that first asked for it: words said after that are not taken back"""


@frozen
class Timer:
    """When a step's question, or that of a function's request (`call`), may be asked again; in microseconds, UTC."""

    step: str
    call: str | None
    due: int
    tries: Tries


@mutable
class TaskState:
    """A task as its events say it is. `history` is what its thread held before, and never changes."""

    task_id: str
    history: Sequence[Message] = ()
    seq: int = 0
    epoch: int = 0
    progress: int = 0
    """the last ownership under which something happened that a driver does not only begin, or find begun, each time,
    or one of its drivers was heard of that might have died of the task"""

    unknown: UnknownEvent | None = None
    """the first event of a kind that this version does not know and may not drive the task on over"""

    created: int = 0
    time: int = 0
    driven: int = 0
    """microseconds during which somebody drove the task, over all attempts"""

    incarnation: str = ""
    """which of the tasks that had this id it is, if others had it or may have had it"""

    agent: str = ""
    thread: str = ""
    base: int = 0
    in_line: bool = False
    """whether the task waits for its thread, or did when its driver left it"""

    forked_from: str | None = None
    fork_seq: int = 0
    parent: str | None = None
    parent_call: str | None = None
    depth: int = 0
    children: dict[str, tuple[SpentBy, ...]] = field(default_factory=dict[str, "tuple[SpentBy, ...]"])
    """the tasks that agents were run as, on all branches, and what each spent as far as it is known here"""

    fingerprint: str = ""
    options: Json = None
    extra_state: Json = None
    instructions: str | None = None
    input: tuple[Content, ...] = ()

    messages: list[Message] = field(default_factory=list[Message])
    unread: list[InputReceived] = field(default_factory=list[InputReceived])
    steps: list[StepState] = field(default_factory=list[StepState])
    step: StepState | None = None
    """the step being worked on, or the failed one that is still next"""

    graph: Graph | None = None
    """the steps of a task whose steps are functions and may run beside each other; such a task has no `step`"""

    origin: Checkpoint = field(default_factory=lambda: Checkpoint(0, 0, 0, (), 0))
    summarised: bool = False
    """whether `history` begins with a summary of what its thread held before"""

    covers: int = 0
    """if the task's answer is to be a summary in its thread: up to which version"""

    window: object = field(default=None, compare=False, repr=False)
    """kept here by whoever shows the conversation to a model; nothing follows from it"""

    own_from: int = 0
    """where in `messages` the words begin that this task adds to a thread that has its history"""

    floor: int = 0
    """how many of `steps` were taken over from the parent of a fork"""

    branch: int = 0
    turn: int = 0
    attempt: int = 1
    tool_calls: int = 0
    rejected: int = 0
    """how many answers in a row were not of the agent's output type"""

    model: str = ""
    """the one that was asked last"""

    model_calls: int = 0
    usage: Usage = NO_USAGE
    cost: int = 0
    """pico-dollars, of the answers whose cost is known"""

    unpriced: tuple[str, ...] = ()
    """the models whose answers cost nobody knows what"""

    last_request_tokens: int = 0
    last_request_cost: int = 0

    began: bool = False
    """whether a step ever started, in this task itself if it is a fork"""

    answered: bool = False
    finalized: bool = False
    """whether a worker that wants to had its last look at the answer"""

    output: Json = None
    output_text: str = ""
    error: Failure | None = None
    reasons: list[str] = field(default_factory=list[str])
    end_reasons: tuple[str, ...] = ()
    limit: str | None = None
    """the name of the limit that was reached"""

    limit_detail: str | None = None
    exhausted: bool = False
    """whether not even a last request fits: others, above or beside the task, spent what there was"""

    pausing: bool = False
    interrupting: bool = False
    shutdown: bool = False
    """it was interrupted because its driver's process ends: whoever adopts tasks is to drive it on"""

    cancelling: bool = False
    stop_reason: str | None = None
    undo: UndoState | None = None
    last_undo: tuple[UndoneCall, ...] = ()
    ended: EndState | None = None
    end_seq: int = 0
    thread_version: int = 0
    closing: int = 0
    """how many messages its end added: words that nobody read, and what became of it"""

    def key_of(self, call_id: str) -> str:
        """Return the idempotency key of a call: the same on each attempt, and no other call's, of whatever task."""
        if self.incarnation:
            return f"{self.task_id}/{self.incarnation}/{call_id}"
        return f"{self.task_id}/{call_id}"

    @property
    def view(self) -> MessageView:
        """The conversation so far, shared and not copied."""
        return MessageView(self.messages, len(self.messages))

    def find_call(self, call_id: str) -> CallState | None:
        """Return the call of this id on the present branch, newest step first."""
        for step in (*self.under_way(), *reversed(self.steps)):
            for call in step.calls:
                if call.id == call_id:
                    return call
        return None

    def under_way(self) -> Sequence[StepState]:
        """The steps being worked on, and those that failed and are still next."""
        if self.step is not None:
            return (self.step,)
        if self.graph is None:
            return ()
        nodes = (*self.graph.running.values(), *self.graph.failed.values())
        return [node.step for node in nodes if node.step is not None]

    def open_call(self, call_id: str) -> CallState | None:
        """Return a call of this id that has not ended, of a step being worked on."""
        for step in self.under_way():
            if call_id in step.open:
                return step.open[call_id]
        return None

    def begun(self) -> list[CallState]:
        """The calls that are running, or were when their driver died."""
        calls = [call for step in self.under_way() for call in step.open.values() if call.status == "begun"]
        if self.undo is not None:
            calls += [call for call in self.undo.queue if call.undo_status == "begun"]
        return calls

    def open_children(self) -> list[CallState]:
        """The calls of agents whose tasks have not ended, as far as it is known here."""
        return [call for step in self.under_way() for call in step.open.values() if call.child is not None]

    def in_flight(self) -> bool:
        """Whether a model call or a tool call is begun and not ended."""
        if self.step is not None and self.step.model == "begun":
            return True
        return bool(self.begun()) or bool(self.asked())

    def timers(self) -> Iterator[Timer]:
        """The timers that the task waits for: while an undo is under way, none, for nothing is asked before it ends."""
        return self.unfired() if self.undo is None else iter(())

    def unfired(self) -> Iterator[Timer]:
        """The timers that have not fired: of questions that are to be asked again."""
        if self.step is not None:
            if self.step.tries is not None and self.step.tries.retry_at is not None:
                yield Timer(self.step.id, None, self.step.tries.retry_at, self.step.tries)
        elif self.graph is not None:
            for node in self.graph.running.values():
                for asked in node.asked.values():
                    if asked.tries is not None and asked.tries.retry_at is not None:
                        yield Timer(node.id, asked.id, asked.tries.retry_at, asked.tries)

    def next_due(self) -> int | None:
        """When the first timer fires, in microseconds since 1970, UTC; None when there is none."""
        return min((timer.due for timer in self.timers()), default=None)

    def asked(self) -> list[tuple[StepState, Asked]]:
        """The requests of functions to the model that are out, or were when their driver died."""
        if self.graph is None:
            return []
        return [
            (node.step, request)
            for node in self.graph.running.values()
            for request in node.asked.values()
            if request.status == "begun" and node.step is not None
        ]


def start(task_id: str, history: Sequence[Message] = ()) -> TaskState:
    """Return the state of a task of which nothing is known yet but the words its thread holds."""
    state = TaskState(task_id, history, messages=list(history))
    state.own_from = len(history)
    state.origin = Checkpoint(len(history), 0, 0, (), 0)
    return state
