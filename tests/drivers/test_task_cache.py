"""Rows and states of tasks: read anew, from the cache, and as they were."""

import pytest

from tests.runner.cases import calculator, sayer
from treadle import Runner
from treadle.drivers import task_cache
from treadle.drivers.task_cache import TaskCache
from treadle.errors import TaskNotFound

pytestmark = pytest.mark.anyio


async def test_only_what_is_newer_than_the_cache_entry_is_read() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(calculator(), "go")
        cache = TaskCache(runner.store)
        first = await cache.load(task.task_id)
        await runner.run_step(task)
        second = await cache.load(task.task_id)
        assert second is first
        assert second.state.seq == (await runner.store.row(task.task_id)).head


async def test_the_entry_of_a_deleted_task_is_not_used_for_another_of_its_id() -> None:
    async with Runner("memory:") as one:
        await one.run(sayer("First."), "go", task_id="t")
        cache = TaskCache(one.store)
        before = await cache.load("t")
        row = await one.store.row("t")
        row.head -= 1  # as the row of a younger task of that id would be
        after = await cache.load("t", row)
        assert after is not before
        assert after.state.output_text == "First."


async def test_the_state_at_an_event_is_that_of_its_moment() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go")
        cache = TaskCache(runner.store)
        assert (await cache.state_at(result.task_id, 1)).seq == 1
        assert (await cache.state_at(result.task_id, 1)).ended is None
        assert (await cache.load(result.task_id)).state.ended == "completed"


async def test_the_cache_is_bounded_and_drops_the_entry_that_was_used_least_recently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_cache, "CACHED_TASKS", 2)
    async with Runner("memory:") as runner:
        agent = sayer(*["Hi."] * 3)
        ids = [(await runner.run(agent, "go")).task_id for _ in range(3)]
        cache = TaskCache(runner.store)
        entries = [await cache.load(task_id) for task_id in ids]
        assert await cache.load(ids[2]) is entries[2]
        assert await cache.load(ids[1]) is entries[1]
        assert await cache.load(ids[0]) is not entries[0]


async def test_the_error_for_a_missing_task_says_when_the_id_is_that_of_a_thread() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go", thread_id="talk")
        cache = TaskCache(runner.store)
        assert await cache.row_or_none("talk") is None
        with pytest.raises(TaskNotFound, match=f"talk is a thread, .* last task is {result.task_id}"):
            await cache.row("talk")
        with pytest.raises(TaskNotFound, match="no task 'missing'"):
            await cache.row("missing")
