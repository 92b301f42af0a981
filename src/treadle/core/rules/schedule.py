"""How events change a graph of steps. The rules of `fold` for tasks of step functions.

States. The table is in `docs/architecture.md`. A step in `Graph.unneeded` is stopped, and then skipped.

    planned --> ready --> running --> completed
                  ^          |
                  |          +------> failed: it runs again, or the steps that wait for it start without it
                  |          +------> skipped: it skipped itself, or no step needs it
    enough of the steps it waits for have ended well (`StepNode.need`)

Order. A step's `path` is its place in the plan. Paths, not the clock, order the starts of ready steps, the messages,
and the ids of planned steps. So a replay at another speed gives the same conversation.

The conversation. A step without parallel steps is `alone`, and its messages join the conversation at once. All others
keep theirs in `StepNode.messages`. Ended steps are in `Graph.unmerged`. The next step that is alone merges them, in
order of path. A step sees the conversation from before the parallel steps began. It also sees the messages of the steps
that it waited for (`unmerged_before`).

Example: `plan` runs alone and plans `a` and `b`, and `sum` after both.

    plan completes        a and b are ready                              conversation: plan
    a, b start            neither is alone; each sees plan               conversation: plan
    b completes, then a   both unmerged; sum is ready                    conversation: plan
    sum starts alone      merges a, then b, although b was faster        conversation: plan a b sum

Invariant: the plan and the outcomes alone determine the view of a step and the order of the conversation.
"""

from __future__ import annotations

from bisect import insort
from collections import ChainMap, Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from treadle.core import events as e
from treadle.core import origins
from treadle.core.extra_state import Writer
from treadle.core.framing import nonce_of
from treadle.core.graph import Graph, MemoEntry, MemoValue, StepNode, StepPath
from treadle.core.ids import asking_id, base_call_id, planned_step_id
from treadle.core.messages import Message, MessageView, Text, ToolCall
from treadle.core.observation import answer_text
from treadle.core.questions import Question
from treadle.core.render import input_message, results
from treadle.core.rules import answers, deferring, guardrails, model_calls, sleeps, undo
from treadle.core.state import TaskState, change_extra_state, running_node
from treadle.core.steps import CallState, ModelCall, StepState, repeat_call

UNNEEDED: Final = "join"
"""`StepSkipped.by` of a step that no other step needs."""

ITSELF: Final = "step"
"""`StepSkipped.by` of a step that skipped itself."""


class InvalidPlan(ValueError):
    """A plan cannot be carried out. The message names the step and the reason."""


# -------------------------------------------------------------------------------------------- plans


def check(steps: Sequence[e.NextStep], earlier: Container[str]) -> None:
    """Raise `InvalidPlan` for steps that wait for unknown steps or in a circle, or that share a name.

    Args:
        steps: the plan.
        earlier: the names of earlier steps.
    """
    names = Counter(step.name for step in steps)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise InvalidPlan(f"two steps of one plan are named {twice!r}")
    for step in steps:
        unknown = [name for name in step.after if name not in names and name not in earlier]
        if unknown:
            raise InvalidPlan(f"step {step.name!r} waits for {unknown[0]!r}, and there is no such step")
        if isinstance(step.join, int) and not 1 <= step.join <= len(step.after):
            raise InvalidPlan(
                f"step {step.name!r} waits for {len(step.after)} steps, of which {step.join} cannot end well"
            )
    after = {step.name: [name for name in step.after if name in names] for step in steps}
    while after:
        free = [name for name, waits in after.items() if not any(other in after for other in waits)]
        if not free:
            raise InvalidPlan(f"the steps {', '.join(after)} wait for each other")
        for name in free:
            del after[name]


def plan(state: TaskState, graph: Graph, steps: Sequence[e.NextStep], by: StepNode | None) -> None:
    """Add planned steps to the graph."""
    paths = _paths(graph, by, len(steps))
    new = {step.name: planned_step_id(state.branch, path) for step, path in zip(steps, paths, strict=True)}
    above = names_before(graph, by)
    planner, begun = (by.id, by.round) if by is not None else (None, graph.round)
    for step, path in zip(steps, paths, strict=True):
        after = tuple([new.get(name) or above[name] for name in step.after])
        node_id = new[step.name]
        graph.highest += 1
        graph.nodes[node_id] = StepNode(node_id, graph.highest, path, step, after, planner, begun)
    _join(graph, [graph.nodes[name] for name in new.values()])


def _paths(graph: Graph, by: StepNode | None, count: int) -> list[StepPath]:
    if by is None or by.alone:
        first = graph.top + 1
        graph.top += count
        return [(first + i,) for i in range(count)]
    if count == 1:  # a parallel chain continues to count, so that its ids do not grow with each link
        own = by.path
        return [(*own[:-1], own[-1] + 1) if len(own) > 1 else (*own, 1)]
    return [(*by.path, i + 1, 1) for i in range(count)]


def names_before(graph: Graph, by: StepNode | None) -> Mapping[str, str]:
    """Return the ids of the earlier steps that a plan may name: merged steps, and those its step waited for."""
    if by is None:
        return {}
    unmerged = [graph.nodes[step] for step in graph.ancestors(by)]
    unmerged = [node for node in unmerged if node.status == "completed"]
    own = {node.plan.name: node.id for node in (*sorted(unmerged, key=_by_path), by)}
    return ChainMap(own, graph.merged)


def _join(graph: Graph, planned: list[StepNode]) -> None:
    """Connect planned steps to those they wait for, then make steps ready. This may make others unneeded."""
    for node in planned:
        _wait(graph, node)
    for node in planned:
        _make_ready(graph, node)


def _wait(graph: Graph, node: StepNode) -> None:
    for other_id in node.after:
        other = graph.nodes[other_id]
        if other.status == "completed":
            node.won += 1
        elif other.status == "skipped":
            _count_skipped(node, other)
        elif other.status != "failed" or other.id in graph.failed:  # those run again
            node.waits += 1
            other.needed_by.append(node.id)
    graph.planned += 1


def _make_ready(graph: Graph, node: StepNode) -> None:
    """Make a planned step ready if it can start. A step that starts early may make others unneeded."""
    if node.status != "planned":
        return
    if node.waits and not (node.starts_early and node.won >= node.need):
        return
    if not node.possible:
        return
    node.status = "ready"
    graph.planned -= 1
    insort(graph.ready, node, key=_by_path)
    if node.starts_early:
        for other_id in node.after:
            _release(graph, graph.nodes[other_id], node.id)


def _count_skipped(node: StepNode, other: StepNode) -> None:
    """Count a skipped step for one that waits for it. A failed step that a caller skipped counts as successful."""
    node.won += other.skipped_by not in (UNNEEDED, ITSELF)
    node.passed += other.skipped_by == ITSELF


def _release(graph: Graph, node: StepNode, winner: str) -> None:
    """Mark a step as unneeded, unless it has ended or a planned step waits for it. Repeat for those before it."""
    if node.status not in ("planned", "ready", "running") or node.id in graph.unneeded:
        return
    waiting = [other for other in node.needed_by if other not in graph.unneeded]
    if any(graph.nodes[other].status == "planned" for other in waiting):
        return
    _mark_unneeded(graph, node, winner)
    for other_id in node.after:
        _release(graph, graph.nodes[other_id], winner)


def _mark_unneeded(graph: Graph, node: StepNode, winner: str | None) -> None:
    graph.unneeded[node.id] = node
    node.unneeded_for = winner


def _by_path(node: StepNode) -> StepPath:
    return node.path


# -------------------------------------------------------------------------------------------- steps


def _step_started(state: TaskState, graph: Graph, event: e.StepStarted) -> None:
    """Start a ready step, or start a failed one again."""
    node = graph.failed.pop(event.step, None)
    if node is not None and node.step is not None:
        _try_again(state, node, node.step)
        node.step.attempt, node.step.status, node.step.error = event.attempt, "running", None
        node.step.paused = False
        if not node.owes_results:
            _read(state, node, node.step)
    else:
        node = graph.nodes.get(event.step)
        if node is None or node.status != "ready":
            raise e.IllegalEvent(f"task {state.task_id}: step {event.step} is not ready")
        graph.ready.remove(node)
        node.step = StepState(node.id, event.index, event.attempt)
        node.step.started, node.step.started_seq = event.time, event.seq
        graph.started += 1
        _set_view(state, graph, node)
        _read(state, node, node.step)
    node.status = "running"
    graph.running[node.id] = node
    state.error, state.began = None, True


def _read(state: TaskState, node: StepNode, step: StepState) -> None:
    node.read += tuple(state.unread)
    for received in state.unread:
        _add_message(state, node, input_message(received, state.frame_key))
        step.input += received.parts
    step.read = node.read
    state.unread.clear()


def _set_view(state: TaskState, graph: Graph, node: StepNode) -> None:
    """Set the view of a step: the whole conversation if it is alone, else the messages before it."""
    before = graph.ancestors(node)
    node.alone = not graph.running and not graph.ready and not graph.planned_beside(node)
    node.alone = node.alone and all(other.id in before for other in graph.unmerged)
    node.since = len(state.messages)
    if node.alone:
        _merge(state, graph)
        node.since, node.merged = len(state.messages), True
        graph.merged[node.plan.name] = node.id
    else:
        node.unmerged_before = tuple([other for other in graph.unmerged if other.id in before])
    node.seen_messages = len(state.messages)


def seen_by(state: TaskState, node: StepNode) -> Sequence[Message]:
    """Return the conversation as a step sees it: the messages before it, and its own."""
    if node.alone:
        return state.view
    before = MessageView(state.messages, node.seen_messages)
    return [
        *before,
        *[message for other in node.unmerged_before for message in messages_of(other, state.frame_key)],
        *node.messages,
    ]


def messages_of(node: StepNode, key: str = "") -> list[Message]:
    """Return the messages that a step adds to the conversation. Without success it only adds its input.

    Args:
        node: the step.
        key: the task's key for the nonces of frames.
    """
    if node.alone or node.status == "completed":
        return node.messages
    return [input_message(received, key) for received in node.read]


def _merge(state: TaskState, graph: Graph) -> None:
    """Add the messages of all ended steps to the conversation, in order of path."""
    since = len(state.messages)
    for node in graph.unmerged:
        state.messages.extend(messages_of(node, state.frame_key))
        node.merged, node.since = True, since
        if node.status == "completed":
            graph.merged[node.plan.name] = node.id
    graph.unmerged.clear()


def _add_message(state: TaskState, node: StepNode, message: Message) -> None:
    node.messages.append(message)
    if node.alone:
        state.messages.append(message)


def _step_completed(state: TaskState, graph: Graph, event: e.StepCompleted) -> None:
    """Complete a step. Make the steps ready that wait for it, and add the steps that it planned."""
    node = running_node(state, event)
    if node.model_calls:
        _refuse_open_requests(state, node, event)
    step = _ended(state, graph, node, event)
    step.status, step.last, step.output = "completed", event.last, event.output
    step.sources, step.artifacts = event.sources, event.artifacts
    if event.changes is not None:
        place = (node.path, len(step.calls))
        writer = Writer(step.id, step.id, place, step.started_seq, read_step=True)
        change_extra_state(state, event.changes, writer)
    node.status, node.reason = "completed", event.reason
    if event.reason is not None:
        state.reasons.append(event.reason)
    if event.last:
        newest = node.messages[-1] if node.messages else None
        text = answer_text(event.output)
        if newest is None or newest.role != "assistant" or newest.text != text:
            _add_message(state, node, Message("assistant", (Text(text or "null"),)))
    _add_ended(state, graph, node, step)
    for other in node.needed_by:
        waiting = graph.nodes[other]
        waiting.won, waiting.waits = waiting.won + 1, waiting.waits - 1
        _make_ready(graph, waiting)
    if event.next:
        plan(state, graph, event.next, node)
    if event.last and not state.answered:
        for other in graph.running.values():
            _mark_unneeded(graph, other, node.id)
        for other in (*graph.running.values(), *graph.failed.values()):
            if not other.merged:  # its messages go before the answer
                insort(graph.unmerged, other, key=_by_path)
        _merge(state, graph)
        if state.unread:
            begin_again(state, graph)
            return
        state.answered, state.output, state.error = True, event.output, None
        state.output_text = answer_text(event.output)


def begin_again(state: TaskState, graph: Graph) -> None:
    """Withdraw the task's answer and restart the task with its first steps, since unread input arrived.

    Steps that have not ended are skipped, as after an answer.
    """
    for step in state.steps:
        if step.last:
            step.last = False
            graph.nodes[step.id].overtaken = graph.round
    graph.round += 1
    _mark_overtaken(state, graph)


def _mark_overtaken(state: TaskState, graph: Graph) -> None:
    """Mark as unneeded the open steps that were planned before the task restarted."""
    overtaken = {node.overtaken: node for node in graph.nodes.values() if node.overtaken is not None}
    if not overtaken:
        return
    newest = max(overtaken)
    for node in graph.nodes.values():
        unended = node.status in ("planned", "ready", "running") or node.id in graph.failed
        if unended and node.round <= newest:
            if not node.merged:
                insort(graph.unmerged, node, key=_by_path)  # no other step has its input
            _mark_unneeded(graph, node, overtaken[newest].id)
    _merge(state, graph)


def _ended(state: TaskState, graph: Graph, node: StepNode, event: e.Event) -> StepState:
    step = node.step
    assert step is not None, "it has begun"
    graph.running.pop(node.id, None)
    graph.failed.pop(node.id, None)
    graph.unneeded.pop(node.id, None)  # it ended before it was stopped
    step.ended, step.ended_seq = event.time, event.seq
    if node.questions:
        answers.close_step(state, node)
    if node.sleeps:
        sleeps.close_step(state, node)
    _add_results(state, node, step)
    return step


def _refuse_open_requests(state: TaskState, node: StepNode, event: e.Event) -> None:
    """Refuse the end of a step with a request to a model in flight, whose end its drive records first."""
    for call in node.model_calls.values():
        if call.status == "begun":
            raise e.IllegalEvent(
                f"task {state.task_id}: {event.kind} names {node.id}, whose request {call.id} has no end"
            )


def _add_ended(state: TaskState, graph: Graph, node: StepNode, step: StepState) -> None:
    """Add a step to those that have ended, in order of path."""
    places = [graph.nodes[other.id].path for other in state.steps[-1:]]
    if not places or places[0] < node.path:
        state.steps.append(step)
    else:
        insort(state.steps, step, key=lambda other: graph.nodes[other.id].path)
    if not node.merged:
        insort(graph.unmerged, node, key=_by_path)


def _step_failed(state: TaskState, graph: Graph, event: e.StepFailed) -> None:
    """Fail a step. Without retries, the task continues if steps wait for it and all of them can start without it."""
    node = running_node(state, event)
    if node.model_calls:
        _refuse_open_requests(state, node, event)
    step = _ended(state, graph, node, event)
    step.status, step.error, node.status = "failed", event.error, "failed"
    if state.checks:
        guardrails.consume_refusals(state, step.id)
    waiting = [] if node.has_retries else [graph.nodes[other] for other in node.needed_by]
    for other in waiting:
        other.waits -= 1
    if waiting and all(other.status != "planned" or other.possible for other in waiting):
        _add_ended(state, graph, node, step)
        if event.degrades:
            _degrade(state, graph, node, event.error)
        for other in waiting:
            _make_ready(graph, other)
        return
    for other in waiting:
        other.waits += 1
    graph.failed[node.id] = node
    state.error = event.error


def _step_skipped(state: TaskState, graph: Graph, event: e.StepSkipped) -> None:
    """Skip a step. A failed step that a caller skips counts as successful from then on. An unneeded one does not.

    No step waits for one that skips itself. Steps that start early wait for another instead.
    """
    node = graph.nodes[event.step]
    if node.status in ("completed", "skipped"):
        raise e.IllegalEvent(f"task {state.task_id}: step {event.step} has ended and cannot be given up")
    if node.status == "failed":
        state.error = None
    if node.step is None:
        node.step = StepState(node.id, node.index)
        node.step.started, node.step.started_seq = event.time, event.seq
        if node.status == "ready":
            graph.ready.remove(node)
        else:
            graph.planned -= 1
    step = _ended(state, graph, node, event)
    step.status, node.status, node.skipped_by = "skipped", "skipped", event.by
    node.skip_reason = event.reason
    step.error = event.error or step.error
    _add_ended(state, graph, node, step)
    for other in node.needed_by:
        waiting = graph.nodes[other]
        waiting.waits -= 1
        _count_skipped(waiting, node)
        _make_ready(graph, waiting)
    if event.degrades and event.error is not None:
        _degrade(state, graph, node, event.error)


def _degrade(state: TaskState, graph: Graph, node: StepNode, error: e.Failure) -> None:
    """Record that the task continues without a failed step, unless others may replace it."""
    waiting = [graph.nodes[other] for other in node.needed_by]
    if waiting and all(other.starts_early and other.won + other.waits >= other.need for other in waiting):
        return
    node.reason = f"step {node.plan.name!r} failed: {error.message}"
    state.reasons.append(node.reason)


def _try_again(state: TaskState, node: StepNode, step: StepState) -> None:
    """Drop the failed requests of a failed step from its memo, so that its function repeats them.

    Calls whose failure the model read before its newest answer stay, since the conversation continued from them.
    """
    read = {base_call_id(call.id) for call in step.calls if call.from_model} - set(node.newest_calls)
    for key, entry in list(node.memo.items()):
        result = entry.done
        if isinstance(result, ModelCall) and result.status == "failed":
            node.tried[key] = result.attempt
            del node.memo[key]
        elif isinstance(result, Question) and not result.is_answered:
            del node.memo[key]
        elif (
            isinstance(result, CallState)
            and (result.failed or _was_refused(result))
            and base_call_id(result.id) not in read
        ):
            entry.done = _call_again(state, node, step, result)


def reopen(state: TaskState, graph: Graph) -> None:
    """Propose calls again that a limit refused at the end of the task. Their functions saw no result."""
    for node in graph.running.values():
        for entry in node.memo.values():
            if isinstance(entry.done, CallState) and _was_refused(entry.done) and node.step is not None:
                entry.done = _call_again(state, node, node.step, entry.done)


def _was_refused(call: CallState) -> bool:
    """Return whether a call's start or next attempt was refused, so that its function saw no result."""
    return call.outcome == "refused" or (call.error is not None and call.error.kind == "refused")


def _call_again(state: TaskState, node: StepNode, step: StepState, call: CallState) -> CallState:
    """Replace a failed or refused call by a new one."""
    if base_call_id(call.id) in node.newest_calls and not node.owes_results:
        _remove_results(state, node)
    origins.keep_failed(step, call)
    again = repeat_call(step, call)
    deferring.carry_over(state, call, again)
    again.before = call.before
    if call.outcome != "refused":
        _count(state, node, again)
    return again


def _count(state: TaskState, node: StepNode, call: CallState) -> None:
    call.before = state.tool_calls
    state.tool_calls += 1
    node.calls += 1


def _remove_results(state: TaskState, node: StepNode) -> None:
    """Remove the results of the newest answer from the conversation, since one of them will change."""
    index = next(i for i in range(len(node.messages) - 1, -1, -1) if node.messages[i].role == "tool")
    if node.alone:
        at = len(state.messages) - len(node.messages) + index
        state.messages = [*state.messages[:at], *state.messages[at + 1 :]]
    del node.messages[index]
    node.owes_results = True


# --------------------------------------------------------------------------------- requests of functions


def _model_requested(state: TaskState, graph: Graph, event: e.ModelRequested) -> None:
    """Record a function's request to the model."""
    node = running_node(state, event)
    step = node.step
    call = ModelCall(event.call, event, attempt=node.tried.get(event.key, 0))
    if event.follows is not None:
        call.follows = next(
            request
            for entry in node.memo.values()
            if isinstance(request := entry.done, ModelCall) and request.id == event.follows
        )
        call.side_length = call.follows.side_length + 1
    call.side_length += len(event.messages or ())
    if event.messages and step is not None:
        step.shown = origins.merged(step.shown, origins.of_messages(event.messages))
    if call.sees_conversation and step is not None:
        _add_results(state, node, step)
    node.requests += 1
    node.model_calls[event.call] = call
    node.memo[event.key] = MemoEntry(event.digest, call)


def _model_returned(state: TaskState, graph: Graph, event: e.ModelReturned) -> None:
    """Record the answer to a function's request. It becomes a message if the request is in the conversation."""
    step, call = model_calls.finish(state, event)
    node, call_id = graph.nodes[step.id], str(event.call)
    del node.model_calls[call_id]
    node.answers += 1
    assert call.request is not None, "a function's question has one"
    names = call.offered if call.request.tools is None else call.request.tools
    if names is not None and event.message.tool_calls:
        node.offers[call_id] = names
    if call.in_conversation:
        _add_message(state, node, event.message)
        step.text = event.message.text
        node.newest_calls = tuple([part.id for part in event.message.parts if type(part) is ToolCall])
        node.owes_results = bool(node.newest_calls)


def _model_failed(state: TaskState, graph: Graph, event: e.ModelFailed) -> None:
    """Record that a function's request failed. It ends unless it will be sent again."""
    step, call = model_calls.fail(state, event)
    if call.status == "failed":
        del graph.nodes[step.id].model_calls[str(event.call)]


def _call_requested(state: TaskState, graph: Graph, event: e.CallRequested) -> None:
    """Record a function's request for a tool call."""
    node = running_node(state, event)
    step = node.step
    assert step is not None, "it runs"
    call = CallState(event.call, step.id, event.name, event.arguments, event.problem)
    call.from_model, call.frame = event.asked, nonce_of(state.frame_key, event.call)
    # A call that an answer did not ask for is the function's own.
    call.offered = node.offers.get(asking_id(event.call))
    if event.asked and not node.owes_results:
        _remove_results(state, node)  # the task had ended before its function made the call
    node.requests += 1
    step.calls.append(call)
    step.open[call.id] = call
    node.memo[event.key] = MemoEntry(event.digest, call)
    _count(state, node, call)


def call_ended(state: TaskState, node: StepNode, step: StepState) -> None:
    """Add the results of the calls in a step's newest answer, once all of them have ended."""
    if not node.owes_results:
        return
    ended = {base_call_id(call.id) for call in step.calls if call.from_model and call.status == "ended"}
    if ended.issuperset(node.newest_calls):
        _add_results(state, node, step)


def leave(state: TaskState, graph: Graph) -> list[Message]:
    """Return, as the task ends, the messages of all steps that are not in the conversation yet, in order of path.

    Calls of functions that were cut off get their results first, so that the conversation is well-formed.
    """
    for node in graph.running.values():
        if node.step is not None:
            _add_results(state, node, node.step)
    unended = [node for node in (*graph.running.values(), *graph.failed.values()) if not node.merged]
    whole = {node.id: node.messages for node in unended if node.id not in graph.unneeded}
    nodes = sorted([*graph.unmerged, *unended], key=_by_path)
    return [message for node in nodes for message in whole.get(node.id, messages_of(node, state.frame_key))]


def _value_kept(state: TaskState, graph: Graph, event: e.ValueKept) -> None:
    """Record a value that a function, or a call, stores."""
    if event.call:
        answers.keep(state, event)
        return
    node = running_node(state, event)
    node.memo[event.key] = MemoEntry("", MemoValue(event.value))


def _add_results(state: TaskState, node: StepNode, step: StepState) -> None:
    """Add the results of the calls in a step's newest answer. The others of its calls were not run."""
    if not node.owes_results:
        return
    ended_calls = {
        base_call_id(call.id): call for call in step.calls if call.from_model and call.status == "ended"
    }
    index = _last_answer(node)
    message = results(
        [ended_calls.get(part.id) or _call_not_run(step, part) for part in node.messages[index].tool_calls]
    )
    node.owes_results = False
    _insert(state, node, index + 1, message)


def _call_not_run(step: StepState, part: ToolCall) -> CallState:
    failure = e.Failure("worker", "refused", f"{part.name} was not run.", part.id)
    return CallState(part.id, step.id, part.name, part.arguments, outcome="refused", error=failure)


def _last_answer(node: StepNode) -> int:
    return next(i for i in range(len(node.messages) - 1, -1, -1) if node.messages[i].role == "assistant")


def _insert(state: TaskState, node: StepNode, index: int, message: Message) -> None:
    """Insert a message among a step's own, since input may follow the answer whose results are added."""
    if index == len(node.messages):
        _add_message(state, node, message)
        return
    if node.alone:
        at = len(state.messages) - len(node.messages) + index
        state.messages = [*state.messages[:at], message, *state.messages[at:]]
    node.messages.insert(index, message)


# --------------------------------------------------------------------------------------------- undo


def _rewound(state: TaskState, graph: Graph, event: e.Rewound) -> None:
    """Undo steps with all their dependents. Those that a kept step planned are planned again."""
    ids = graph.dependents({step for step in event.steps if step in graph.nodes})
    gone = sorted([graph.nodes.pop(step) for step in ids], key=_by_path)
    merged = [node.since for node in gone if node.merged]
    if merged:
        _unmerge(state, graph, min(merged))
    state.messages = list(state.messages)
    state.own_from = min(state.own_from, len(state.messages))
    state.steps = [step for step in state.steps if step.id not in ids]
    for node in gone:
        answers.close_step(state, node)
        sleeps.close_step(state, node)
        for received in node.read:
            insort(state.unread, received, key=lambda other: other.seq)
        state.turn -= node.answers
        state.tool_calls -= node.calls
        if node.reason is not None:
            state.reasons.remove(node.reason)
        graph.started -= node.step is not None and node.step.started_seq != node.step.ended_seq
    for index in (graph.running, graph.failed, graph.unneeded):
        for step in ids & set(index):
            del index[step]
    graph.unmerged = [node for node in graph.unmerged if node.id not in ids]
    graph.ready = [node for node in graph.ready if node.id not in ids]
    for node in graph.nodes.values():
        node.needed_by = [other for other in node.needed_by if other not in ids]
    graph.top = max([node.path[0] for node in graph.nodes.values()], default=0)
    graph.highest = max([node.index for node in graph.nodes.values()], default=0)
    stay = [
        node for node in graph.nodes.values() if node.merged and (node.alone or node.status == "completed")
    ]
    stay.sort(key=_by_path)
    graph.merged = {node.plan.name: node.id for node in stay}
    last = next((step for step in state.steps if step.last), None)
    undo.end(state, event, ids, last)
    state.finalized = False
    _plan_again(state, graph, gone)
    if last is not None and state.unread:
        begin_again(state, graph)
    else:
        _mark_overtaken(state, graph)


def _unmerge(state: TaskState, graph: Graph, since: int) -> None:
    """Cut the conversation, and unmerge the steps that stay."""
    state.messages = state.messages[:since]
    back = [node for node in graph.nodes.values() if node.merged and node.since >= since]
    for node in back:
        node.merged = False
        if node.id not in graph.running and node.id not in graph.failed:
            insort(graph.unmerged, node, key=_by_path)
    for node in back:
        if node.alone and (node.id in graph.running or node.id in graph.failed):
            before = graph.ancestors(node)
            node.unmerged_before = tuple([other for other in graph.unmerged if other.id in before])
            node.alone, node.seen_messages = False, since


def _plan_again(state: TaskState, graph: Graph, gone: list[StepNode]) -> None:
    """Plan the undone steps again whose planner stays, with new ids and old paths.

    The first steps of a later round were planned because input overtook an answer. If that answer was undone too, the
    steps that gave it read the input, and these steps are not planned again.
    """
    again = [node for node in gone if node.by is None or node.by in graph.nodes]
    overtaken = {node.overtaken for node in gone if node.overtaken is not None}
    overtaken -= {node.overtaken for node in graph.nodes.values()}
    first = min(overtaken, default=None)
    if first is not None and all(node.round <= first for node in graph.nodes.values()):
        again = [node for node in again if node.round <= first]
    renamed = {node.id: planned_step_id(state.branch, node.path) for node in again}
    for node in again:
        after = tuple([renamed.get(other, other) for other in node.after])
        graph.nodes[renamed[node.id]] = StepNode(
            renamed[node.id], node.index, node.path, node.plan, after, node.by, node.round
        )
        graph.top = max(graph.top, node.path[0])
        graph.highest = max(graph.highest, node.index)
    _join(graph, [graph.nodes[node_id] for node_id in renamed.values()])
    graph.planned = sum(node.status == "planned" for node in graph.nodes.values())


def inherit(graph: Graph) -> None:
    """Mark the begun steps as the parent's, which a fork cannot undo."""
    for node in graph.nodes.values():
        node.inherited = node.step is not None


RULES: dict[type[e.Event], Callable[[TaskState, Graph, Any], None]] = {
    e.StepStarted: _step_started,
    e.ModelRequested: _model_requested,
    e.ModelReturned: _model_returned,
    e.ModelFailed: _model_failed,
    e.CallRequested: _call_requested,
    e.ValueKept: _value_kept,
    e.StepCompleted: _step_completed,
    e.StepFailed: _step_failed,
    e.StepSkipped: _step_skipped,
    e.Rewound: _rewound,
}
"""The rules that differ in a task that has a graph."""
