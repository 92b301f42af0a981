"""What is recorded in a task before it is driven on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.cast import sayer
from tests.runner.acts import journal
from treadle import Runner, RunOptions
from treadle.core import events as e
from treadle.core.state import start
from treadle.drivers.continuing import (
    change_options,
    check_not_a_child,
    commit,
    lift_stop,
    options_of_fork,
    reopen,
    take_from_inbox,
)
from treadle.errors import ChildTask, Fenced
from treadle.policy.limits import Limits
from treadle.ports import Commit, Committed, InboxItem

pytestmark = pytest.mark.anyio


def test_a_child_is_not_driven_alone() -> None:
    check_not_a_child("t", None)
    with pytest.raises(ChildTask, match="task t is a child of task p"):
        check_not_a_child("t", "p")


async def test_a_stop_is_lifted_once() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        async with runner._driver.ownership.acquire(task_id) as owned:
            lift_stop(owned, "ada")
            owned.writer.record(e.PauseRequested("ada", None))
            lift_stop(owned, "bob")
            lift_stop(owned, "eve")
        events = await journal(runner, task_id)
        assert [event.by for event in events if isinstance(event, e.Resumed)] == ["bob"]


async def test_options_are_recorded_when_they_differ_and_a_raised_limit_is_marked() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        async with runner._driver.ownership.acquire(task_id) as owned:
            change_options(owned, None)
            change_options(owned, RunOptions())
            assert owned.state.options is None
            change_options(owned, RunOptions(limits=Limits(steps=9)))
            assert owned.state.options["raised"] is True
        events = await journal(runner, task_id)
        assert [event.kind for event in events].count("options_changed") == 1


def test_a_fork_has_the_options_of_its_parent_under_those_of_the_caller() -> None:
    state = start("t")
    state.options = {"tool_output_max_chars": 100}
    assert options_of_fork(state.options, None) == state.options
    merged = options_of_fork(state.options, RunOptions(tell_steps_left=True))
    assert merged == {"tool_output_max_chars": 100, "tell_steps_left": True}


async def test_items_that_were_read_meanwhile_are_not_recorded_again() -> None:
    async with Runner("memory:") as runner:
        task_id = (await runner.create_task(sayer(), "go")).task_id
        async with runner._driver.ownership.acquire(task_id) as owned:
            items = [InboxItem(name, "pause", {"by": name}, 5) for name in ("ada", "bob")]
            await runner.store.post(task_id, items[1])
            await take_from_inbox(runner.store, owned, items)
        events = await journal(runner, task_id)
        assert [event.by for event in events if isinstance(event, e.PauseRequested)] == ["bob"]


async def test_reopening_a_task_removes_it_from_its_thread_and_empties_its_inbox() -> None:
    async with Runner("memory:") as runner:
        result = await runner.run(sayer(), "go", thread_id="talk")
        await runner.store.post(result.task_id, InboxItem("late", "pause", {"by": "ada"}, 5))
        async with runner._driver.ownership.acquire(result.task_id) as owned:
            await reopen(runner.store, owned, "test", "ada")
            assert owned.state.attempt == 2
            assert list(await runner.get_thread("talk")) == []
        assert await runner.store.inbox(result.task_id) == []
        assert not (await runner._driver.cache.load(result.task_id)).state.pausing


# ------------------------------------------------------------------------------- commits outside of a drive


class OneAnswer:
    """A store that answers each commit when the test says so."""

    def __init__(self) -> None:
        self.done: Callable[[Committed | Exception], None] | None = None

    def commit(self, request: Commit, done: Callable[[Committed | Exception], None]) -> None:
        self.done = done


async def begun(store: Any) -> "asyncio.Task[Committed]":
    task = asyncio.ensure_future(commit(store, Commit("t", 1)))
    await asyncio.sleep(0)
    return task


async def test_a_commit_returns_the_answer_of_the_store() -> None:
    store = OneAnswer()
    task = await begun(store)
    assert store.done is not None
    store.done(Committed(released=True))
    assert (await task).released


async def test_a_refusal_of_the_store_is_raised() -> None:
    store = OneAnswer()
    task = await begun(store)
    assert store.done is not None
    store.done(Fenced("another driver owns it"))
    with pytest.raises(Fenced):
        await task


async def test_an_answer_that_comes_after_the_caller_was_cancelled_is_ignored() -> None:
    store = OneAnswer()
    task = await begun(store)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.done is not None
    store.done(Committed())
