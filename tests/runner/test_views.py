"""Views of tasks and steps: snapshots, lists and their pages."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import roles_and_texts, step_to_answer
from treadle import Agent, Runner, ScriptedModel
from treadle.errors import (
    ConfigurationError,
    StepNotFound,
    TaskNotFound,
)
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


async def test_views_of_an_unknown_task_name_it_and_the_store(runner: Runner) -> None:
    with pytest.raises(TaskNotFound, match=r"no task 'missing' in (memory|sqlite|postgresql)") as caught:
        await runner.get_task("missing")
    assert isinstance(caught.value, LookupError)


async def test_a_snapshot_does_not_change_and_a_newer_one_does(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?", extra_state={"tries": 3})
    await runner.run_step(task)
    assert (task.state, task.steps) == ("created", 0)
    newer = await runner.get_task(task)
    assert (newer.state, newer.driven, newer.steps, newer.extra_state) == ("running", False, 1, {"tries": 3})


async def test_upcoming_steps_are_a_copy_of_what_comes_next(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    (first,) = await runner.get_upcoming_steps(task)
    assert (first.step_id, first.index, first.attempt, first.status) == ("s1", 1, 1, "next")
    assert [part.text for part in first.input] == ["?"]
    await runner.run_step(task)
    (second,) = await runner.get_upcoming_steps(task)
    assert (second.step_id, second.input) == ("s2", ())
    await step_to_answer(runner, task)
    assert await runner.get_upcoming_steps(task) == ()


async def test_completed_steps_are_returned_in_order(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    assert await runner.get_completed_steps(task) == ()
    await step_to_answer(runner, task)
    steps = await runner.get_completed_steps(task)
    assert [(out.step.step_id, out.step.status) for out in steps] == [
        ("s1", "completed"),
        ("s2", "completed"),
        ("s3", "completed"),
    ]
    assert [out.is_last for out in steps] == [False, False, True]


async def test_a_completed_step_of_an_ended_task_is_still_only_the_last_if_it_answered(
    runner: Runner,
) -> None:
    result = await runner.run(calculator(), "?")
    steps = await runner.get_completed_steps(result.task_id)
    assert [out.is_last for out in steps] == [False, False, True]


async def test_one_step_is_got_by_id_or_index(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, task)
    by_id = await runner.get_step(task, "s2")
    assert by_id == await runner.get_step(task, 2)
    assert roles_and_texts(by_id.messages) == [("assistant", "add"), ("tool", "405")]
    with pytest.raises(StepNotFound, match="has no step 's9'"):
        await runner.get_step(task, "s9")
    with pytest.raises(StepNotFound, match="has no step 0"):
        await runner.get_step(task, 0)


async def test_lists_filter_by_state_agent_thread_time_and_go_on_at_a_cursor(runner: Runner) -> None:
    made = []
    for number in range(5):
        agent = sayer(name="even" if number % 2 == 0 else "odd")
        task = await runner.create_task(agent, str(number), thread_id=f"t{number % 2}")
        made.append(task.task_id)
    await runner.resume(made[0])
    newest_first = made[::-1]

    async def ids(**filters: Any) -> list[str]:
        return [item.task_id for item in (await runner.list_tasks(**filters)).items]

    assert await ids() == newest_first
    assert await ids(state="completed") == [made[0]]
    assert await ids(state="created") == newest_first[:-1]
    assert await ids(agent="odd") == [made[3], made[1]]
    assert await ids(thread_id="t0") == [made[4], made[2], made[0]]
    assert await ids(agent="odd", thread_id="t0") == []
    assert await ids(parent="missing") == []
    third = await runner.get_task(made[2])
    assert await ids(since=third.created) == newest_first[:3]
    page = await runner.list_tasks(limit=2)
    assert [item.task_id for item in page.items] == newest_first[:2]
    rest: list[str] = []
    while page.cursor is not None:
        page = await runner.list_tasks(limit=2, cursor=page.cursor)
        rest += [item.task_id for item in page.items]
    assert rest == newest_first[2:]
    fork = await runner.fork(made[0])
    assert await ids(forked_from=made[0]) == [fork.task_id]


async def test_a_page_that_ends_the_list_has_no_cursor(runner: Runner) -> None:
    for number in range(2):
        await runner.create_task(sayer(), str(number))
    assert (await runner.list_tasks(limit=2)).cursor is None
    assert (await runner.list_tasks(limit=1)).cursor is not None


async def test_a_task_that_is_being_driven_is_listed_as_running(runner: Runner) -> None:
    handle = await runner.start(sayer(text("slow", delay=30)), "?")
    (item,) = (await runner.list_tasks(state="running")).items
    assert (item.task_id, item.driven) == (handle.task_id, True)
    await handle.cancel()
    assert (await runner.list_tasks(state="running")).items == ()


async def test_lists_filter_by_root_and_by_change(runner: Runner) -> None:
    below = sayer(name="below")
    above = Agent(ScriptedModel([call("below", input="?"), "done"]), name="above", subagents=[below])
    resting = await runner.create_task(sayer(name="resting"), "?")
    root = (await runner.run(above, "?")).task_id

    async def ids(**filters: Any) -> list[str]:
        return [item.agent for item in (await runner.list_tasks(**filters)).items]

    assert await ids() == ["below", "above", "resting"]
    assert await ids(roots=True) == ["above", "resting"]
    assert (await runner.count_tasks(roots=True)).tasks == 2
    updated = (await runner.get_lineage(root)).task.updated
    assert updated is not None
    assert await ids(updated_since=updated) == ["above"]
    assert await ids(updated_since=datetime.fromtimestamp(updated / 1e6 + 1, UTC)) == []
    await runner.run_step(resting)
    assert await ids(updated_since=updated) == ["above", "resting"]
    assert (await runner.count_tasks(updated_since=updated, roots=True)).tasks == 2
    with pytest.raises(ConfigurationError, match="roots must be True or False"):
        await runner.list_tasks(roots="yes")  # type: ignore[arg-type]
