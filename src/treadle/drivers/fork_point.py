"""Find the point at which a fork begins, and the first difference between two tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from treadle.agents.decide.calls import closing_end
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.ends import withdrawn_end
from treadle.core.graph import Graph
from treadle.core.journal import events_with_epochs
from treadle.core.state import TaskState, start
from treadle.core.steps import StepState
from treadle.drivers.arguments import shown
from treadle.engine import loading
from treadle.errors import CallNotFound, ConfigurationError, ForkPointBusy, StepNotFound
from treadle.ports import JournalStore
from treadle.results.reports import Difference, StepDifference
from treadle.results.states import state_at_rest
from treadle.results.step_outputs import step_output
from treadle.results.steps import StepInfo, all_steps
from treadle.results.tasks import state_value


@frozen
class ForkPoint:
    """The start of a fork: the last event shared with its parent, and the fork's own first events."""

    seq: int
    then: tuple[e.Event, ...] = ()


async def fork_point(
    store: JournalStore, state: TaskState, at: str | int | None, replace: dict[str, Any] | None
) -> ForkPoint:
    """Return the start of a fork.

    Raises:
        StepNotFound, CallNotFound: there is no such step, event or call.
        ForkPointBusy: parallel steps were at work at that point, and are now.
    """
    if replace and at is None:
        return (await _end_of_calls(store, state, replace))[0]
    if isinstance(at, bool) or not isinstance(at, (int, str, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"fork: at must be a step id or the sequence number of an event, got {shown(at)}"
        )
    if replace:
        point, step = await _end_of_calls(store, state, replace)
        if not is_end_of(step, at, point.seq):
            raise ConfigurationError(
                f"fork: replace= forks at the end of {step.id}, event {point.seq}, and at={at!r} is another place; "
                "leave at= out"
            )
        return point
    if isinstance(at, int):
        if not 1 <= at <= state.seq:
            raise no_event(state.task_id, state.seq, at)
        return ForkPoint(at)
    step = (
        _last_ended_step(state) if at is None else next((each for each in state.steps if each.id == at), None)
    )
    if at is None and (step is None or step.ended_seq <= state.fork_seq):
        return ForkPoint(await _last_of_creation(store, state))
    if step is None:
        raise StepNotFound(f"task {state.task_id} has no completed step {at!r} on its present branch")
    return (
        ForkPoint(step.ended_seq)
        if state.graph is None
        else await _after_parallel_step(store, state, state.graph, step)
    )


def is_end_of(step: StepState, at: str | int | None, seq: int) -> bool:
    """Return whether the place of a fork is the end of a step's calls, at event `seq`, or that of the step."""
    return at in (step.id, seq, step.ended_seq)


def no_event(task_id: str, head: int, at: int) -> StepNotFound:
    """Return the error for a sequence number without an event; `head` is the last event."""
    return StepNotFound(f"task {task_id} has events 1 to {head}, not {at}")


def _last_ended_step(state: TaskState) -> StepState | None:
    return max(state.steps, key=lambda step: step.ended_seq, default=None)


async def _last_of_creation(store: JournalStore, state: TaskState) -> int:
    """Return the last event of a task's creation; the first record of a fork includes its replaced results."""
    if state.forked_from is None:
        return 1
    records = await store.read(state.task_id, after=state.fork_seq, upto=state.fork_seq + 1)
    return records[-1].seq


async def _after_parallel_step(
    store: JournalStore, state: TaskState, graph: Graph, step: StepState
) -> ForkPoint:
    """Return the start of a fork just after a step that may have had parallel steps.

    If their calls were open then, the fork begins at the task's present state, and undoes later steps.
    """
    if graph.nodes[step.id].alone or not _is_busy(await state_at(store, state.task_id, step.ended_seq)):
        return ForkPoint(step.ended_seq)
    if _is_at_work(state) or state.undo is not None:
        await check_rest(store, state.task_id, step.ended_seq)
    later = [each.id for each in all_steps(state) if not each.ended_seq or each.ended_seq > step.ended_seq]
    gone = tuple([each.id for each in all_steps(state) if each.id in graph.dependents(set(later))])
    open_calls = [call for each in state.under_way() if each.id in gone for call in each.open.values()]
    ends = [closing_end(call, "its step was undone", "cancelled") for call in open_calls]
    rewound = e.Rewound(step.index, state.branch + 1, (), gone)
    return ForkPoint(state.seq, (*[end for end in ends if end is not None], rewound))


async def _end_of_calls(
    store: JournalStore, state: TaskState, replace: dict[str, Any]
) -> tuple[ForkPoint, StepState]:
    """Return the start of a fork that replaces results of calls, and the step of the calls."""
    steps: set[str] = set()
    for call_id in replace:
        call = state.find_call(call_id)
        if call is None or call.status != "ended" or call.answers:
            raise CallNotFound(f"task {state.task_id} has no finished call {call_id!r} on its present branch")
        steps.add(call.step)
    step = next((step for step in state.steps if step.id in steps), None)
    if len(steps) != 1 or step is None:
        raise ConfigurationError("replace= takes calls of one completed step")
    if state.graph is None:
        return ForkPoint(await _end_of_results(store, state, step)), step
    return ForkPoint(await _end_of_calls_in(store, state, step, set(replace))), step


async def _end_of_calls_in(store: JournalStore, state: TaskState, step: StepState, calls: set[str]) -> int:
    """Return the event after which these calls of a function, and all its others, had ended.

    The function is re-entered there, since its later requests may depend on their results.
    """
    past = start(state.task_id)
    for epoch, event in events_with_epochs(
        state.task_id, await store.read(state.task_id, upto=step.ended_seq - 1)
    ):
        if event.seq == step.ended_seq:  # the record of the last call's end may have later events
            break
        loading.apply_checked(past, event, epoch)
        if type(event) is e.ToolEnded:
            calls.discard(event.call)
        begun = None if calls else past.graph and past.graph.running.get(step.id)
        if begun and begun.step and not (begun.step.open or _is_busy(past) or past.undo):
            return event.seq
    raise _busy(state.task_id, step.ended_seq - 1)


async def _end_of_results(store: JournalStore, state: TaskState, step: StepState) -> int:
    """Return the step's last event, or its last result if it ended in an answer or a flaw."""
    place, mark = state.steps.index(step), step.checkpoint
    before = state.steps[place - 1].checkpoint if place else None
    assert mark is not None, "it has ended"
    has_flaw = mark.reasons > (before.reasons if before is not None else 0)
    if state.messages[mark.messages - 1].role == "tool" and not has_flaw:
        return step.ended_seq
    records = await store.read(state.task_id, after=step.started_seq, upto=step.ended_seq)
    since_start = events_with_epochs(state.task_id, records, after=step.started_seq, previous=None)
    ends = [event.seq for _, event in since_start if type(event) is e.ToolEnded and event.step == step.id]
    return max(seq for seq in ends if seq < step.ended_seq)  # a record may go on after the step


async def state_at(store: JournalStore, task_id: str, seq: int) -> TaskState:
    """Return the state of a task just after an event, without the earlier messages of its thread."""
    state = start(task_id)
    for epoch, event in events_with_epochs(task_id, await store.read(task_id, upto=seq)):
        if event.seq <= seq:  # the record of the point may have later events
            loading.apply_checked(state, event, epoch)
    return state


async def check_rest(store: JournalStore, task_id: str, seq: int) -> None:
    """Raise `ForkPointBusy` if a call has begun and not ended just after this event."""
    state = await state_at(store, task_id, seq)
    if _is_busy(state) or state.undo is not None:
        raise _busy(task_id, seq)


async def at_rest(
    store: JournalStore, state: TaskState, point: ForkPoint, *, replaced: bool = False
) -> ForkPoint:
    """Return the start of a fork at the end of a step, with the ends of background calls.

    If the task has ended, for instance by `at_end="detach"`, the fork gets the results that have come since. The work
    itself belongs to that task: in the fork a call without a result is withdrawn.

    Args:
        store: the store of the task.
        state: the present state of the task.
        point: the start without these ends.
        replaced: whether the fork replaces results of calls, whose outcomes must not be open.

    Raises:
        ForkPointBusy: a call has begun and not ended at that point, or goes on in the background of an unfinished
            task.
    """
    past = await state_at(store, state.task_id, point.seq)
    background_calls, past.deferred = past.deferred, {}
    is_over = state.ended is not None and state.graph is None and not replaced
    if (background_calls and not is_over) or _is_busy(past) or past.undo is not None:
        raise _busy(state.task_id, point.seq)
    ends: list[e.Event] = []
    for call in background_calls.values():
        now = state.find_call(call.id)
        completion = now.ticket.completion if now is not None and now.ticket is not None else None
        if isinstance(completion, (e.TicketCompleted, e.TicketFailed)):
            ends.append(replace(completion, inbox=None))
        else:
            ends.append(withdrawn_end(call, f"that is work for the task {state.task_id}"))
    return ForkPoint(point.seq, (*point.then, *ends))


def _busy(task_id: str, seq: int) -> ForkPointBusy:
    return ForkPointBusy(
        f"task {task_id}: at event {seq} a call or an undo has begun and not ended; fork after a step, or later",
        task_id=task_id,
    )


def _is_busy(state: TaskState) -> bool:
    """Return whether a call is in flight or in doubt. A repeat in a fork would have another key, so be another call."""
    return _is_at_work(state) or any(
        call.in_doubt or call.is_halfway for step in state.under_way() for call in step.open.values()
    )


def _is_at_work(state: TaskState) -> bool:
    """Return whether a call is in flight, in the background, or a child, even a stopped one."""
    return state.in_flight() or bool(state.deferred) or bool(state.open_children())


# ---------------------------------------------------------------------------------------------- diff


def difference(a: TaskState, b: TaskState, shared: int = 0) -> Difference:
    """Return the differences between the steps of two tasks, with both versions of the first one.

    Args:
        a: a task.
        b: another task.
        shared: the number of events that both have from the same journal.
    """
    steps_a, steps_b = all_steps(a), all_steps(b)
    first: tuple[int, tuple[str, Any, Any]] | None = None
    steps: list[StepDifference] = []
    for place, (step_a, step_b) in enumerate(zip_longest(steps_a, steps_b), 1):
        differing = _differences(step_a, step_b)
        if differing and first is None:
            first = place, differing[0]
        ids = [step.id if step is not None else None for step in (step_a, step_b)]
        is_shared = None not in (step_a, step_b) and _is_within(step_a, shared) and _is_within(step_b, shared)
        steps.append(StepDifference(place, ids[0], ids[1], is_shared, tuple([each[0] for each in differing])))
    found = Difference(a.task_id, b.task_id, shared, steps=tuple(steps))
    if first is not None:
        index, (field, value_a, value_b) = first
        outputs = [
            step_output(s, all_of[index - 1], state_at_rest(s), _NONE) if index <= len(all_of) else None
            for s, all_of in ((a, steps_a), (b, steps_b))
        ]
        return replace(
            found,
            index=index,
            step_a=outputs[0],
            step_b=outputs[1],
            field=field,
            value_a=value_a,
            value_b=value_b,
        )
    if a.ended != b.ended or a.output != b.output:
        return replace(found, field="end", value_a=[a.ended, a.output], value_b=[b.ended, b.output])
    if state_value(a) != state_value(b):
        return replace(found, field="extra_state", value_a=state_value(a), value_b=state_value(b))
    return found


_NONE: tuple[StepInfo, ...] = ()


def shared_events(a: Sequence[tuple[str, int]], b: Sequence[tuple[str, int]]) -> int:
    """Return how many events two tasks have from the same journal.

    Args:
        a: the task and those that it was forked from, the nearest first, each with its number of events in the task.
        b: the same of the other task.
    """
    events = dict(b)
    return next((min(seq, events[task_id]) for task_id, seq in a if task_id in events), 0)


def _is_within(step: StepState | None, shared: int) -> bool:
    return step is not None and 0 < step.ended_seq <= shared


def _differences(a: StepState | None, b: StepState | None) -> list[tuple[str, Any, Any]]:
    """Return the fields in which two steps differ, each with both values."""
    if a is None or b is None:
        return [("step", a.id if a else None, b.id if b else None)]
    fields: list[tuple[str, Any, Any]] = [
        ("input", a.input, b.input),
        ("text", a.text, b.text),
        ("calls", [(c.name, c.arguments) for c in a.calls], [(c.name, c.arguments) for c in b.calls]),
    ]
    for call_a, call_b in zip(a.calls, b.calls, strict=False):
        fields.append((f"outcome of {call_a.id}", call_a.outcome, call_b.outcome))
        fields.append((f"output of {call_a.id}", call_a.output, call_b.output))
        fields.append((f"changes of {call_a.id}", call_a.changes, call_b.changes))
    fields += [("output", a.output, b.output), ("status", a.status, b.status)]
    return [field for field in fields if field[1] != field[2]]
