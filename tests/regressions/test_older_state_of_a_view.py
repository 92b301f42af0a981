"""A view that read a task while it was driven put its older state over that of the drive."""

import pytest

from treadle import Agent, Runner, ScriptedModel


@pytest.mark.anyio
async def test_what_is_known_of_a_task_is_not_replaced_by_something_older() -> None:
    agent = Agent(ScriptedModel(["Hi.", "Hi again."]))
    async with Runner("memory:") as runner:
        task = await runner.create_task(agent, "go")
        older = await runner.driver.cache.take(task.task_id)
        await runner.run_step(task)
        newer = await runner.driver.cache.load(task.task_id)
        runner.driver.cache.keep(older)
        assert runner.driver.cache._cached[task.task_id] is newer
        assert newer.state.seq > older.state.seq
