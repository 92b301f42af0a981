"""Tasks that are created: with which first events, in which thread, and owned by this process."""

import pytest

from tests.cast import sayer
from tests.runner.acts import journal
from treadle import Runner, RunOptions, Text
from treadle.core import events as e
from treadle.drivers.new_task import ChildOf, NewRun
from treadle.drivers.owned_tasks import OwnedTask
from treadle.ports import TaskExists

pytestmark = pytest.mark.anyio

INPUT = (Text("go"),)


async def test_a_new_task_is_owned_and_in_the_store_with_its_first_commit() -> None:
    async with Runner("memory:") as runner:
        driver = runner._driver
        owned = await driver.creator.create(NewRun(sayer(), INPUT))
        task_id = owned.state.task_id
        assert driver.owned.is_owned(task_id)
        assert await driver.cache.row_or_none(task_id) is None
        await driver.ownership.release(owned)
        row = await driver.cache.row(task_id)
        assert (row.agent, row.epoch, row.driver) == ("sayer", 1, None)


async def test_an_id_of_the_caller_is_made_at_once_and_only_once() -> None:
    async with Runner("memory:") as runner:
        driver = runner._driver
        owned = await driver.creator.create(NewRun(sayer(), INPUT, task_id="mine"))
        assert (await driver.cache.row("mine")).agent == "sayer"
        with pytest.raises(TaskExists):
            await driver.creator.create(NewRun(sayer(), INPUT, task_id="mine"))
        await driver.ownership.release(owned)
        with pytest.raises(TaskExists):
            await driver.creator.create(NewRun(sayer(), INPUT, task_id="mine"))


async def test_a_new_task_begins_with_the_messages_of_its_thread() -> None:
    async with Runner("memory:") as runner:
        await runner.run(sayer("Hello."), "Hi", thread_id="talk")
        owned = await runner._driver.creator.create(NewRun(sayer(), INPUT, "talk"))
        assert [message.text for message in owned.state.history] == ["Hi", "Hello."]
        await runner._driver.ownership.release(owned)


async def test_a_child_is_created_in_a_thread_of_its_own_with_the_options_of_its_parent_alone() -> None:
    relayed: list[OwnedTask] = []
    parent = ChildOf("root", "s1-0", 1, relayed.append)
    async with Runner("memory:", options=RunOptions(labels={"team": "a"})) as runner:
        new = NewRun(sayer(), INPUT, task_id="root.s1-0", options=RunOptions(), child_of=parent)
        owned = await runner._driver.creator.create(new)
        state = owned.state
        assert relayed == [owned]
        assert (state.parent, state.parent_call, state.depth, state.thread) == (
            "root",
            "s1-0",
            1,
            "root.s1-0",
        )
        assert (await runner._driver.cache.row("root.s1-0")).labels == {}
        await runner._driver.ownership.release(owned)
        created = (await journal(runner, "root.s1-0"))[0]
        assert isinstance(created, e.TaskCreated)
        assert created.incarnation
