"""Acquiring and releasing tasks."""

from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import until
from treadle import Runner
from treadle.core import events as e
from treadle.drivers.owned_tasks import OwnedTask
from treadle.engine.inbox import SURVIVED
from treadle.errors import StoreUnavailable, TaskBusy
from treadle.ports import Commit, InboxItem
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_task_is_owned_for_the_length_of_a_block_also_when_it_raises() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        ownership = runner._driver.ownership
        owned: OwnedTask | None = None

        async def block() -> None:
            nonlocal owned
            async with ownership.acquire(task_id) as owned:
                with pytest.raises(TaskBusy):
                    await ownership.claim(task_id)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        assert owned is not None
        assert owned.writer.released
        assert (await runner.store.row(task_id)).driver is None


async def test_a_release_reads_the_inbox_first() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        async with runner._driver.ownership.acquire(task_id) as owned:
            await runner.store.post(task_id, InboxItem("i", "pause", {"by": "ada", "reason": None}, 5))
        assert owned.state.pausing
        assert await runner.store.inbox(task_id) == []


class Refusing(MemoryStore):
    """A store that cannot be written for a while."""

    refuses = False

    def commit(self, commit: Commit, done: Any) -> None:
        if self.refuses:
            done(StoreUnavailable("no room"))
        else:
            super().commit(commit, done)


async def test_a_task_that_could_not_be_released_is_released_once_the_store_can_be_written() -> None:
    store = Refusing()
    async with Runner(store) as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        with pytest.raises(StoreUnavailable):
            async with runner._driver.ownership.acquire(task_id) as owned:
                store.refuses = True
        assert runner._driver.owned.unreleased == {task_id: owned.writer.epoch}
        store.refuses = False
        await until(lambda: not runner._driver.ownership._retries)
        assert runner._driver.owned.unreleased == {}
        row = await store.row(task_id)
        assert (row.driver, row.epoch) == (None, owned.writer.epoch)


class Unreadable(MemoryStore):
    """A store that cannot be read for a while."""

    refuses = False

    async def read(self, *place: Any, **page: Any) -> Any:
        if self.refuses:
            raise StoreUnavailable("no answer")
        return await super().read(*place, **page)


async def test_a_task_that_could_not_be_loaded_is_free_for_the_next_driver() -> None:
    store = Unreadable()
    async with Runner(store) as runner, Runner(store) as other:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        store.refuses = True
        with pytest.raises(StoreUnavailable):
            await other._driver.ownership.claim(task_id)
        store.refuses = False
        assert (await store.row(task_id)).driver is None
        assert other._driver.owned.unreleased == {}
        async with runner._driver.ownership.acquire(task_id):
            pass


async def test_a_driver_that_lost_its_task_reports_that_it_is_alive() -> None:
    store = MemoryStore()
    async with Runner(store) as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        owned = await runner._driver.ownership.claim(task_id)
        await store.close()  # its lease passes
        await store.open()
        claim = await store.claim(task_id)
        owned.writer.record(e.PauseRequested("ada", None))
        owned.writer.flush()
        await until(lambda: owned.writer.failure is not None)
        await runner._driver.ownership.release(owned)
        (item,) = await store.inbox(task_id)
        assert (item.kind, item.data) == (SURVIVED, {"epoch": owned.writer.epoch})
        assert claim.epoch == owned.writer.epoch + 1


async def test_calls_that_the_last_driver_left_open_are_marked_when_a_task_is_claimed() -> None:
    store = MemoryStore()
    async with Runner(store) as runner:
        task_id = (await runner.create_task(calculator(), "go")).task_id
        owned = await runner._driver.ownership.claim(task_id)
        owned.writer.record(e.StepStarted("s1", 1))
        owned.writer.record(e.ModelStarted("s1", "scripted:x"))
        await owned.writer.durable()
        await store.close()
        await store.open()
        runner._driver.owned.tasks.pop(task_id)
        async with runner._driver.ownership.acquire(task_id):
            pass
        events = [event async for event in runner.handle(task_id).events()]
        stopped = [event for event in events if isinstance(event, e.ModelStopped)]
        assert [(event.step, event.reason) for event in stopped] == [("s1", "crash")]
