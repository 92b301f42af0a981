"""What reads of any task must agree on, wherever it stands."""

from __future__ import annotations

from dataclasses import replace

from treadle import Runner
from treadle.core.deltas import for_watchers
from treadle.core.journal import events_with_epochs
from treadle.errors import JournalCorrupt, TaskNotFound
from treadle.ports import TaskFilter
from treadle.results.pending import FOR_PEOPLE, Pending
from treadle.results.run_result import RunResult


async def check_reads(runner: Runner, task: str, share: int) -> None:
    """Read a task at rest in every way, and compare.

    Args:
        runner: the runner.
        task: the task.
        share: percent of the journal after which it is looked at as it stood.
    """
    head = (await runner.get_task(task)).head
    stored = for_watchers(
        [event for _, event in events_with_epochs(task, await runner.store.read(task))],
    )
    pages = [event async for event in await runner.get_events(task, limit=7)]
    assert pages == stored
    assert [event.seq for event in pages] == list(range(1, head + 1))
    half = await runner.get_events(task, after=head // 2, limit=1_000)
    assert (list(half), half.head) == (list(stored[head // 2 :]), head)
    steps = [step async for step in await runner.get_steps(task, limit=2)]
    by_id = {step.step.step_id: step for step in steps}
    assert len(by_id) == len(steps)
    for step in await runner.get_completed_steps(task):  # in the order in which they ended
        assert by_id[step.step.step_id] == step
    for step_id, step in by_id.items():
        assert await runner.get_step(task, step_id) == step
    at = max(1, head * share // 100)
    past = await runner.result(task, at=at)
    assert (await runner.get_task(task, at=at)).steps == past.steps
    now, same = await runner.result(task), await runner.result(task, at=head)
    assert _of_itself(now) == _of_itself(same)
    for event in pages:
        if event.kind == "model_started":
            request = await runner.get_request(task, event.step)  # type: ignore[attr-defined]
            assert request.seq >= event.seq
            assert request.messages or request.instructions


def _of_itself(result: RunResult) -> tuple[object, ...]:
    """Return what a result tells of its task alone."""
    own = tuple([call for call in result.tool_executions if call.task_id == result.task_id])
    return result.steps, result.messages, own, result.usage, result.output, result.error, result.thread_id


async def check_pending(runner: Runner) -> None:
    """What waits for a person is found in a list of all tasks as in each of them, also by what their rows tell."""
    listed = [item async for item in await runner.list_pending(limit=2)]
    each, rows = list[Pending](), await runner.store.rows(TaskFilter(limit=1_000))
    for row in rows:
        try:
            items = [item async for item in await runner.list_pending(row.task_id, limit=1)]
        except (TaskNotFound, JournalCorrupt):
            continue
        own = [item for item in items if item.task_id == row.task_id and item.kind in (*FOR_PEOPLE, "undo")]
        if row.state in ("waiting", "running", "paused", "interrupted"):
            each += own
        if row.driver is None and row.figures is not None and row.figures.pending is not None:
            assert row.figures.pending == len(own), (row.task_id, row.state)
    # A path begins with the task that was asked for, and in a list of all tasks with the root.
    assert _without_paths(listed) == _without_paths(each)
    ends = {item.path[-1] for item in each}
    assert {item.path[-1] for item in listed} == ends


def _without_paths(items: list[Pending]) -> list[str]:
    return sorted(repr(replace(item, path=())) for item in items)
