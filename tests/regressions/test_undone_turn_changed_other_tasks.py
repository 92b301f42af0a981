"""Undoing or deleting a turn of a thread changed the history of other tasks, or did not remove its messages."""

from typing import Any

import pytest

from tests.cast import sayer
from tests.runner.acts import roles_and_texts
from treadle import Agent, Runner, ScriptedModel, Task
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


def echo() -> Agent[Any]:
    """An agent that repeats the newest message, and says how many messages it saw."""
    return Agent(
        ScriptedModel(lambda request: f"re: {request.messages[-1].text} ({len(request.messages)})"),
        name="echo",
    )


async def problems(runner: Runner) -> list[Any]:
    return [*(await runner.verify()).findings, *await audit_store(runner.store)]


@pytest.mark.parametrize("forked", [True, False])
async def test_a_task_keeps_the_messages_it_began_with_after_their_turn_is_undone_and_deleted(
    store: Any, forked: bool
) -> None:
    agent = echo()
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(agent, "one", thread_id="talk")
        two = await runner.create_task(agent, "two", thread_id="talk")
        fork = await runner.fork(result.task_id) if forked else None
        await runner.undo_step(result.task_id)
        await runner.delete_task(result.task_id)
    async with Runner(store, agents=[agent]) as runner:
        assert await problems(runner) == []
        state = (await runner._driver.cache.load(two.task_id)).state
        assert roles_and_texts(state.history) == [("user", "one"), ("assistant", "re: one (1)")]
        await runner.resume(two)
        assert roles_and_texts(await runner.get_thread("talk")) == [
            ("user", "two"),
            ("assistant", "re: two (1)"),
        ]
        if fork is not None:
            assert (await runner.resume(fork)).state == "completed"
        assert await problems(runner) == []


async def three_turns(runner: Runner, agent: Agent[Any]) -> list[Task]:
    """Tasks of a thread, the first two finalized."""
    tasks = [
        await runner.create_task(agent, message, thread_id="talk", task_id=message)
        for message in ("one", "two")
    ]
    for task in tasks:
        await runner.resume(task)
    return tasks


async def test_a_turn_that_is_finalized_again_brings_no_undone_messages_back(store: Any) -> None:
    agent = echo()
    async with Runner(store, agents=[agent]) as runner:
        first, two = await three_turns(runner, agent)
        await runner.undo_step(two)
        await runner.undo_step(first)
        await runner.resume(two)
        words_of_two = [("user", "two"), ("assistant", "re: two (3)")]
        assert roles_and_texts(await runner.get_thread("talk")) == words_of_two
        await runner.resume(first)
        words_of_one = [("user", "one"), ("assistant", "re: one (1)")]
        assert roles_and_texts(await runner.get_thread("talk")) == [*words_of_two, *words_of_one]
    async with Runner(store, agents=[agent]) as runner:
        assert roles_and_texts(await runner.get_thread("talk")) == [*words_of_two, *words_of_one]
        assert (await runner.run(agent, "three", thread_id="talk")).final_text == "re: three (5)"
        assert await problems(runner) == []


async def test_a_turn_that_runs_while_the_turn_before_is_undone_adds_only_its_messages(
    store: Any,
) -> None:
    agent = echo()
    async with Runner(store, agents=[agent]) as runner:
        result = await runner.run(sayer("Hi.", name="other"), "one", thread_id="talk")
        two = await runner.create_task(agent, "two", thread_id="talk")
        await runner.run_step(two)
        await runner.undo_step(result.task_id)
        await runner.finalize(two)
        assert roles_and_texts(await runner.get_thread("talk")) == [
            ("user", "two"),
            ("assistant", "re: two (3)"),
        ]
        assert (await runner.run(agent, "three", thread_id="talk")).final_text == "re: three (3)"


async def test_a_fork_in_the_thread_of_its_task_brings_no_undone_turns_of_that_thread(store: Any) -> None:
    agent = echo()
    async with Runner(store, agents=[agent]) as runner:
        first, two = await three_turns(runner, agent)
        fork = await runner.fork(two, input="and?", thread_id="talk")
        await runner.undo_step(two)
        await runner.undo_step(first)
        await runner.resume(fork)
        shared = [("user", "two"), ("assistant", "re: two (3)")]
        messages = [*shared, ("user", "and?"), ("assistant", "re: and? (5)")]
        assert roles_and_texts(await runner.get_thread("talk")) == messages


async def test_a_fork_in_another_thread_keeps_the_messages_its_task_began_with(store: Any) -> None:
    agent = echo()
    async with Runner(store, agents=[agent]) as runner:
        first, two = await three_turns(runner, agent)
        fork = await runner.fork(two, input="and?", thread_id="aside")
        before = roles_and_texts(await runner.get_thread("talk"))
        for task in (two, first):
            await runner.undo_step(task)
            await runner.delete_task(task)
        await runner.resume(fork)
        added = [("user", "and?"), ("assistant", "re: and? (5)")]
    async with Runner(store, agents=[agent]) as runner:
        assert roles_and_texts(await runner.get_thread("aside")) == [*before, *added]
        assert roles_and_texts(await runner.get_thread("talk")) == []
        assert await problems(runner) == []
