"""Invariants of folded states: each prefix of a journal is a valid task, and an undo restores an earlier state.

Pure functions that return violations, like those of `treadle.testing.audit.events`. These use the engine's own fold.
`prefixes` applies the events one by one and checks the state after each. `refold` compares the last state with a
runner's. `fork_equals_parent` compares a fork with its parent up to the fork point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, fields, replace
from typing import Any

from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.events import IllegalEvent
from treadle.core.graph import Graph
from treadle.core.messages import Message
from treadle.core.render import input_message
from treadle.core.rules.deferring import is_arrival
from treadle.core.rules.fold import apply
from treadle.core.rules.guardrails import as_judged
from treadle.core.rules.schedule import messages_of
from treadle.core.state import TaskState, start
from treadle.testing.audit.events import Violation, well_formed
from treadle.testing.audit.extra_state import WrittenState
from treadle.testing.audit.tickets import delivered_once


@mutable
class JournalOf:
    """A task in a store: each event with its epoch, and the thread in which it began."""

    task: str
    entries: list[tuple[int, e.Event]]
    history: list[Message] = field(default_factory=list[Message])
    history_untrusted: tuple[str, ...] = ()
    """origins of untrusted content in the tasks of `history`"""

    history_exposed: tuple[str, ...] = ()
    """declared effects of the tools whose results these tasks have read"""

    parent: str | None = None
    shared: int = 0

    @property
    def events(self) -> list[e.Event]:
        """The events without their epochs."""
        return [event for _, event in self.entries]


@mutable
class _UndoState:
    """The parts of a task's state that an undo restores."""

    messages: list[Message]
    turn: int
    tool_calls: int
    unread: list[e.InputReceived]
    answered: bool
    output: Any
    rejected: int
    agent: str

    @classmethod
    def of(cls, state: TaskState) -> _UndoState:
        """Return these parts of a state."""
        messages, unread = list(state.messages), list(state.unread)
        answered, output = state.answered, state.output
        return cls(
            *(messages, state.turn, state.tool_calls, unread, answered, output, state.rejected),
            state.agent,
        )


@mutable
class _UndoStates:
    """The states that an undo may restore: before the first step and at the end of each step."""

    origin: _UndoState | None = None
    after: dict[int, _UndoState] = field(default_factory=dict[int, _UndoState])
    results: set[int] = field(default_factory=set[int])
    """the numbers of the events that end calls, since a background call may be input to a later step"""

    during_undo: list[e.InputReceived] | None = None
    """messages since the request of an undo, which outlast it; None without such a request"""


_CHANGES_CONVERSATION = (
    e.ToolEnded,
    e.ModelReturned,
    e.RouteChosen,
    e.StepCompleted,
    e.Rewound,
    e.TaskReopened,
)
"""Events that change the conversation, apart from received messages."""


_ENDS_OF_STEPS = (e.StepCompleted, e.StepFailed, e.StepSkipped, e.Rewound, e.TaskReopened, e.TaskForked)
"""Events after which a task's counts are compared with the steps of its graph."""


def prefixes(journal: JournalOf) -> Iterator[Violation]:
    """Check that each prefix is a valid task with a well-formed conversation and an undo restores its target."""
    task = journal.task
    state = start(task, journal.history)
    undo_states, received, extra_state = _UndoStates(), set[int](), WrittenState()
    for epoch, event in journal.entries:
        if isinstance(event, e.StepCompleted) and event.last and _ignores_messages(state):
            text = f"{event.step} answers while messages wait to be read"
            yield Violation("well_formed", task, event.seq, text)
        waiting = [received for received in state.unread if not is_arrival(state, received)]
        if isinstance(event, e.TaskEnded) and event.state == "completed" and waiting:
            yield Violation("well_formed", task, event.seq, "it completes while messages wait to be read")
        try:
            apply(state, event, epoch)
        except (IllegalEvent, AssertionError, LookupError, TypeError, AttributeError) as error:
            yield Violation("prefix_folds", task, event.seq, f"{event.kind}: {type(error).__name__}: {error}")
            return
        yield from _coherent(task, event.seq, state)
        yield from delivered_once(task, event.seq, state)
        yield from extra_state.check(task, event, state)
        _note_received(event, state, received)
        if isinstance(event, _ENDS_OF_STEPS) and state.graph is not None:
            yield from _adds_up(task, event.seq, state, state.graph)
        if isinstance(event, (*_ENDS_OF_STEPS, e.TaskEnded)) and state.graph is not None:
            yield from _keeps_messages(task, event, state, state.graph, received)
        if isinstance(event, _CHANGES_CONVERSATION) and not _owes_results(state):
            yield from well_formed(task, state.messages, seq=event.seq)
        if isinstance(event, e.Rewound):
            yield from _restored(task, event, state, undo_states)
        _note_undo_state(event, state, undo_states)


def _ignores_messages(state: TaskState) -> bool:
    """Return whether a step that answers now leaves messages unread, though another request is allowed."""
    return state.step is not None and not state.step.model_call.final and bool(state.unread)


def _owes_results(state: TaskState) -> bool:
    """Return whether the conversation lacks results of requested calls."""
    if state.graph is not None:
        return any(node.owes_results for node in state.graph.running.values())
    return state.step is not None and bool(state.step.open)


def _coherent(task: str, seq: int, state: TaskState) -> Iterator[Violation]:
    """Check that the indexes inside the state agree with its steps and calls."""
    if state.graph is not None:
        yield from _coherent_graph(task, seq, state, state.graph)
        return
    step = state.step
    if step is not None:
        still = {call.id for call in step.calls if call.status not in ("ended", "deferred")}
        if still != set(step.open):
            yield Violation("prefix_folds", task, seq, f"open are {sorted(step.open)}, not {sorted(still)}")
    indexes = [step_state.index for step_state in (*state.steps, *((step,) if step is not None else ()))]
    if indexes != list(range(1, len(indexes) + 1)):
        yield Violation("prefix_folds", task, seq, f"steps are numbered {indexes}")


def _coherent_graph(task: str, seq: int, state: TaskState, graph: Graph) -> Iterator[Violation]:
    """Check that the indexes of a graph agree with its nodes."""
    nodes = graph.nodes
    for node in nodes.values():
        above = [nodes[predecessor] for predecessor in node.after]
        over = [predecessor for predecessor in above if predecessor.status in ("completed", "skipped")]
        over += [node for node in above if node.status == "failed" and node.id not in graph.failed]
        if node.status == "planned" and node.waits != len(above) - len(over):
            yield Violation("prefix_folds", task, seq, f"{node.id} waits for {node.waits} steps")
        if node.status == "running" and node.step is not None and not node.won + node.passed >= node.need:
            yield Violation("prefix_folds", task, seq, f"{node.id} runs with {node.won} of {node.need}")
        if node.step is not None and node.status == "running":
            still = {call.id for call in node.step.calls if call.status != "ended"}
            if still != set(node.step.open):
                text = f"open are {sorted(node.step.open)}, not {sorted(still)}"
                yield Violation("prefix_folds", task, seq, text)
    for name, listed in (
        ("ready", [node.id for node in graph.ready]),
        ("running", list(graph.running)),
    ):
        expected = sorted(node.id for node in nodes.values() if node.status == name)
        if sorted(listed) != expected:
            yield Violation("prefix_folds", task, seq, f"{name} are {listed}, not {expected}")
    if graph.planned != sum(node.status == "planned" for node in nodes.values()):
        yield Violation("prefix_folds", task, seq, f"{graph.planned} steps are counted as planned")
    paths = [nodes[step.id].path for step in state.steps]
    if paths != sorted(set(paths)):
        yield Violation("prefix_folds", task, seq, f"steps are in the order {paths}")
    if state.ended == "completed" and graph.running:
        yield Violation("prefix_folds", task, seq, f"completed while {', '.join(graph.running)} still runs")


def _adds_up(task: str, seq: int, state: TaskState, graph: Graph) -> Iterator[Violation]:
    """Check that a task's counts and conversation are those of its steps, also after an undo."""
    nodes = graph.nodes.values()
    merged = sorted((node for node in nodes if node.merged), key=lambda node: (node.since, node.path))
    began = [node.step for node in nodes if node.step is not None]
    own_messages = state.messages[len(state.history) : len(state.messages) - state.closing]
    for name, counted, expected in (
        ("its conversation", own_messages, [message for node in merged for message in messages_of(node)]),
        ("answers", state.turn, sum(node.answers for node in nodes)),
        ("calls", state.tool_calls, sum(node.calls for node in nodes)),
        ("steps begun", graph.started, sum(step.started_seq != step.ended_seq for step in began)),
        (
            "unread",
            [message.seq for message in state.unread],
            sorted(message.seq for message in state.unread),
        ),
    ):
        if counted != expected:
            text = f"{name}: the task holds {counted!r}, its steps {expected!r}"
            yield Violation("prefix_folds", task, seq, text)
    if state.own_from > len(state.messages):
        text = f"its own messages begin at {state.own_from}, after the last one"
        yield Violation("prefix_folds", task, seq, text)


def _note_received(event: e.Event, state: TaskState, received: set[int]) -> None:
    """Maintain the set of messages that the task received, by event number."""
    if isinstance(event, (e.InputEdited, e.MessagesImported)):
        received.clear()  # a step has the messages that it read
    if isinstance(event, e.InputReceived):
        received.add(event.seq)
    elif isinstance(event, (e.InputEdited, e.TaskCreated)):
        received.update(message.seq for message in state.unread)


def _keeps_messages(
    task: str, event: e.Event, state: TaskState, graph: Graph, received: set[int]
) -> Iterator[Violation]:
    """Check that each message is read by at most one step, and that a kept conversation contains it."""
    read = [message for node in graph.nodes.values() for message in node.read]
    counts = Counter(message.seq for message in (*state.unread, *read))
    lost = sorted(seq for seq in received if counts[seq] != 1)
    if lost:
        text = f"the messages of events {lost} are neither waiting nor read by one step"
        yield Violation("well_formed", task, event.seq, text)
    if isinstance(event, e.TaskEnded) and (event.kept or event.state in ("completed", "degraded")):
        rendered = [input_message(message) for message in read]
        silent = [unseen.text for unseen in rendered if state.messages.count(unseen) < rendered.count(unseen)]
        if silent:
            yield Violation("well_formed", task, event.seq, f"{silent} is missing in the conversation")


def _note_undo_state(event: e.Event, state: TaskState, undo_states: _UndoStates) -> None:
    """Record the state after an event, if an undo may restore it."""
    if isinstance(event, e.ToolEnded):
        undo_states.results.add(event.seq)
    is_before_steps = not state.began and state.step is None and len(state.steps) == state.floor
    if isinstance(event, (e.Rewound, e.TaskForked, e.TaskEnded)):
        undo_states.during_undo = None
    if isinstance(event, (e.TaskCreated, e.TaskForked)):
        before = undo_states.after.get(state.floor, undo_states.origin)
        undo_states.origin = _UndoState.of(state) if is_before_steps else before
    elif isinstance(event, e.InputReceived) and is_before_steps and undo_states.origin is not None:
        unread = [*undo_states.origin.unread, event]
        undo_states.origin = replace(undo_states.origin, unread=unread, answered=False, output=None)
    elif isinstance(event, e.InputReceived) and undo_states.during_undo is not None:
        undo_states.during_undo.append(event)
    elif isinstance(event, e.UndoRequested):
        undo_states.during_undo = [] if undo_states.during_undo is None else undo_states.during_undo
    elif isinstance(event, e.ResultReplaced):
        # A fork with a replaced result differs from its parent's states.
        undo_states.after = {}
        if undo_states.origin is not None:
            undo_states.origin = replace(undo_states.origin, messages=list(state.messages))
    elif isinstance(event, (e.StepCompleted, e.StepSkipped, e.TaskReopened, e.AgentChanged)):
        _note_end_of_step(event, state, undo_states)


def _note_end_of_step(event: e.Event, state: TaskState, undo_states: _UndoStates) -> None:
    if not state.steps or state.step is not None:
        return
    index, undo_state = state.steps[-1].index, _UndoState.of(state)
    before = undo_states.after.get(index)
    results = undo_states.results
    is_known = before is not None and _without_results(before.unread, results) == _without_results(
        undo_state.unread, results
    )
    if isinstance(event, e.TaskReopened) and before is not None and not is_known:
        undo_state = before  # an undo of the step that reads later messages removes them too
    undo_states.after[index] = undo_state
    if len(state.steps) == state.floor and undo_state is not before:
        # A fork cannot go back to a point before the end of the step in which it began.
        undo_states.origin = undo_state


def _restored(task: str, event: e.Rewound, state: TaskState, undo_states: _UndoStates) -> Iterator[Violation]:
    """Check that after an undo the state is that at the end of the target step."""
    if state.graph is not None:
        remaining = [step.id for step in state.steps if step.id in event.steps]
        if remaining:
            yield Violation(
                "undo_restores", task, event.seq, f"{remaining} were taken back and are still there"
            )
        return
    expected = undo_states.origin if event.to == state.floor else undo_states.after.get(event.to)
    if len(state.steps) != event.to:
        yield Violation(
            "undo_restores", task, event.seq, f"{len(state.steps)} steps are left, not {event.to}"
        )
    if expected is None:
        return
    # Guardrails judge input once, so it is read again in their version.
    expected = replace(expected, unread=[as_judged(state, received) for received in expected.unread])
    if undo_states.during_undo:
        unread = [*expected.unread, *undo_states.during_undo]
        expected = replace(expected, unread=unread, answered=False, output=None)
    actual = _UndoState.of(state)
    _disregard_results(expected, actual, undo_states.results)
    for item in fields(_UndoState):
        then, now = getattr(expected, item.name), getattr(actual, item.name)
        if then != now:
            text = f"back after step {event.to}, {item.name} is {now!r} and was {then!r}"
            yield Violation("undo_restores", task, event.seq, text)


def _disregard_results(expected: _UndoState, actual: _UndoState, results: set[int]) -> None:
    """Remove the results of background calls, which `delivered_once` checks and which invalidate an answer."""
    if any(received.seq in results for received in actual.unread):
        expected.answered, expected.output = False, None
    for each in (expected, actual):
        each.unread = _without_results(each.unread, results)


def _without_results(unread: list[e.InputReceived], results: set[int]) -> list[e.InputReceived]:
    """Return the input without results of background calls."""
    return [received for received in unread if received.seq not in results]


def refold(journal: JournalOf, live: TaskState) -> Iterator[Violation]:
    """Check that a runner's state in memory equals the folded state of the journal."""
    folded = start(journal.task, journal.history)
    folded.history_untrusted, folded.history_exposed = journal.history_untrusted, journal.history_exposed
    for epoch, event in journal.entries:
        apply(folded, event, epoch)
    if folded.seq != live.seq:
        yield Violation("refold", journal.task, live.seq, f"the journal ends at event {folded.seq}")
        return
    for item in fields(TaskState):
        actual, expected = getattr(live, item.name), getattr(folded, item.name)
        if item.name == "history":
            actual, expected = list(actual), list(expected)
        if actual != expected:
            text = f"{item.name} is {actual!r} in memory and {expected!r} by the journal"
            yield Violation("refold", journal.task, live.seq, text)


def fork_equals_parent(fork: JournalOf, parent: JournalOf) -> Iterator[Violation]:
    """Check that a fork equals its parent event by event up to its point, and the next event names the parent."""
    for (_, event), (_, original) in zip(fork.entries[: fork.shared], parent.entries, strict=False):
        if event != original or event.time != original.time:
            yield Violation("fork_equals_parent", fork.task, event.seq, f"{event!r} is not {original!r}")
    if len(fork.entries) <= fork.shared:
        yield Violation("fork_equals_parent", fork.task, fork.shared, "it has no event of its own")
        return
    first = fork.entries[fork.shared][1]
    if not isinstance(first, e.TaskForked) or first.parent != parent.task:
        text = f"its first own event is {first.kind}, not a fork of {parent.task}"
        yield Violation("fork_equals_parent", fork.task, first.seq, text)
