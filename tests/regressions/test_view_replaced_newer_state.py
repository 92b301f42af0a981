"""A view that read a task during a drive replaced the newer state of the drive by its own."""

import pytest

from treadle import Agent, Runner, ScriptedModel


@pytest.mark.anyio
async def test_a_cached_state_is_not_replaced_by_an_older_one() -> None:
    agent = Agent(ScriptedModel(["Hi.", "Hi again."]))
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go")
        older = await runner._driver.cache.take(task.task_id)
        await runner.run_step(task)
        newer = await runner._driver.cache.load(task.task_id)
        runner._driver.cache.keep(older)
        assert list(runner._driver.cache._cached[task.task_id].values()) == [newer]
        assert newer.state.seq > older.state.seq
