"""`apply(state, event)`, the only place where state changes. Each rule costs O(1), and an undo O(n) for n undone steps.

    event --> apply --> common to all events: sequence, epoch, driven time, progress
                 |
                 +----> RULES of `schedule`, if the task has a graph and the event differs there
                 +----> _RULES here, for all other events; those of requests to stop are in `core.events.control`
                            |
                            +----> `model_calls`, for the requests of both

State grows in place. `TaskState` has the task, with `step` for the step under way and `steps` for those that ended.
`StepState` has its calls and its request. Open calls are indexed (`StepState.open`), so rules never walk through the
past. The tables of states are in `docs/architecture.md`. An event that no table allows is an `IllegalEvent`, and the
state must not be used after it. `apply` trusts only the order of the journal, which the store guards.

Example, one step with a call, and the change by each event:

    task_created      unread input
    step_started      the input becomes a message; `step` is s1
    model_started     its request is begun
    model_returned    the answer is a message, its call s1-0 is open
    tool_started      s1-0 is begun
    tool_ended        s1-0 is ended; it was the last open call, so its results are a message
    step_completed    s1 moves to `steps` with a checkpoint, `step` is None

Undo. A step that ends keeps a `Checkpoint` of lengths, not copies. `Rewound` cuts the conversation to the length in the
checkpoint of the step that stays. It drops the steps after it and begins a new branch, so that new steps get new ids. A
list that was handed out is replaced, never cut, so that a view of the old conversation does not change.

Invariant: the same events give the same state, at any pace and in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from treadle.core import events as e
from treadle.core import origins
from treadle.core.events import IllegalEvent, control
from treadle.core.extra_state import ExtraState, Writer
from treadle.core.framing import nonce_of
from treadle.core.graph import Graph
from treadle.core.ids import base_call_id, is_undo, undone_call
from treadle.core.messages import Message, Text, ToolCall, ToolResult
from treadle.core.observation import EMPTY_OUTPUT, answer_text, as_text
from treadle.core.render import input_message, results
from treadle.core.rules import (
    answers,
    approvals,
    deferring,
    guardrails,
    handoffs,
    model_calls,
    schedule,
    sleeps,
    undo,
)
from treadle.core.state import (
    TaskState,
    UndoState,
    change_extra_state,
    not_allowed,
    not_running,
    take_back_answer,
)
from treadle.core.steps import CallState, Checkpoint, FailedChild, StepState, repeat_call

E = TypeVar("E", bound=e.Event)


INVALID_OUTPUT = "invalid_output"
"""The kind of failure of a step whose answers repeatedly did not fit the agent's output type."""

FAILURE_POLICY = "failure policy"
"""The requester of a pause after a failure."""


def apply(state: TaskState, event: e.Event, epoch: int = 0) -> None:
    """Change the state by one event. `epoch` is that of its record. Driven time is counted per epoch."""
    kind, seq = event.__class__, event.seq
    if seq != state.seq + 1:
        raise IllegalEvent(f"task {state.task_id}: event {seq} cannot follow event {state.seq}")
    if state.ended is not None and kind not in _AFTER_THE_END:
        raise IllegalEvent(f"task {state.task_id}: {event.kind} after the task ended")
    state.seq, time = seq, event.time
    if epoch != state.epoch:
        state.epoch = epoch
    elif not state.in_line:
        state.driven += time - state.time
    state.time = time
    if state.progress != epoch and kind not in _NO_PROGRESS:
        state.progress = epoch
    if state.graph is None or (rule := schedule.RULES.get(kind)) is None:
        _RULES[kind](state, event)
    else:
        rule(state, state.graph, event)


def _change(state: TaskState, event: e.Event) -> None:
    """Change the state by the known part of an event."""
    if state.graph is not None and (rule := schedule.RULES.get(type(event))) is not None:
        rule(state, state.graph, event)
    else:
        _RULES[type(event)](state, event)


def fold(state: TaskState, events: Iterable[e.Event], epoch: int = 0) -> TaskState:
    """Apply events in order and return the state."""
    for event in events:
        apply(state, event, epoch)
    return state


def begin_with_history(
    state: TaskState,
    messages: list[Message],
    *,
    summarised: bool,
    untrusted: tuple[str, ...] = (),
    exposed: tuple[str, ...] = (),
) -> None:
    """Let a new task begin after the messages of its thread, which its journal only refers to.

    Args:
        state: a task before its first message of its own.
        messages: the messages of its thread; shared, and never changed.
        summarised: whether the first of them is a summary of older ones.
        untrusted: untrusted origins in the tasks of these messages.
        exposed: declared effects of the tools whose results these tasks have seen.
    """
    state.history, state.summarised = messages, summarised
    state.history_untrusted, state.history_exposed = untrusted, exposed
    state.messages = list(messages)
    state.own_from = state.origin.messages = len(messages)


# ------------------------------------------------------------------------------------------ the task


def _task_created(state: TaskState, event: e.TaskCreated) -> None:
    state.created = event.time
    state.incarnation = event.incarnation
    state.frame_key = event.frame_key or f"{event.thread} {event.time}"
    state.agent = state.created_for = event.agent
    state.thread, state.base = event.thread, event.base
    state.fingerprint, state.options = event.fingerprint, event.options
    if event.extra_state is not None:
        state.extra_state = ExtraState(event.extra_state)
    state.parent, state.parent_call, state.depth = event.parent, event.parent_call, event.depth
    state.untrusted, state.exposed = event.untrusted, event.exposed
    state.input = event.input
    state.unread.append(e.InputReceived(event.input, seq=event.seq, time=event.time))
    state.origin = _checkpoint(state)


def _task_forked(state: TaskState, event: e.TaskForked) -> None:
    _remove_closing_messages(state)  # the parent's end is not part of its fork's conversation
    state.created = event.time
    state.fork_changes = _fork_changes(state, event)
    state.forked_from, state.fork_seq = event.parent, event.seq - 1
    state.parent, state.parent_call, state.depth = None, None, 0
    state.created_for, state.thread, state.base = event.agent, event.thread, 0
    if event.fingerprint or state.team is None:
        if event.fingerprint and event.fingerprint != state.fingerprint:
            state.instructions = None
            _change_version(state, event.fingerprint)
        handoffs.begin_anew(state, event)
    _override(state, event.override)
    if event.options is not None:
        state.options = event.options
    # A step under way at the fork point is the parent's: its fork cannot undo it.
    state.floor = len(state.steps) + (state.step is not None)
    if state.graph is not None:
        schedule.inherit(state.graph)
    # Requests to the parent (stop, pause, end) are not requests to its fork.
    state.pausing = state.interrupting = state.cancelling = state.in_line = state.shutdown = False
    state.ended = state.undo = None
    if state.step is None or not state.step.model_call.final:
        state.limit = None  # else it is the reason why only an answer was requested
    state.attempt, state.thread_version, state.driven = 1, 0, 0
    state.began = False
    if not state.answered:
        state.output, state.output_text = None, ""
    state.end_reasons = ()
    state.covers = 0
    approvals.forget(state)
    answers.forget(state)
    sleeps.forget(state)
    state.tickets.clear()
    model_calls.forget_permits(state)
    guardrails.forget(state)
    state.own_from = len(state.messages)
    state.origin = _checkpoint(state)


def _fork_changes(state: TaskState, event: e.TaskForked) -> tuple[e.ForkChange, ...]:
    """Return the changes of a fork in the agent of its parent."""
    changes: list[e.ForkChange] = []
    if event.fingerprint and event.fingerprint != state.fingerprint:
        changes.append(e.ForkChange("agent", event.agent))
    before, now = state.override or e.AgentOverride(), event.override or e.AgentOverride()
    if now.instructions is not None and now.instructions != before.instructions:
        changes.append(e.ForkChange("instructions", now.instructions))
    if now.model is not None and now.model != before.model:
        changes.append(e.ForkChange("model", now.model))
    return tuple(changes)


def _override(state: TaskState, override: e.AgentOverride | None) -> None:
    """Apply a fork's overrides of instructions and model, or return to those of its agent."""
    if override is not None and not override.agent:
        override = replace(override, agent=state.agent)
    before, state.override = state.override, override
    was, now = [
        each if each is not None and each.agent == state.agent else e.AgentOverride()
        for each in (before, override)
    ]
    if now.instructions != was.instructions:
        state.instructions = None  # they are recorded once the fork is driven
    if now.model != was.model:
        _change_version(state, state.fingerprint)


def _thread_awaited(state: TaskState, event: e.ThreadAwaited) -> None:
    state.in_line = True


def _thread_entered(state: TaskState, event: e.ThreadEntered) -> None:
    state.in_line = False
    if event.base is not None:
        state.base = event.base
    if event.untrusted:
        state.untrusted = origins.merged(state.untrusted, event.untrusted)
    if event.exposed:
        state.exposed = origins.merged(state.exposed, event.exposed)


def _summary_requested(state: TaskState, event: e.SummaryRequested) -> None:
    state.covers, state.base = event.covers, event.version


def _messages_imported(state: TaskState, event: e.MessagesImported) -> None:
    state.messages.extend(event.messages)
    state.untrusted = origins.merged(state.untrusted, origins.of_messages(event.messages))
    state.unread.clear()
    state.origin, state.began = _checkpoint(state), True


def _instructions_set(state: TaskState, event: e.InstructionsSet) -> None:
    state.instructions = event.text
    if event.changes is not None:
        change_extra_state(state, event.changes, Writer("instructions", "", ((), 0), event.seq))


def _version_changed(state: TaskState, event: e.VersionChanged) -> None:
    _change_version(state, event.fingerprint)


def _agent_changed(state: TaskState, event: e.AgentChanged) -> None:
    handoffs.change(state, event)
    # The move belongs to the end of the step, since undo returns there and forks begin there.
    last = state.steps[-1]
    last.checkpoint, last.ended_seq = _checkpoint(state), event.seq
    if len(state.steps) == state.floor:
        state.origin = _checkpoint(state)


def _change_version(state: TaskState, fingerprint: str) -> None:
    """Continue as another agent, with other tools or choices, and without pending timers."""
    state.fingerprint = fingerprint
    for timer in state.unfired():
        timer.tries.retry_at = None  # the timer belonged to a request of the former agent
    for _, call in state.open_model_calls():
        call.offered = None


def _options_changed(state: TaskState, event: e.OptionsChanged) -> None:
    state.options = event.options
    state.limit = None


def _input_received(state: TaskState, event: e.InputReceived) -> None:
    state.unread.append(event)
    if state.limit == "repeats":
        state.limit = None  # new input has arrived
    if state.answered:
        # Input after the answer and before the end reopens the task.
        take_back_answer(state)
        if state.graph is not None:
            schedule.begin_again(state, state.graph)
    if not state.began and not state.under_way() and len(state.steps) == state.floor:
        # Input before the first step belongs to the beginning of a task, or a fork.
        state.origin = replace(state.origin, unread=(*state.origin.unread, event))
    if state.forked_from is not None and not state.began:
        text = "".join([part.text for part in event.parts if isinstance(part, Text)])
        state.fork_changes += (e.ForkChange("input", text),)


def _input_edited(state: TaskState, event: e.InputEdited) -> None:
    step = state.step
    if step is not None and step.unasked and not step.calls:
        # The step has read its input and got no answer, so it reads the new input instead.
        state.messages, step.input, step.read = state.messages[: step.first_message], (), ()
        if state.arrived:
            state.unread = deferring.returned_results(
                state, step.started_seq - 1, {each.id for each in state.steps}
            )
    arrivals = [received for received in state.unread if deferring.is_arrival(state, received)]
    state.unread = [e.InputReceived(event.parts, seq=event.seq, time=event.time), *arrivals]


# ------------------------------------------------------------------------------------------- a step


def _steps_planned(state: TaskState, event: e.StepsPlanned) -> None:
    state.graph = state.graph or Graph()
    schedule.plan(state, state.graph, event.steps, None)


def _step_started(state: TaskState, event: e.StepStarted) -> None:
    step, has_answer = state.step, False
    if step is not None and step.id == event.step:
        source = step.error.source if step.error is not None else None
        failed_in_call = source in ("tool", "subagent")
        if step.error is not None and failed_in_call and step.error.kind != "unknown":
            _propose_again(state, step)
        has_answer = failed_in_call or (source == "guardrail" and step.model_call.status == "answered")
        if step.error is not None and step.error.kind == INVALID_OUTPUT:
            _ask_again(state, step)
        step.attempt, step.status, step.error = event.attempt, "running", None
    elif step is not None:
        raise IllegalEvent(
            f"task {state.task_id}: step {event.step} starts while step {step.id} is under way"
        )
    else:
        state.step = step = StepState(event.step, event.index, event.attempt)
        if state.team is not None:
            step.agent = handoffs.step_agent(state, state.team)
        step.first_message, step.started, step.started_seq = len(state.messages), event.time, event.seq
    state.error, state.began = None, True
    if step.open or has_answer:
        return  # no message may separate calls from their results, repeated calls included
    if state.unread:
        step.model_call.offered = None
        if state.arrived:
            deferring.note_read(state, event.seq)
    for received in state.unread:
        state.messages.append(input_message(received, state.frame_key))
        step.input += received.parts
        step.read += (received,)
    state.unread.clear()


def _ask_again(state: TaskState, step: StepState) -> None:
    """Ask the model for another answer, after the wrong one and its defect in the conversation."""
    step.model_call.status, step.model_call.offered = "proposed", None
    step.typed, step.answered_calls, state.rejected = None, len(step.calls), 0


def _model_returned(state: TaskState, event: e.ModelReturned) -> None:
    step, request = model_calls.finish(state, event)
    step.text, step.text_calls = event.message.text, event.text_calls
    _take_answer(state, step, event.message, request.offered)
    step.typed = event.typed
    if event.typed is not None:
        _read_as_typed(state, step, event.typed)


def _take_answer(
    state: TaskState, step: StepState, message: Message, offered: tuple[str, ...] | None
) -> None:
    step.answer_at, step.answered_calls = len(state.messages), len(step.calls)
    state.messages.append(message)
    for part in message.parts:
        if type(part) is ToolCall:
            call = CallState(part.id, step.id, part.name, part.arguments, part.problem, offered=offered)
            call.frame = nonce_of(state.frame_key, part.id)
            call.before = state.tool_calls
            state.tool_calls += 1
            step.calls.append(call)
            step.open[call.id] = call


def _route_chosen(state: TaskState, event: e.RouteChosen) -> None:
    step = _running(state, event)
    if step.routed or not step.unasked or step.model_call.attempt:
        raise IllegalEvent(f"task {state.task_id}: {event.kind} for step {step.id}, which is under way")
    step.routed = True
    if event.message is not None:
        step.model_call.status = "answered"
        _take_answer(state, step, event.message, None)


def _read_as_typed(state: TaskState, step: StepState, typed: e.TypedAnswer) -> None:
    giving = step.open.get(typed.call or "")
    if giving is not None:
        answering = 0
        for call in step.open.values():
            call.answers = call.name == giving.name
            call.before -= answering
            answering += call.answers
        state.tool_calls -= answering
    if typed.problem is not None and not step.model_call.final:
        state.rejected += 1
        if giving is None:
            state.messages.append(Message("user", (Text(typed.problem),)))


def _model_failed(state: TaskState, event: e.ModelFailed) -> None:
    step, request = model_calls.fail(state, event)
    if request.status == "failed":
        step.error = event.error


def _call_edited(state: TaskState, event: e.CallEdited) -> None:
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    if call.status != "proposed":
        raise not_allowed(state, event, call.status)
    call.arguments, call.problem, call.replaced = event.arguments, None, 0
    approvals.clear(state, call)


def _tool_started(state: TaskState, event: e.ToolStarted) -> None:
    if event.undoes is not None:
        undone = _call_being_undone(state, event, event.undoes, "none", "not_happened")
        undone.undo_status, undone.undo_attempt, undone.undo_error = "begun", event.attempt, None
        return
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    if call.status != "proposed" and call.status != "parked":
        raise not_allowed(state, event, call.status)
    if call.permit is not None:
        approvals.use(state, call, call.permit)
    call.status, call.attempt, call.effect, call.undo = "begun", event.attempt, event.effect, event.undo
    call.label, call.exposed = event.label, event.exposed
    call.host = event.host
    if event.child is None or event.child != call.child:
        call.rewritten = None  # a task keeps its first input
    if not call.started:
        call.started, call.began = event.time, call.began or event.seq
    if event.child is not None:
        if call.child is None:
            call.child, call.since = event.child, state.driven
        call.began_at = state.driven
        state.children.setdefault(event.child, ())


def _arguments_rewritten(state: TaskState, event: e.ArgumentsRewritten) -> None:
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    if call.status != "begun":
        raise not_allowed(state, event, call.status)
    call.rewritten = event.arguments


def _tool_stopped(state: TaskState, event: e.ToolStopped) -> None:
    if state.undo is not None and is_undo(event.call):
        undone = _call_being_undone(state, event, undone_call(event.call), "begun")
        undone.undo_status, undone.undo_error = "lost", event.error.message if event.error else event.reason
        undone.doubted = event.time
        event.in_doubt = True
        return
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    may_stop = call.status == "begun" or (call.status == "parked" and event.failed is not None)
    if not may_stop or event.failed not in (None, call.child):
        raise not_allowed(state, event, call.status)
    call.stopped, call.stopped_before = event.error, call.stopped
    if call.child is not None:
        _child_stopped(state, call, call.child, event)
        return
    if event.reason == "error":
        call.is_halfway = False
    else:
        call.cut_off += 1
    event.in_doubt = call.effect == "write"
    call.status, call.doubted = "lost" if event.in_doubt else "proposed", event.time


def _child_stopped(state: TaskState, call: CallState, child: str, event: e.ToolStopped) -> None:
    state.driven += event.unseen
    state.children[child] = event.spent or state.children[child]
    if event.failed is None:
        call.status = "parked"
        call.ran += state.driven - call.began_at
        return
    call.status, call.child, call.ran = "proposed", None, 0
    call.failed_children += (FailedChild(child, event.error),)
    call.acted = call.acted or not event.harmless


def _outcome_settled(state: TaskState, event: e.OutcomeSettled) -> None:
    if state.undo is not None and is_undo(event.call):
        undone = _call_being_undone(state, event, undone_call(event.call), "lost")
        undone.undo_status = "done" if event.verdict == "happened" else "not_happened"
        return
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    in_doubt = call.status in ("lost", "unresolved") or (call.status == "proposed" and call.cut_off)
    if not in_doubt or call.outcome is not None:
        raise not_allowed(state, event, call.status)
    # If the tool was not entered, the state is that before this attempt.
    call.status, call.stopped = "proposed", call.stopped_before if event.by == "runner" else None
    call.cut_off = max(0, call.cut_off - 1)
    if event.verdict == "happened":
        # Its end follows as a separate event, and it must not start until then.
        call.status, call.output = "unresolved", event.output
        call.outcome = "ok"


def _outcome_unresolved(state: TaskState, event: e.OutcomeUnresolved) -> None:
    _, call = _open_call(state, event.call)
    event.tool_name = call.name
    if call.status not in ("lost", "unresolved") or call.outcome is not None:
        raise not_allowed(state, event, call.status)
    call.status = "unresolved"
    if event.error is not None:
        call.stopped = event.error


def _tool_ended(state: TaskState, event: e.ToolEnded) -> None:
    if state.undo is not None and is_undo(event.call):
        undone = _call_being_undone(state, event, undone_call(event.call), "begun", "lost", "not_happened")
        undone.undo_status = "done" if event.outcome == "ok" else "failed"
        undone.undo_error = event.error.message if event.error else None
        return
    step, call = _open_call(state, event.call)
    event.tool_name = call.name
    if state.ended is not None and call.id not in state.completed:
        raise IllegalEvent(f"task {state.task_id}: {event.kind} of {call.id} after the task ended")
    if call.status == "sleeping":
        sleeps.close_call(state, call)
    call.status, call.outcome, call.ended = "ended", event.outcome, event.time
    call.output, call.observation, call.display, call.error = (
        event.output,
        event.observation,
        event.display,
        event.error,
    )
    call.sources, call.artifacts = event.sources, event.artifacts
    call.exposed = event.exposed or call.exposed
    if event.cut:
        call.cut, call.whole = True, event.whole
        state.cut[base_call_id(call.id)] = call
    if event.label is not None:
        call.label = event.label
    if event.report is not None:
        call.report = event.report
        if not event.report.ran:
            call.host = None
    if event.changes is not None:
        _change_by_call(state, step, call, event.changes)
    if event.outcome == "ok":
        call.cut_off = 0
    elif event.outcome in ("timeout", "abandoned", "unknown"):
        call.cut_off += 1
    if call.child is not None:
        state.children[call.child] = event.spent or state.children[call.child]
        state.driven += event.unseen
        if event.harmless and not call.acted:
            call.effect = "read"
    if call.ticket is not None and deferring.end(state, step, call, call.ticket, event):
        if call.ticket.arrival is not None:
            _resume_for_arrival(state)
        return
    del step.open[call.id]
    if state.open_approvals:
        state.open_approvals.pop(call.id, None)
    if state.questions:
        answers.close_call(state, call)
    if state.graph is not None:
        schedule.call_ended(state, state.graph.nodes[step.id], step)
    elif not step.open:
        state.messages.append(results(step.calls[step.answered_calls :]))


def _resume_for_arrival(state: TaskState) -> None:
    """Let a task continue with an arrived result. An answered task waits until no ticket is open."""
    if state.ended is not None:
        return
    if state.limit == "repeats":
        state.limit = None
    if state.answered and not state.deferred:
        take_back_answer(state)


def _call_deferred(state: TaskState, event: e.CallDeferred) -> None:
    step, call = _open_call(state, event.call)
    event.tool_name = call.name
    deferring.defer(state, step, call, event)
    if event.changes is not None:
        _change_by_call(state, step, call, event.changes)
    if state.graph is None and not step.open:
        state.messages.append(results(step.calls[step.answered_calls :]))


def _change_by_call(state: TaskState, step: StepState, call: CallState, change: e.StateChange) -> None:
    node = state.node_of(step.id)
    path = node.path if node is not None else (step.index,)
    place = next(place for place, other in enumerate(step.calls) if other is call)
    call.changes = change
    change_extra_state(state, change, Writer(call.id, step.id, (path, place), call.began))


def _state_overwritten(state: TaskState, event: e.StateOverwritten) -> None:
    if not state.overwritten:
        raise IllegalEvent(f"task {state.task_id}: {event.kind}, and no two writes met")
    del state.overwritten[0]


def _step_completed(state: TaskState, event: e.StepCompleted) -> None:
    step = _running(state, event)
    if event.direct:
        text = "null" if event.output is None else as_text(event.output) or EMPTY_OUTPUT
        state.messages.append(Message("assistant", (Text(text),)))
    step.status, step.last, step.output = "completed", event.last, event.output
    if event.reason is not None:
        state.reasons.append(event.reason)
    if event.last:
        state.answered, state.output, state.rejected = True, event.output, 0
        state.output_text = answer_text(event.output)
    elif event.next_agent is not None:
        handoffs.ask(state, event.next_agent)
    _close(state, step, event)


def _step_failed(state: TaskState, event: e.StepFailed) -> None:
    step = _running(state, event)
    step.status, step.error, state.error = "failed", event.error, event.error
    if state.checks:
        guardrails.consume_refusals(state, step.id)


def _step_skipped(state: TaskState, event: e.StepSkipped) -> None:
    step = state.step
    if step is None or step.id != event.step or step.status != "failed":
        raise IllegalEvent(f"task {state.task_id}: step {event.step} has not failed, so it cannot be skipped")
    step.status = "skipped"
    state.error, state.rejected = None, 0
    if len(state.messages) > step.first_message and state.messages[-1].role == "assistant":
        # The answer was rejected, and a model must not be asked to answer its own message.
        state.messages = state.messages[:-1]
    _close(state, step, event)


def _close(state: TaskState, step: StepState, event: e.Event) -> None:
    step.ended, step.ended_seq = event.time, event.seq
    step.checkpoint = _checkpoint(state)
    state.steps.append(step)
    state.step, state.began = None, True
    if len(state.steps) == state.floor:
        # The fork has ended the step that its parent began, so it cannot go back further.
        state.origin = step.checkpoint


def _checkpoint(state: TaskState) -> Checkpoint:
    """Return a checkpoint of the present position."""
    return Checkpoint(
        len(state.messages),
        state.turn,
        state.tool_calls,
        tuple(state.unread),
        len(state.reasons),
        state.rejected,
        state.team,
    )


def _result_replaced(state: TaskState, event: e.ResultReplaced) -> None:
    call = state.find_call(event.call)
    if call is None:
        raise IllegalEvent(f"task {state.task_id}: no call {event.call} to replace the result of")
    event.tool_name = call.name
    text = Text(as_text(event.output) or EMPTY_OUTPUT)
    new = ToolResult(base_call_id(call.id), call.name, (text,), label=call.label, frame=call.frame)
    state.messages = guardrails.with_result(state.messages, new)
    node = state.node_of(call.step)
    if node is not None:
        node.messages = guardrails.with_result(node.messages, new)
    call.output, call.outcome, call.guarded = event.output, "ok", False
    call.observation = call.display = call.error = call.whole = None
    call.cut = False
    state.cut.pop(base_call_id(call.id), None)
    call.sources = call.artifacts = ()
    state.fork_changes += (e.ForkChange("result", text.text, call.name, call.id),)


# ------------------------------------------------------------------------------------------ control


def _worker_failed(state: TaskState, event: e.WorkerFailed) -> None:
    state.error = event.error


def _answer_finalized(state: TaskState, event: e.AnswerFinalized) -> None:
    state.finalized = state.finalized or (event.by is None and event.inbox is None)
    if event.output is not None:
        state.output, state.output_text = event.output, answer_text(event.output)


def _limit_reached(state: TaskState, event: e.LimitReached) -> None:
    state.limit, state.limit_detail = event.limit, event.detail
    state.exhausted = not event.room


def _pause_requested(state: TaskState, event: e.PauseRequested) -> None:
    state.pausing, state.stop_reason = True, event.reason
    if event.by == FAILURE_POLICY:
        for step in state.under_way():
            step.paused = step.paused or state.graph is None or step.status == "failed"


def _resumed(state: TaskState, event: e.Resumed) -> None:
    if state.pausing:
        model_calls.allow_asked(state)
    state.pausing = state.interrupting = state.shutdown = False
    state.stop_reason = None


def _refuse_without_graph(state: TaskState, event: e.Event) -> None:
    raise IllegalEvent(f"task {state.task_id}: {event.kind}, and its steps are not functions")


def _value_kept(state: TaskState, event: e.ValueKept) -> None:
    if not event.call:
        _refuse_without_graph(state, event)
    answers.keep(state, event)


def _ignore(state: TaskState, event: e.Event) -> None:
    pass


def _task_ended(state: TaskState, event: e.TaskEnded) -> None:
    closing = schedule.leave(state, state.graph) if state.graph is not None else []
    state.ended, state.end_seq, state.end_time = event.state, event.seq, event.time
    if state.checks:
        guardrails.drop_open(state)
    state.thread_version = event.thread_version
    state.error = event.error
    state.end_reasons = event.reasons
    state.pausing = state.interrupting = state.shutdown = False
    if event.state in ("completed", "degraded"):
        state.output, state.output_text = event.output, answer_text(event.output)
    if event.kept or event.state in ("completed", "degraded"):
        closing += [
            input_message(received, state.frame_key) for received in state.unread
        ]  # unread input stays in the thread
        if event.state in _NOTE:
            closing.append(Message("assistant", (Text(f"[This task {_NOTE[event.state]}.]"),)))
        state.messages += closing
        state.closing = len(closing)


_NOTE = {"failed": "failed before it had an answer", "cancelled": "was cancelled"}


def _remove_closing_messages(state: TaskState) -> None:
    """Remove the messages that the end of a task added to its conversation."""
    if state.closing:
        state.messages = state.messages[: -state.closing]
        state.closing = 0


def _task_reopened(state: TaskState, event: e.TaskReopened) -> None:
    if state.ended is None:
        raise IllegalEvent(f"task {state.task_id}: {event.kind} before the task ended")
    _remove_closing_messages(state)
    state.ended, state.attempt, state.thread_version = None, event.attempt, 0
    state.limit = state.error = None
    step = state.step
    if step is not None and step.status == "running":
        step.error = None  # after a tolerated failure, the model is asked again
        if step.typed is not None and step.typed.problem is not None and not step.open:
            _ask_again(state, step)
    if state.answered and state.steps[-1].model_call.final:
        _drop_forced_answer(state, state.steps[-1])
    elif state.answered and state.unread and state.arrived:
        take_back_answer(state)
    elif not state.answered:
        state.output, state.output_text = None, ""
    if state.graph is not None:
        schedule.reopen(state, state.graph)


def _drop_forced_answer(state: TaskState, step: StepState) -> None:
    """Drop an answer that a limit forced, so that the task continues from before it."""
    state.messages = state.messages[: step.answer_at]
    state.answered, state.output, state.output_text = False, None, ""
    step.last = False
    if state.reasons:
        state.reasons.pop()
    step.checkpoint = _checkpoint(state)
    if len(state.steps) == state.floor:
        state.origin = step.checkpoint


def _propose_again(state: TaskState, step: StepState) -> None:
    """Replace each failed call by a new one. Finished siblings keep their results."""
    failed = [call for call in step.calls if call.status == "ended" and call.failed]
    if not failed or step.open:
        return
    state.messages = state.messages[:-1]
    if state.arrived:
        deferring.withdraw(state, step)
    for call in failed:
        origins.keep_failed(step, call)
        again = repeat_call(step, call)
        again.before = state.tool_calls
        deferring.carry_over(state, call, again)
        state.tool_calls += 1


# --------------------------------------------------------------------------------------------- undo


def _undo_requested(state: TaskState, event: e.UndoRequested) -> None:
    queue = [call for call_id in event.calls if (call := state.find_call(call_id)) is not None]
    for call in queue:
        if call.undo_status == "failed":
            call.undo_status = "skipped" if event.forced else "none"
    since = state.undo.since if state.undo is not None else event.seq
    state.undo = UndoState(event.to, queue, event.steps if state.graph is not None else (), since)


def _rewound(state: TaskState, event: e.Rewound) -> None:
    keep, gone = event.to, set[str]()
    while state.steps and state.steps[-1].index > keep:
        gone.add(state.steps.pop().id)
    if state.step is not None and state.step.index > keep:
        gone.add(state.step.id)
        state.step = None
    last = state.steps[-1] if state.steps else None
    checkpoint = last.checkpoint if last is not None and len(state.steps) > state.floor else state.origin
    if checkpoint is None:
        raise IllegalEvent(f"task {state.task_id}: step {keep} has no checkpoint to go back to")
    # Copied, not cut, since views of the list that were handed out must not change.
    state.messages = state.messages[: checkpoint.messages]
    if state.team is not checkpoint.team:
        handoffs.go_back(state, checkpoint.team)
    state.turn, state.tool_calls, state.rejected = checkpoint.turn, checkpoint.tool_calls, checkpoint.rejected
    since = state.undo.since if state.undo is not None else event.seq
    state.unread = [*checkpoint.unread, *[received for received in state.unread if received.seq > since]]
    if state.arrived:
        _return_arrivals(state, last)
    del state.reasons[checkpoint.reasons :]
    undo.end(state, event, gone, last)


def _return_arrivals(state: TaskState, last: StepState | None) -> None:
    """Let the next step read the results of kept steps that only undone steps had read."""
    others = [received for received in state.unread if not deferring.is_arrival(state, received)]
    after = max(last.ended_seq if last is not None else 0, state.fork_seq)
    again = deferring.returned_results(state, after, {step.id for step in state.steps})
    state.unread = sorted([*others, *again], key=attrgetter("seq"))


# ------------------------------------------------------------------------------------------- finding


def _running(state: TaskState, event: Any) -> StepState:
    step = state.step
    if step is None or step.id != event.step or step.status != "running":
        raise not_running(state, event)
    return step


def _open_call(state: TaskState, call_id: str) -> tuple[StepState, CallState]:
    step = state.step
    if step is not None:
        call = step.open.get(call_id)
        if call is not None:
            return step, call
    else:
        for step in state.under_way():
            if call_id in step.open:
                return step, step.open[call_id]
    if call_id in state.deferred:
        call = state.deferred[call_id]
        return next(
            step for step in (*state.under_way(), *reversed(state.steps)) if step.id == call.step
        ), call
    raise IllegalEvent(f"task {state.task_id}: call {call_id} is not open")


def _unknown_event(state: TaskState, event: e.UnknownEvent) -> None:
    if state.unknown is None and not event.inert:
        state.unknown = event
    if event.known is not None:
        _change(state, event.known)


def _call_being_undone(state: TaskState, event: e.Event, call_id: str, *statuses: str) -> CallState:
    """Return a call whose undo has one of these statuses, and name its tool in the event."""
    queue = state.undo.queue if state.undo is not None else []
    call = next((call for call in queue if call.id == call_id), None)
    if call is None:
        raise IllegalEvent(f"task {state.task_id}: call {call_id} is not being undone")
    event.tool_name = call.name
    if call.undo_status not in statuses:
        raise not_allowed(state, event, call.undo_status)
    return call


_RULES: dict[type[e.Event], Callable[[TaskState, Any], None]] = {
    **dict.fromkeys(e.COMMANDS.values(), _ignore),  # unless a rule follows
    **control.RULES,
    e.TaskCreated: _task_created,
    e.TaskForked: _task_forked,
    e.ThreadAwaited: _thread_awaited,
    e.ThreadEntered: _thread_entered,
    e.SummaryRequested: _summary_requested,
    e.MessagesImported: _messages_imported,
    e.InstructionsSet: _instructions_set,
    e.VersionChanged: _version_changed,
    e.AgentChanged: _agent_changed,
    e.OptionsChanged: _options_changed,
    e.InputReceived: _input_received,
    e.InputEdited: _input_edited,
    e.StepsPlanned: _steps_planned,
    e.StepStarted: _step_started,
    e.RouteChosen: _route_chosen,
    e.ModelRequested: _refuse_without_graph,
    e.CallRequested: _refuse_without_graph,
    e.ValueKept: _value_kept,
    e.RequestJudged: model_calls.judge,
    e.ModelStarted: model_calls.start,
    e.AnswerHeld: guardrails.hold,
    e.GuardrailJudged: guardrails.judge,
    e.ModelReturned: _model_returned,
    e.ModelFailed: _model_failed,
    e.ModelStopped: model_calls.stop,
    e.TimerFired: model_calls.fire,
    e.CallEdited: _call_edited,
    e.CallJudged: approvals.judge,
    e.ApprovalRequested: approvals.request,
    e.ApprovalGiven: approvals.give,
    e.ApprovalDenied: approvals.deny,
    e.ApprovalExpired: approvals.expire,
    e.ApprovalVoided: approvals.void,
    e.SleepStarted: sleeps.begin,
    e.SleepEnded: sleeps.end,
    e.QuestionAsked: answers.ask,
    e.QuestionAnswered: answers.answer,
    e.QuestionExpired: answers.expire,
    e.ToolStarted: _tool_started,
    e.ArgumentsRewritten: _arguments_rewritten,
    e.ToolStopped: _tool_stopped,
    e.OutcomeSettled: _outcome_settled,
    e.OutcomeUnresolved: _outcome_unresolved,
    e.TicketIssued: deferring.issue,
    e.CallDeferred: _call_deferred,
    e.TicketProgressed: deferring.report,
    e.TicketCompleted: deferring.complete,
    e.TicketFailed: deferring.complete,
    e.TicketExpired: deferring.expire,
    e.ToolEnded: _tool_ended,
    e.StateOverwritten: _state_overwritten,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_failed,
    e.StepSkipped: _step_skipped,
    e.WorkerFailed: _worker_failed,
    e.AnswerFinalized: _answer_finalized,
    e.ResultReplaced: _result_replaced,
    e.LimitReached: _limit_reached,
    e.PauseRequested: _pause_requested,
    e.Resumed: _resumed,
    e.CommandRejected: _ignore,
    e.StepRequested: _ignore,
    e.UndoRequested: _undo_requested,
    e.Rewound: _rewound,
    e.TaskEnded: _task_ended,
    e.TaskReopened: _task_reopened,
    e.UnknownEvent: _unknown_event,
}

_NO_PROGRESS: frozenset[type[e.Event]] = frozenset(
    {
        e.ThreadAwaited,
        e.ThreadEntered,
        e.InstructionsSet,
        e.VersionChanged,
        e.StepsPlanned,
        e.StepStarted,
        e.ModelRequested,
        e.CallRequested,
        e.ModelStarted,
        e.ModelStopped,
        e.ToolStarted,
        e.ArgumentsRewritten,
        e.ToolStopped,
        e.OutcomeUnresolved,
        e.TicketIssued,
    }
)
"""Events that each new driver may repeat without making progress."""

_AFTER_THE_END: frozenset[type[e.Event]] = frozenset(
    {
        *(e.TaskReopened, e.TaskForked, e.UnknownEvent, e.ToolEnded),
        *(e.TicketProgressed, e.TicketCompleted, e.TicketFailed),
    }
)
"""Events that may follow the end of a task. For calls these are the progress and the end of background work."""
