"""The tasks that a process owns, and what it wakes when one of them leaves."""

import asyncio

import pytest

from tests.cast import sayer
from treadle import Runner
from treadle.engine.journal_writer import Lease
from treadle.ports import TaskExists

pytestmark = pytest.mark.anyio


async def test_a_task_is_registered_once_and_driven_as_long_as_it_is() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        tasks, row = runner._driver.owned, await runner.store.row(task_id)
        assert not tasks.is_driven(row)
        owned = await runner._driver.ownership.claim(task_id)
        assert tasks.is_owned(task_id)
        assert tasks.is_driven(row)
        with pytest.raises(TaskExists):
            tasks.add(owned.state, Lease(2, b""))
        await runner._driver.ownership.release(owned)
        assert not tasks.is_owned(task_id)
        assert tasks.unreleased == {}


async def test_a_task_that_leaves_without_a_release_is_noted_with_its_epoch() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        owned = await runner._driver.ownership.claim(task_id)
        runner._driver.owned.remove(owned)
        assert runner._driver.owned.unreleased == {task_id: owned.writer.epoch}
        assert not runner._driver.owned.is_driven(await runner.store.row(task_id))


async def test_a_watch_wakes_when_the_task_is_released_and_the_news_are_announced() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        tasks, news = runner._driver.owned, list[bool]()
        owned = await runner._driver.ownership.claim(task_id)
        tasks.on_news = lambda wanted: news.append(tasks.is_owned(task_id))
        with tasks.watching(task_id) as task:
            task.skip()
            waiting = asyncio.ensure_future(task.changed())
            await asyncio.sleep(0)
            assert not waiting.done()
            await runner._driver.ownership.release(owned)
            await asyncio.wait_for(waiting, 5)
        assert news[-1] is False


async def test_an_inbox_is_read_soon_by_the_driver_of_this_process_only() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        assert not runner._driver.owned.read_inbox_soon(task_id)
        async with runner._driver.ownership.acquire(task_id):
            assert runner._driver.owned.read_inbox_soon(task_id)
