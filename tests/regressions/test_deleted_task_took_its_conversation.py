"""Deleting the last listed task of a thread deleted the whole conversation."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.errors import TaskNotFound, ThreadNotFound
from treadle.llm.scripted import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


def hearer() -> Agent[Any]:
    return Agent(ScriptedModel(lambda request: text(f"heard {len(request.messages)}")), name="hearer")


async def sound(runner: Runner) -> bool:
    return (await runner.verify()).findings == () and await audit_store(runner.store) == []


async def test_the_conversation_stays_when_the_last_task_is_deleted(store: Any) -> None:
    agent = hearer()
    async with Runner(store, agents=[agent]) as runner:
        first = await runner.run(agent, "One.", thread_id="talk")
        second = await runner.run(agent, "Two.", thread_id="talk")
        said = [message.text for message in await runner.get_thread("talk")]
        assert said == ["One.", "heard 1", "Two.", "heard 3"]
        for result in (first, second):
            await runner.delete_task(result.task_id)
            with pytest.raises(TaskNotFound):
                await runner.get_task(result.task_id)
            assert [message.text for message in await runner.get_thread("talk")] == said
        assert (await runner.list_tasks()).items == ()
        assert [(item.thread_id, item.turns) for item in (await runner.list_threads()).items] == [("talk", 2)]
        assert await sound(runner)
        third = await runner.run(agent, "Three.", thread_id="talk")
        assert third.final_text == "heard 5", "the conversation goes on"
        await runner.delete_thread("talk")
        assert list(await runner.get_thread("talk")) == []
        with pytest.raises(ThreadNotFound):
            await runner.delete_thread("talk")
        assert (await runner.run(agent, "Anew.", thread_id="talk")).final_text == "heard 1"
        assert await sound(runner)


async def test_a_conversation_without_tasks_is_exported_and_imported(store: Any, tmp_path: Any) -> None:
    agent = hearer()
    async with Runner(store, agents=[agent]) as runner, Runner("memory:", agents=[agent]) as other:
        first = await runner.run(agent, "One.", thread_id="talk")
        await runner.delete_task(first.task_id)
        second = await runner.run(agent, "Two.", thread_id="talk")
        file = tmp_path / "all.jsonl"
        await runner.export_tasks(file)
        await other.import_tasks(file)
        await other.delete_task(second.task_id)
        assert [message.text for message in await other.get_thread("talk")] == [
            *("One.", "heard 1", "Two.", "heard 3"),
        ]
        assert await sound(other)


async def test_undo_and_forks_do_not_bring_a_deleted_thread_back(store: Any) -> None:
    agent = hearer()
    async with Runner(store, agents=[agent]) as runner:
        first = await runner.run(agent, "One.", thread_id="talk")
        second = await runner.run(agent, "Two.", thread_id="talk")
        fork = await runner.fork(second.task_id, thread_id="aside", input="Else?")
        await runner.delete_thread("talk")
        assert list(await runner.get_thread("talk")) == [], "it is empty at once"
        assert (await runner.run(agent, "Anew.", thread_id="talk")).final_text == "heard 1"
        assert (await runner.resume(fork)).final_text == "heard 5", "the fork knows what it began with"
        assert await sound(runner)
        await runner.delete_task(fork)
        assert [message.text for message in await runner.get_thread("aside")][:2] == ["One.", "heard 1"]
        assert await sound(runner)
        await runner.delete_thread("aside")
        await runner.delete_thread("talk")
        assert (await runner.list_threads()).items == ()
        for task in (first, second, fork):
            with pytest.raises(TaskNotFound):
                await runner.store.read(task.task_id)


async def test_a_task_goes_with_what_its_subagents_said(store: Any) -> None:
    child = Agent(ScriptedModel(["a rose"]), name="child")
    parent = Agent(ScriptedModel([call("child", input="go"), "a poem"]), name="parent", subagents=[child])
    async with Runner(store, agents=[parent]) as runner:
        result = await runner.run(parent, "Write.", thread_id="talk")
        await runner.delete_task(result.task_id)
        assert [item.thread_id for item in (await runner.list_threads()).items] == ["talk"]
        with pytest.raises(TaskNotFound):
            await runner.store.read(result.subagent_executions[0].task_id)
        assert [message.text for message in await runner.get_thread("talk")][-1] == "a poem"
        assert await sound(runner)
