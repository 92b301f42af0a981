"""The plan and the report of an undo: pure rules over the state.

The outside effects of the children of open calls, read from their journals.

Only the drive of its parent drives a child. So without running effects of the parent, its children are at rest, and
their journals do not change.
"""

from __future__ import annotations

from collections.abc import Container

from treadle.agents.decide.calls import may_have_acted
from treadle.agents.decide.lifecycle import is_undone, undo_report
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.graph import Graph
from treadle.core.journal import events_with_epochs
from treadle.core.state import TaskState, UndoState, start
from treadle.core.steps import CallState, StepState
from treadle.engine import loading
from treadle.errors import (
    ConfigurationError,
    IrreversibleStep,
    JournalCorrupt,
    StepNotFound,
    TaskNotFound,
    TaskTooNew,
    UndoUnfinished,
)
from treadle.ports import JournalReader
from treadle.results.reports import UndoReport
from treadle.results.steps import all_steps


async def harmless_children(store: JournalReader, state: TaskState) -> frozenset[str]:
    """Return the ids of open agent calls whose children, and the tasks below, cannot have had effects."""
    calls = [call for call in state.open_children() if not call.acted]
    return frozenset([call.id for call in calls if await _is_harmless(store, str(call.child))])


async def _is_harmless(store: JournalReader, task_id: str) -> bool:
    child = start(task_id)
    try:
        for epoch, event in events_with_epochs(task_id, await store.read(task_id)):
            loading.apply_checked(child, event, epoch)
    except TaskNotFound:
        return True  # it was not created yet
    except (JournalCorrupt, TaskTooNew):
        return False
    below = await harmless_children(store, child)
    calls = [call for step in all_steps(child) for call in step.calls]
    return child.unknown is None and not any(may_have_acted(call) and call.id not in below for call in calls)


@frozen
class UndoPlan:
    """The event that requests an undo, and whether the undo needs the code of tools."""

    event: e.UndoRequested
    needs_agent: bool


def plan(
    state: TaskState,
    to: int | str | None,
    *,
    force: bool,
    by: str | None,
    step: int | str | None = None,
    harmless: Container[str] = (),
) -> UndoPlan:
    """Return the plan of an undo.

    Args:
        state: the task, in which no effect runs.
        to: the last step to keep. None: take back the last step.
        force: whether to rewind also calls that cannot be compensated.
        by: the name of the caller.
        step: the step to take back, with its dependents.
        harmless: the open agent calls whose tasks have changed nothing; see `child_effects`.

    Raises:
        StepNotFound: there is no such step, or none to take back.
        IrreversibleStep: a step has calls with effects and without `undo=`, `force` is False, and no undo has begun.
        UndoUnfinished: another undo has begun and not ended.
    """
    keep, steps = _taken_back(state, to, step)
    calls = [
        call
        for item in reversed(steps)
        for call in reversed(item.calls)
        if may_have_acted(call) and call.id not in harmless
    ]
    irreversible = [call for call in calls if _irreversible(call)]
    if irreversible and not force and state.undo is None:  # a begun undo was already accepted
        raise _irreversible_step(state, irreversible)
    queue = tuple(call.id for call in calls if _compensable(call))
    needs_agent = any(
        call.undo_status in ("none", "not_happened", "failed") for call in calls if call.id in queue
    )
    return UndoPlan(e.UndoRequested(keep, _ids(steps), queue, force, by), needs_agent)


def forecast(
    state: TaskState,
    to: int | str | None,
    *,
    force: bool,
    driven: bool,
    step: int | str | None = None,
    harmless: Container[str] = (),
) -> UndoReport:
    """Return the report of a possible undo, with the result for each call, newest first.

    `complete` means that only a failing compensation could stop it. Otherwise `problem` names the obstacle. A running
    call of a `driven` task has the verdict `unknown`, since an undo waits for its end. Raises the errors of `plan`,
    except for `IrreversibleStep`, which becomes the `problem`.
    """
    keep, steps = _taken_back(state, to, step)
    calls = [call for item in reversed(steps) for call in reversed(item.calls)]
    running = [call for call in calls if driven and call.status == "begun" and call.outcome is None]
    irreversible = [
        call
        for call in calls
        if may_have_acted(call) and _irreversible(call) and call not in running and call.id not in harmless
    ]
    undo = UndoState(keep, [], _ids(steps))
    verdicts = {undone.call: undone for undone in undo_report(state, undo)}
    for call in calls:
        if call in running:
            verdicts[call.id] = e.UndoneCall(
                call.id, call.name, "unknown", "it runs, and an undo waits for its end"
            )
        elif call.id in harmless:
            verdicts[call.id] = e.UndoneCall(call.id, call.name, "nothing_to_compensate")
        elif (
            _compensable(call)
            and (verdicts[call.id].verdict == "not_compensated" or call.undo_status == "none")
            and not (force and call.undo_status in ("failed", "skipped"))
        ):
            verdicts[call.id] = e.UndoneCall(call.id, call.name, "compensated")
    lost = next((call for call in calls if call.undo_status == "lost"), None)
    problem = None
    if lost is not None:
        problem = (
            f"the compensation of {lost.name} ({lost.id}) began, and its outcome is not known: settle it"
        )
    elif irreversible and not force and state.undo is None:
        problem = str(_irreversible_step(state, irreversible))
    calls_undone = tuple(verdicts.values())
    return UndoReport(state.task_id, problem is None, keep, _ids(steps), calls_undone, problem, planned=True)


def _taken_back(
    state: TaskState, to: int | str | None, step: int | str | None
) -> tuple[int, list[StepState]]:
    """Return the index of the last step that an undo keeps, and the steps that it takes back."""
    if to is not None and step is not None:
        raise ConfigurationError(
            "undo_step takes to= (the last step kept) or step= (the one taken back), not both"
        )
    keep, steps = (
        _of_graph(state, state.graph, to, step) if state.graph is not None else _of_sequence(state, to, step)
    )
    if state.undo is not None:
        if (to is not None or step is not None) and (keep, _ids(steps)) != (
            state.undo.to,
            _undone_ids(state),
        ):
            message = f"task {state.task_id}: an undo to step {state.undo.to} has begun; finish it first"
            raise UndoUnfinished(message, task_id=state.task_id)
        keep = state.undo.to
        steps = [item for item in all_steps(state) if is_undone(state.undo, item)]
    return keep, steps


def _irreversible_step(state: TaskState, calls: list[CallState]) -> IrreversibleStep:
    named = ", ".join(
        f"{call.name} ({call.id if call.child is None else f'task {call.child}'})" for call in calls
    )
    message = (
        f"task {state.task_id}: {named} may have changed something and cannot be taken back; give the tool undo=, "
        "settle unknown outcomes, or use force=True (--force) to rewind without compensating"
    )
    return IrreversibleStep(message, task_id=state.task_id, calls=tuple([call.id for call in calls]))


def _ids(steps: list[StepState]) -> tuple[str, ...]:
    return tuple([step.id for step in steps])


def _undone_ids(state: TaskState) -> tuple[str, ...]:
    """Return the ids of the steps that the current undo takes back."""
    undo = state.undo
    return _ids([step for step in all_steps(state) if undo is not None and is_undone(undo, step)])


def _of_sequence(
    state: TaskState, to: int | str | None, step: int | str | None
) -> tuple[int, list[StepState]]:
    """Return the last step to keep and the steps to take back, in a task whose steps follow each other."""
    if step is not None:
        to = _index_of(state, all_steps(state), step) - 1
    keep = _step_to_keep(state, to)
    return keep, [item for item in all_steps(state) if item.index > keep]


def _of_graph(
    state: TaskState, graph: Graph, to: int | str | None, step: int | str | None
) -> tuple[int, list[StepState]]:
    """Return the same for a task with a graph, which takes a step back with its dependents, without its siblings."""
    steps = all_steps(state)
    own_steps = [item for item in steps if not graph.nodes[item.id].inherited]
    if not own_steps:
        where = f"; the others were taken over from task {state.forked_from}" if steps else ""
        raise StepNotFound(f"task {state.task_id}: no step to take back{where}")
    if to == 0:
        first = {item.id for item in own_steps}
    elif to is not None:
        last_kept = _step_named(state, steps, to)
        first = graph.dependents({last_kept.id}) - {last_kept.id}
    else:
        first = {(own_steps[-1] if step is None else _step_named(state, steps, step)).id}
    undone_ids = graph.dependents(first)
    undone_steps = [item for item in steps if item.id in undone_ids]
    if not undone_steps:
        raise StepNotFound(f"task {state.task_id}: nothing came of step {to}, so there is none to take back")
    taken_over = [item.id for item in undone_steps if graph.nodes[item.id].inherited]
    if taken_over:
        raise StepNotFound(
            f"task {state.task_id}: no step to take back: step {taken_over[0]} was taken over from task "
            f"{state.forked_from}, which has its own undo"
        )
    return min(item.index for item in undone_steps) - 1, undone_steps


def _step_named(state: TaskState, steps: list[StepState], name: int | str) -> StepState:
    graph = state.graph
    for step in steps:
        if name == step.id or (type(name) is int and name == step.index):
            return step
    named = [step for step in steps if graph is not None and graph.nodes[step.id].plan.name == name]
    if named:
        return named[-1]
    raise StepNotFound(f"task {state.task_id} has no step {name!r} on its present branch")


def _compensable(call: CallState) -> bool:
    """Whether to run the compensation of a call, because its tool returned or left work in the background.

    A compensation that has begun must end, however the background work ended meanwhile.
    """
    if not call.undo:
        return False
    return (
        call.took_effect
        or call.undo_status != "none"
        or (call.was_deferred and call.outcome in (None, "unknown"))
    )


def _irreversible(call: CallState) -> bool:
    """Whether a call may have had an effect that its compensation does not take back."""
    if _compensable(call):
        return False
    if call.in_doubt or call.child is not None or call.outcome is None:
        return True
    return call.took_effect and not call.undo


def _step_to_keep(state: TaskState, to: int | str | None) -> int:
    steps = all_steps(state)
    floor = steps[state.floor - 1].index if state.floor else 0
    last = steps[-1].index if steps else 0
    keep = _index_of(state, steps, to) if to is not None else last - 1
    if last <= floor or keep < floor:
        fork = f"step {floor} was taken over from task {state.forked_from}, which has its own undo"
        raise StepNotFound(
            f"task {state.task_id}: no step to take back: {fork if floor else 'none has begun'}"
        )
    if keep >= last:
        raise StepNotFound(f"task {state.task_id}: step {keep} is the last one, so nothing comes after it")
    return keep


def _index_of(state: TaskState, steps: list[StepState], to: int | str) -> int:
    if isinstance(to, int) and not isinstance(to, bool):
        if to < 0 or (to > 0 and not any(step.index == to for step in steps)):
            raise StepNotFound(f"task {state.task_id} has no step {to}; it has {len(steps)} steps")
        return to
    for step in steps:
        if step.id == to:
            return step.index
    raise StepNotFound(f"task {state.task_id} has no step {to!r} on its present branch")


def report(state: TaskState, request: e.UndoRequested) -> UndoReport:
    """Return the progress of an undo."""
    undo = state.undo
    if undo is None:
        return UndoReport(state.task_id, True, request.to, request.steps, state.last_undo)
    blocking = next((call for call in undo.queue if call.undo_status in ("failed", "lost")), None)
    problem = None
    if blocking is not None:
        condition = "failed" if blocking.undo_status == "failed" else "began, and its outcome is not known"
        why = f": {blocking.undo_error}" if blocking.undo_error else ""
        problem = f"the compensation of {blocking.name} ({blocking.id}) {condition}{why}"
    return UndoReport(state.task_id, False, request.to, request.steps, undo_report(state, undo), problem)
