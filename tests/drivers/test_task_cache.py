"""Rows and states of tasks: read anew, from the cache, and as they were."""

import asyncio

import pytest

from tests.cast import calculator, sayer
from treadle import Runner
from treadle.core.state import TaskState
from treadle.drivers.task_cache import TaskCache
from treadle.engine import time_slice
from treadle.engine.time_slice import TimeSlice
from treadle.errors import TaskNotFound
from treadle.models import call

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


async def test_the_cache_is_bounded_and_drops_the_entry_that_was_used_least_recently() -> None:
    async with Runner("memory:") as runner:
        agent = sayer(*["Hi."] * 3)
        ids = [(await runner.run(agent, "go")).task_id for _ in range(3)]
        cache = TaskCache(runner.store, 2)
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


async def test_a_task_is_cached_for_each_thread_that_reads_it() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go")
        cache = TaskCache(runner.store)
        here = await cache.load(result.task_id)
        elsewhere = [await asyncio.to_thread(asyncio.run, cache.load(result.task_id)) for _ in range(2)]
        assert elsewhere[0] is not here
        assert await cache.load(result.task_id) is here, "a reader in another thread did not take it away"
        cache.forget(result.task_id)
        assert await cache.load(result.task_id) is not here


async def test_readers_of_one_task_wait_for_each_other_and_read_it_once() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go")
        cache, states = TaskCache(runner.store), list[TaskState]()

        async def read() -> None:
            async with cache.reading(result.task_id) as state:
                seq = state.seq
                await asyncio.sleep(0)
                assert state.seq == seq
                states.append(state)

        await asyncio.gather(*[read() for _ in range(5)])
        assert len({id(state) for state in states}) == 1


async def test_a_state_that_is_being_read_does_not_change_while_its_task_goes_on() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(calculator(), "go")
        cache = TaskCache(runner.store)
        async with cache.reading(task.task_id) as state:
            await runner.run_step(task)
            newer = (await cache.load(task.task_id)).state
            assert (state.steps, len(newer.steps)) == ([], 1)
        assert len((await cache.load(task.task_id)).state.steps) == 1


async def test_other_work_gets_its_turn_while_a_long_task_is_read() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(
            calculator(*[call("add", a=number, b=2) for number in range(100)], "3"), "go"
        )
        for _ in range(101):
            await runner.run_step(task)
        cache, turns = TaskCache(runner.store), list[int]()

        async def other_work() -> None:
            while True:
                turns.append(1)
                await asyncio.sleep(0)

        other = asyncio.ensure_future(other_work())
        await asyncio.sleep(0)
        turns.clear()
        slices = TimeSlice.pause
        paused = list[int]()

        async def counted(self: TimeSlice) -> None:
            paused.append(1)
            await slices(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time_slice, "SLICE_SECONDS", 0.0)
            patch.setattr(TimeSlice, "pause", counted)
            state = (await cache.load(task.task_id)).state
        other.cancel()
        assert len(state.steps) == 101
        assert len(turns) >= len(paused) > 100
