"""The state of a task, which its events determine. State grows in place, and only `apply` changes it.

A step that ended has a checkpoint with the length of the conversation and the number of answers. So the cost of an undo
depends on the undone steps alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

from treadle.core.checks import Check
from treadle.core.children import SpentBy
from treadle.core.data import frozen, mutable
from treadle.core.events import (
    AgentOverride,
    EndState,
    Failure,
    ForkChange,
    IllegalEvent,
    InputReceived,
    StateChange,
    UndoneCall,
    UnknownEvent,
)
from treadle.core.extra_state import ExtraState, Overwritten, Writer
from treadle.core.graph import Graph, StepNode
from treadle.core.ids import idempotency_key
from treadle.core.messages import Content, Json, Message, MessageView
from treadle.core.model import NO_USAGE, Tries, Usage
from treadle.core.permits import Grant
from treadle.core.questions import Question
from treadle.core.steps import CallState, Checkpoint, ModelCall, Sleep, StepState
from treadle.core.team import AgentVersion, Team


@mutable
class UndoState:
    """A requested undo that has not rewound yet."""

    to: int
    queue: list[CallState]
    steps: tuple[str, ...] = ()
    """the undone steps, if steps depend on each other"""

    since: int = 0
    """the event that first requested it; later input is kept"""


@frozen
class Timer:
    """The retry timer of a step's request, or of a function's request (`call`). `due` in microseconds, UTC."""

    step: str
    call: str | None
    due: int
    tries: Tries


@frozen
class Expiry:
    """The expiry of a request to a person, to approve a call or to answer a question. `due` in microseconds, UTC."""

    step: str
    call: str
    due: int
    number: int
    is_question: bool = False


@frozen
class TicketExpiry:
    """The expiry of a deferred call's ticket; `due` in microseconds, UTC."""

    step: str
    call: str
    due: int


@mutable
class TaskState:
    """The state of a task. `history` are the earlier messages of its thread, which never change."""

    task_id: str
    history: Sequence[Message] = ()
    seq: int = 0
    epoch: int = 0
    progress: int = 0
    """last epoch that made progress

    In it, the driver recorded an event that drivers do not repeat, or a suspected driver reported that it is alive.
    """

    unknown: UnknownEvent | None = None
    """the first unknown event that forbids this version to drive the task"""

    created: int = 0
    time: int = 0
    driven: int = 0
    """microseconds during which a driver drove the task, over all attempts"""

    incarnation: str = ""
    """distinguishes the task from deleted tasks of the same id, if there were any"""

    frame_key: str = ""
    """the key of the nonces of frames around untrusted content"""

    agent: str = ""
    """the present agent of the task"""

    created_for: str = ""
    """the agent that it was created for, as in its row"""

    team: Team | None = None
    """the handoffs of the conversation; None without one on this branch"""

    versions: dict[str, AgentVersion] = field(default_factory=dict[str, AgentVersion])
    """the records of its former agents"""

    thread: str = ""
    base: int = 0
    in_line: bool = False
    """whether the task waits in the queue of its thread, or did when its driver released it"""

    forked_from: str | None = None
    fork_seq: int = 0
    fork_changes: tuple[ForkChange, ...] = ()
    """the differences of a fork from its parent, in the order of their events"""

    parent: str | None = None
    parent_call: str | None = None
    depth: int = 0
    children: dict[str, tuple[SpentBy, ...]] = field(default_factory=dict[str, "tuple[SpentBy, ...]"])
    """the child tasks on all branches, with their known spending"""

    fingerprint: str = ""
    options: Json = None
    extra_state: ExtraState | None = None
    """the JSON object that is stored with the task; None without an initial value and writes"""

    overwritten: list[Overwritten] = field(default_factory=list[Overwritten])
    """hidden writes to it that no event reports yet"""

    instructions: str | None = None
    input: tuple[Content, ...] = ()
    """the initial input of the task"""

    passed_input: tuple[Content, ...] | None = None
    """that input after guardrails, if they rewrote it"""

    messages: list[Message] = field(default_factory=list[Message])
    unread: list[InputReceived] = field(default_factory=list[InputReceived])
    steps: list[StepState] = field(default_factory=list[StepState])
    step: StepState | None = None
    """the step under way, or the failed one that is next"""

    graph: Graph | None = None
    """the steps of a task of step functions, which may run in parallel; it has no `step`"""

    origin: Checkpoint = field(default_factory=lambda: Checkpoint(0, 0, 0, (), 0))
    untrusted: tuple[str, ...] = ()
    """untrusted origins of inherited content, from the journal: of parent, thread and imports"""

    history_untrusted: tuple[str, ...] = ()
    """untrusted origins in the tasks of `history`"""

    exposed: tuple[str, ...] = ()
    """declared effects of the tools whose results its parent or its thread had seen, from the journal"""

    history_exposed: tuple[str, ...] = ()
    """like `exposed`, of the tasks of `history`"""

    summarised: bool = False
    """whether `history` begins with a summary of earlier messages of its thread"""

    covers: int = 0
    """the version up to which the task's answer summarises its thread; 0 if it does not"""

    own_from: int = 0
    """index in `messages` of the first message that this task adds to its thread"""

    floor: int = 0
    """the number of `steps` that a fork inherited from its parent"""

    branch: int = 0
    turn: int = 0
    attempt: int = 1
    tool_calls: int = 0
    rejected: int = 0
    """the number of successive answers that did not fit the agent's output type"""

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
    """whether a step ever started; in a fork, only its own steps count"""

    answered: bool = False
    override: AgentOverride | None = None
    """the values of a fork that override those of its agent's code"""

    finalized: bool = False
    """whether the worker's `finalize_task` has inspected the answer"""

    output: Json = None
    output_text: str = ""
    error: Failure | None = None
    reasons: list[str] = field(default_factory=list[str])
    end_reasons: tuple[str, ...] = ()
    limit: str | None = None
    """the name of the limit that was reached"""

    limit_detail: str | None = None
    exhausted: bool = False
    """whether not even a last request fits, because related tasks spent the rest of a limit"""

    pausing: bool = False
    interrupting: bool = False
    shutdown: bool = False
    """whether its driver's shutdown interrupted it, so that another process will adopt it"""

    cancelling: bool = False
    stop_reason: str | None = None
    open_approvals: dict[str, CallState | Check] = field(default_factory=dict[str, "CallState | Check"])
    """the calls and guarded contents that a person must decide, by id"""

    checks: dict[str, Check] = field(default_factory=dict[str, Check])
    """the decisions of guardrails on contents of the task, by id"""

    questions: dict[str, Question] = field(default_factory=dict[str, Question])
    """the open questions to people, by id"""

    grants: list[Grant] = field(default_factory=list[Grant])
    """approvals for later calls of the task"""

    sleeps: dict[str, Sleep] = field(default_factory=dict[str, Sleep])
    """the sleeps of tools and of step functions, by id"""

    cut: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls of this branch with cut results, by the ids that the model knows"""

    tickets: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls with tickets, by digest; ended and undone ones too"""

    deferred: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls with work in the background, by id"""

    completed: dict[str, CallState] = field(default_factory=dict[str, CallState])
    """the calls with completed tickets that have not ended yet, by id"""

    arrived: list[CallState] = field(default_factory=list[CallState])
    """the calls of this branch whose results came as input, in order"""

    undo: UndoState | None = None
    last_undo: tuple[UndoneCall, ...] = ()
    ended: EndState | None = None
    end_seq: int = 0
    end_time: int = 0
    thread_version: int = 0
    closing: int = 0
    """the number of messages that its end added: unread input, and the message about its end"""

    def key_of(self, call_id: str) -> str:
        """Return the idempotency key of a call, the same in each attempt and unique to the call."""
        return idempotency_key(self.task_id, self.incarnation, call_id)

    @property
    def task_input(self) -> tuple[Content, ...]:
        """The input of the task after guardrails."""
        return self.input if self.passed_input is None else self.passed_input

    @property
    def view(self) -> MessageView:
        """The conversation so far, shared without a copy."""
        return MessageView(self.messages, len(self.messages))

    def find_call(self, call_id: str) -> CallState | None:
        """Return the call of this id on the present branch, newest step first."""
        for step in (*self.under_way(), *reversed(self.steps)):
            for call in step.calls:
                if call.id == call_id:
                    return call
        return None

    def under_way(self) -> Sequence[StepState]:
        """Return the steps under way, and the failed ones that are next."""
        if self.step is not None:
            return (self.step,)
        if self.graph is None:
            return ()
        nodes = (*self.graph.running.values(), *self.graph.failed.values())
        return [node.step for node in nodes if node.step is not None]

    def running_nodes(self) -> Iterable[StepNode]:
        """Return the running steps of a graph, none if the steps follow each other."""
        return self.graph.running.values() if self.graph is not None else ()

    def node_of(self, step_id: str) -> StepNode | None:
        """Return the step of this id in the graph, or None if the steps follow each other."""
        return self.graph.nodes.get(step_id) if self.graph is not None else None

    def open_call(self, call_id: str) -> CallState | None:
        """Return the open call of this id, in a step under way or in the background."""
        for step in self.under_way():
            if call_id in step.open:
                return step.open[call_id]
        return self.deferred.get(call_id)

    def begun_calls(self) -> list[CallState]:
        """Return the tool calls in flight, now or when their driver crashed."""
        calls = [call for step in self.under_way() for call in step.open.values() if call.status == "begun"]
        if self.undo is not None:
            calls += [call for call in self.undo.queue if call.undo_status == "begun"]
        return calls

    def open_children(self) -> list[CallState]:
        """Return the calls of agents whose tasks are not known to have ended."""
        return [call for step in self.under_way() for call in step.open.values() if call.child is not None]

    def in_flight(self) -> bool:
        """Return whether a model call or a tool call is in flight."""
        if self.step is not None and self.step.model_call.status == "begun":
            return True
        return bool(self.begun_calls()) or bool(self.begun_model_calls())

    def timers(self) -> Iterator[Timer | Expiry | Sleep | TicketExpiry]:
        """Return the timers that the task waits for. During an undo there are none: it ends before any request."""
        if self.undo is not None or self.ended is not None:
            return iter(())
        return iter((*self.unfired(), *self.expiries(), *self.sleeps.values(), *self.ticket_expiries()))

    def expiries(self) -> Iterator[Expiry]:
        """Yield the expiries of the open requests to people."""
        for call in self.open_approvals.values():
            if call.permit is not None and (request := call.permit.request) is not None:
                yield Expiry(call.step, call.id, request.expires, request.number)
        for question in self.questions.values():
            event = question.event
            if event.expires is not None:
                yield Expiry(event.step, event.call, event.expires, event.number, is_question=True)

    def ticket_expiries(self) -> Iterator[TicketExpiry]:
        """Yield the expiries of the open tickets."""
        for call in self.deferred.values():
            if call.ticket is not None and call.ticket.completion is None:
                yield TicketExpiry(call.step, call.id, call.ticket.expires)

    def unfired(self) -> Iterator[Timer]:
        """Yield the retry timers of requests to the model that have not fired."""
        for step, call in self.open_model_calls():
            if call.tries is not None and call.tries.retry_at is not None:
                yield Timer(step.id, call.id, call.tries.retry_at, call.tries)

    def next_due(self) -> int | None:
        """Return when the first timer fires, in microseconds since 1970, UTC, or None if there is none."""
        return min((timer.due for timer in self.timers()), default=None)

    def open_model_calls(self) -> Iterator[tuple[StepState, ModelCall]]:
        """Yield the open requests to the model of the steps under way. A plain step has one."""
        if self.step is not None:
            yield self.step, self.step.model_call
        elif self.graph is not None:
            for node in self.graph.running.values():
                for call in node.model_calls.values():
                    if node.step is not None:
                        yield node.step, call

    def begun_model_calls(self) -> list[tuple[StepState, ModelCall]]:
        """Return the requests to the model in flight, now or when their driver crashed."""
        return [(step, call) for step, call in self.open_model_calls() if call.status == "begun"]


def start(task_id: str, history: Sequence[Message] = ()) -> TaskState:
    """Return the state of a task before its first event. `history` are the messages of its thread."""
    state = TaskState(task_id, history, messages=list(history))
    state.own_from = len(history)
    state.origin = Checkpoint(len(history), 0, 0, (), 0)
    return state


def take_back_answer(state: TaskState) -> None:
    """Reopen an answered task that has unread input."""
    state.answered, state.output, state.output_text = False, None, ""
    state.finalized = False


def change_extra_state(state: TaskState, change: StateChange, writer: Writer) -> None:
    """Write a change to the task's extra state, by the event that is being applied."""
    if state.extra_state is None:
        state.extra_state = ExtraState()
    state.overwritten += state.extra_state.write(change, writer, state.seq)


def running_node(state: TaskState, event: Any) -> StepNode:
    """Return the running step of an event in a graph. Raises `IllegalEvent` without one."""
    node = state.graph.running.get(event.step) if state.graph is not None else None
    if node is None:
        raise not_running(state, event)
    return node


def open_call_of(state: TaskState, event: Any) -> CallState:
    """Return the open call of an event, and name its tool in the event. Raises `IllegalEvent` if it is not open."""
    call = state.open_call(event.call)
    if call is None:
        raise IllegalEvent(f"task {state.task_id}: call {event.call} is not open")
    event.tool_name = call.name
    return call


def not_allowed(state: TaskState, event: Any, status: str) -> IllegalEvent:
    """Return the error for an event that the status of its call does not allow."""
    return IllegalEvent(f"task {state.task_id}: {event.kind} of call {event.call}, which is {status}")


def not_running(state: TaskState, event: Any) -> IllegalEvent:
    """Return the error for an event of a step that is not running."""
    return IllegalEvent(f"task {state.task_id}: {event.kind} names step {event.step}, which is not running")
