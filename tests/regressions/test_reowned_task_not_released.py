"""A process that lost a task during a stalled drive, and owned it again later, did not release it."""

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.engine.journal_writer import Lease
from treadle.errors import TaskBusy


@pytest.mark.anyio
async def test_a_drive_that_ends_late_does_not_hide_the_newer_ownership_that_needs_a_release() -> None:
    async with Runner("memory:") as runner:
        task = await runner.create_task(Agent(ScriptedModel(["Hi."])), "go")
        owned = runner._driver.owned
        late = owned.add((await runner._driver.cache.load(task.task_id)).state, Lease(2, b""))
        owned.unreleased[task.task_id] = 3  # it came back, and could not be released yet
        owned.remove(late)
        assert owned.unreleased == {task.task_id: 3}
        owned.unreleased.clear()


@pytest.mark.anyio
async def test_a_task_that_could_not_be_released_does_not_count_as_owned_once_another_driver_owns_it() -> (
    None
):
    async with Runner("memory:") as runner:
        task = await runner.create_task(Agent(ScriptedModel(["Hi."])), "go")
        former = await runner.store.claim(task.task_id)
        await runner.store.close()  # whose it was, to the store, is as good as dead
        await runner.store.open()
        await runner.store.claim(task.task_id)
        runner._driver.owned.unreleased[task.task_id] = former.epoch
        with pytest.raises(TaskBusy):
            await runner._driver.ownership.claim(task.task_id)
