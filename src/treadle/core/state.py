"""What a task's events add up to. State grows in place and is changed by `apply` alone.

A step that ended has a checkpoint (how long the conversation was, how many answers there were), so that taking steps
back costs what those steps hold and never a pass over the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from treadle.core.checks import Check
from treadle.core.children import SpentBy
from treadle.core.data import frozen, mutable
from treadle.core.events import (
    AgentOverride,
    EndState,
    Failure,
    IllegalEvent,
    InputReceived,
    Rewound,
    StateChange,
    UndoneCall,
    UnknownEvent,
)
from treadle.core.extra_state import ExtraState, Overwritten, Writer
from treadle.core.graph import Graph
from treadle.core.ids import idempotency_key
from treadle.core.messages import Content, Json, Message, MessageView
from treadle.core.model import NO_USAGE, Tries, Usage
from treadle.core.observation import answer_text
from treadle.core.permits import Grant
from treadle.core.questions import Question
from treadle.core.steps import CallState, Checkpoint, ModelCall, Sleep, StepState
from treadle.core.team import AgentVersion, Team


@mutable
class UndoState:
    """An undo that was requested and has not rewound yet."""

    to: int
    queue: list[CallState]
    steps: tuple[str, ...] = ()
    """those taken back, if steps depend on each other"""

    since: int = 0
    """the event that first requested it: input after that is not taken back"""


@frozen
class Timer:
    """When a step's question, or that of a function's request (`call`), may be asked again; in microseconds, UTC."""

    step: str
    call: str | None
    due: int
    tries: Tries


@frozen
class Expiry:
    """When a request to a person expires, in microseconds, UTC: to approve a call, or to answer a question."""

    step: str
    call: str
    due: int
    number: int
    is_question: bool = False


@frozen
class TicketExpiry:
    """When the ticket of a deferred call expires, in microseconds, UTC."""

    step: str
    call: str
    due: int


@mutable
class TaskState:
    """A task as its events say it is. `history` is what its thread held before, and never changes."""

    task_id: str
    history: Sequence[Message] = ()
    seq: int = 0
    epoch: int = 0
    progress: int = 0
    """last epoch that made progress: an event was recorded that not every driver records anew, or a driver that might
    have crashed over the task reported that it is alive"""

    unknown: UnknownEvent | None = None
    """the first event of an unknown kind that forbids this version to drive the task on"""

    created: int = 0
    time: int = 0
    driven: int = 0
    """microseconds during which a driver drove the task, over all attempts"""

    incarnation: str = ""
    """tells the task from deleted tasks of the same id, where there were or may have been any"""

    frame_key: str = ""
    """with which the nonces of frames around untrusted content are made"""

    agent: str = ""
    """the agent that the task is with"""

    created_for: str = ""
    """the agent that it was created for, as its row says"""

    team: Team | None = None
    """where the conversation moved; None if it never did on this branch"""

    versions: dict[str, AgentVersion] = field(default_factory=dict[str, AgentVersion])
    """what is kept of the other agents that it was with"""

    thread: str = ""
    base: int = 0
    in_line: bool = False
    """whether the task waits in the queue of its thread, or did when its driver left it"""

    forked_from: str | None = None
    fork_seq: int = 0
    parent: str | None = None
    parent_call: str | None = None
    depth: int = 0
    children: dict[str, tuple[SpentBy, ...]] = field(default_factory=dict[str, "tuple[SpentBy, ...]"])
    """the child tasks on all branches, and what each spent as far as it is known here"""

    fingerprint: str = ""
    options: Json = None
    extra_state: ExtraState | None = None
    """the JSON object kept with the task; None if there is none and nothing was written to it"""

    overwritten: list[Overwritten] = field(default_factory=list[Overwritten])
    """writes to it that are hidden by others, and of which no event tells yet"""

    instructions: str | None = None
    input: tuple[Content, ...] = ()
    """what the task was created with"""

    passed_input: tuple[Content, ...] | None = None
    """what guardrails made of it, if they rewrote it"""

    messages: list[Message] = field(default_factory=list[Message])
    unread: list[InputReceived] = field(default_factory=list[InputReceived])
    steps: list[StepState] = field(default_factory=list[StepState])
    step: StepState | None = None
    """the step being worked on, or the failed one that is still next"""

    graph: Graph | None = None
    """the steps of a task whose steps are functions and may run beside each other; such a task has no `step`"""

    origin: Checkpoint = field(default_factory=lambda: Checkpoint(0, 0, 0, (), 0))
    untrusted: tuple[str, ...] = ()
    """origins of what was untrusted in what it took over, as its journal says: from parent, thread and imports"""

    history_untrusted: tuple[str, ...] = ()
    """origins of what is untrusted in the tasks that `history` comes from"""

    exposed: tuple[str, ...] = ()
    """declared effects of the tools whose results its parent, or its thread, had seen, as its journal says"""

    history_exposed: tuple[str, ...] = ()
    """the same of the tasks that `history` comes from"""

    summarised: bool = False
    """whether `history` begins with a summary of what its thread held before"""

    covers: int = 0
    """if the task's answer is to be a summary in its thread: up to which version"""

    own_from: int = 0
    """index in `messages` of the first message that this task adds to its thread"""

    floor: int = 0
    """how many of `steps` were taken over from the parent of a fork"""

    branch: int = 0
    turn: int = 0
    attempt: int = 1
    tool_calls: int = 0
    rejected: int = 0
    """how many answers in a row were not of the agent's output type"""

    model: str = ""
    """the model that was asked last"""

    model_calls: int = 0
    usage: Usage = NO_USAGE
    cost: int = 0
    """pico-dollars, of the answers whose cost is known"""

    unpriced: tuple[str, ...] = ()
    """the models whose price is not known"""

    last_request_tokens: int = 0
    last_request_cost: int = 0

    began: bool = False
    """whether a step ever started, in this task itself if it is a fork"""

    answered: bool = False
    override: AgentOverride | None = None
    """what a fork has in place of what the code of its agent says"""

    finalized: bool = False
    """whether a worker with a `finalize_task` had its last look at the answer"""

    output: Json = None
    output_text: str = ""
    error: Failure | None = None
    reasons: list[str] = field(default_factory=list[str])
    end_reasons: tuple[str, ...] = ()
    limit: str | None = None
    """the name of the limit that was reached"""

    limit_detail: str | None = None
    exhausted: bool = False
    """whether not even a last request fits, since tasks above or beside this one spent what there was"""

    pausing: bool = False
    interrupting: bool = False
    shutdown: bool = False
    """it was interrupted because its driver's process ends: a process that adopts tasks is to drive it on"""

    cancelling: bool = False
    stop_reason: str | None = None
    asked: dict[str, CallState | Check] = field(default_factory=dict[str, "CallState | Check"])
    """the calls, and what guardrails check, that a person is asked about, by id"""

    checks: dict[str, Check] = field(default_factory=dict[str, Check])
    """what guardrails decided on contents of the task, by their ids"""

    questions: dict[str, Question] = field(default_factory=dict[str, Question])
    """the questions that a person is to answer, by id"""

    grants: list[Grant] = field(default_factory=list[Grant])
    """approvals that hold for the rest of the task"""

    sleeps: dict[str, Sleep] = field(default_factory=dict[str, Sleep])
    """the sleeps of tools and of step functions, by id"""

    cut: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls of this branch of whose results the model was shown a part, by the ids that it knows"""

    tickets: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls that were given tickets, by digest; also those that have ended or were taken back"""

    deferred: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls whose work goes on in the background, by id"""

    completed: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls whose tickets were completed and that have not ended yet, by id"""

    arrived: list[CallState] = field(default_factory=list[CallState])
    """the calls of this branch whose results came as input, in order"""

    undo: UndoState | None = None
    last_undo: tuple[UndoneCall, ...] = ()
    ended: EndState | None = None
    end_seq: int = 0
    end_time: int = 0
    thread_version: int = 0
    closing: int = 0
    """how many messages its end added: input that no step read, and how the task ended"""

    def key_of(self, call_id: str) -> str:
        """Return the idempotency key of a call: the same in each attempt, and of no other call of any task."""
        return idempotency_key(self.task_id, self.incarnation, call_id)

    @property
    def task_input(self) -> tuple[Content, ...]:
        """The input of the task as guardrails let it pass."""
        return self.input if self.passed_input is None else self.passed_input

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
        """Return a call of this id that has not ended: of a step being worked on, or in the background."""
        for step in self.under_way():
            if call_id in step.open:
                return step.open[call_id]
        return self.deferred.get(call_id)

    def begun_calls(self) -> list[CallState]:
        """Return the tool calls that are in flight, or were when their driver crashed."""
        calls = [call for step in self.under_way() for call in step.open.values() if call.status == "begun"]
        if self.undo is not None:
            calls += [call for call in self.undo.queue if call.undo_status == "begun"]
        return calls

    def open_children(self) -> list[CallState]:
        """The calls of agents whose tasks have not ended, as far as it is known here."""
        return [call for step in self.under_way() for call in step.open.values() if call.child is not None]

    def in_flight(self) -> bool:
        """Whether a model call or a tool call is begun and not ended."""
        if self.step is not None and self.step.model_call.status == "begun":
            return True
        return bool(self.begun_calls()) or bool(self.begun_model_calls())

    def timers(self) -> Iterator[Timer | Expiry | Sleep | TicketExpiry]:
        """Yield the timers that the task waits for; none during an undo, which ends before anything is asked."""
        if self.undo is not None or self.ended is not None:
            return iter(())
        return iter((*self.unfired(), *self.expiries(), *self.sleeps.values(), *self.ticket_expiries()))

    def expiries(self) -> Iterator[Expiry]:
        """Yield when the requests to people expire that are not answered."""
        for call in self.asked.values():
            if call.permit is not None and (request := call.permit.request) is not None:
                yield Expiry(call.step, call.id, request.expires, request.number)
        for question in self.questions.values():
            asked = question.asked
            if asked.expires is not None:
                yield Expiry(asked.step, asked.call, asked.expires, asked.number, is_question=True)

    def ticket_expiries(self) -> Iterator[TicketExpiry]:
        """Yield when the tickets expire that are open."""
        for call in self.deferred.values():
            if call.ticket is not None and call.ticket.completion is None:
                yield TicketExpiry(call.step, call.id, call.ticket.expires)

    def unfired(self) -> Iterator[Timer]:
        """Yield the timers that have not fired, of questions that are to be asked again."""
        for step, call in self.open_model_calls():
            if call.tries is not None and call.tries.retry_at is not None:
                yield Timer(step.id, call.id, call.tries.retry_at, call.tries)

    def next_due(self) -> int | None:
        """When the first timer fires, in microseconds since 1970, UTC; None when there is none."""
        return min((timer.due for timer in self.timers()), default=None)

    def open_model_calls(self) -> Iterator[tuple[StepState, ModelCall]]:
        """Yield the questions of the steps under way: that of a plain step, those of functions until they end."""
        if self.step is not None:
            yield self.step, self.step.model_call
        elif self.graph is not None:
            for node in self.graph.running.values():
                for call in node.model_calls.values():
                    if node.step is not None:
                        yield node.step, call

    def begun_model_calls(self) -> list[tuple[StepState, ModelCall]]:
        """Return the requests to the model that are in flight, or were when their driver crashed."""
        return [(step, call) for step, call in self.open_model_calls() if call.status == "begun"]


def start(task_id: str, history: Sequence[Message] = ()) -> TaskState:
    """Return the state of a task before its first event; `history` is what its thread holds."""
    state = TaskState(task_id, history, messages=list(history))
    state.own_from = len(history)
    state.origin = Checkpoint(len(history), 0, 0, (), 0)
    return state


def take_back_answer(state: TaskState) -> None:
    """Let an answered task go on: there is something that it has not read."""
    state.answered, state.output, state.output_text = False, None, ""
    state.finalized = False


def end_undo(state: TaskState, event: Rewound, last: StepState | None) -> None:
    """Begin the branch after an undo; `last` is the step that stays and may have given the task's answer."""
    state.branch, state.last_undo, state.undo = event.branch, event.calls, None
    state.error = state.limit = None
    state.answered = last is not None and last.last and not state.unread
    state.output = last.output if last is not None and state.answered else None
    state.output_text = answer_text(state.output)
    if state.grants:
        state.grants = [grant for grant in state.grants if state.find_call(grant.call) is not None]


def change_extra_state(state: TaskState, change: StateChange, writer: Writer) -> None:
    """Write a change to the JSON object kept with the task, by the event that is being applied."""
    if state.extra_state is None:
        state.extra_state = ExtraState()
    state.overwritten += state.extra_state.write(change, writer, state.seq)


def not_running(state: TaskState, event: Any) -> IllegalEvent:
    """Return the error for an event of a step that is not running."""
    return IllegalEvent(f"task {state.task_id}: {event.kind} names step {event.step}, which is not running")
