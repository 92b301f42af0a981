"""A run of a task that nobody needs afterwards left it in the store until a `prune`."""

from typing import Any

import pytest

from tests.client.served import client, served
from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.errors import TaskNotFound
from treadle.models import call, fail, text

pytestmark = pytest.mark.anyio

ONCE = RunOptions(delete_on_finish=True)


def sayer(*turns: Any) -> Agent[Any]:
    return Agent(ScriptedModel(list(turns) or ["Done."]), name="sayer")


async def is_stored(runner: Runner, task_id: str) -> bool:
    try:
        await runner.get_task(task_id)
    except TaskNotFound:
        return False
    return True


async def test_a_run_returns_its_result_and_leaves_only_its_thread(runner: Runner) -> None:
    result = await runner.run(sayer(), "Go.", thread_id="talk", task_id="t", options=ONCE)
    assert (result.state, result.final_text) == ("completed", "Done.")
    assert not await is_stored(runner, "t")
    assert [message.text for message in await runner.get_thread("talk")] == ["Go.", "Done."]


async def test_a_streamed_run_is_deleted_after_its_block(runner: Runner) -> None:
    async with runner.run_stream(sayer(), "Go.", task_id="t", options=ONCE) as stream:
        kinds = [getattr(event, "kind", "") async for event in stream]
        assert await is_stored(runner, "t")
    assert kinds[-1] == "task_ended"
    assert stream.result.final_text == "Done."
    assert not await is_stored(runner, "t")


async def test_a_run_without_asyncio_is_deleted(runner: Runner) -> None:
    assert runner.run_sync(sayer(), "Go.", task_id="t", options=ONCE).final_text == "Done."
    assert not await is_stored(runner, "t")


async def test_a_resumed_task_is_deleted_by_the_options_it_was_begun_with(runner: Runner) -> None:
    @tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    agent = Agent(ScriptedModel([call("pay"), text("Paid.")]), name="payer", tools=[pay])
    waiting = await runner.run(agent, "Pay.", task_id="t", options=ONCE)
    assert (waiting.state, await is_stored(runner, "t")) == ("waiting", True)
    await runner.approve("t")
    assert (await runner.resume("t")).final_text == "Paid."
    assert not await is_stored(runner, "t")


async def test_a_task_with_a_fork_stays(runner: Runner) -> None:
    agent = sayer("Done.", "Again.")
    task = await runner.create_task(agent, "Go.", task_id="t", options=ONCE)
    fork = await runner.fork(task, at=1, task_id="f")
    await runner.resume(task)
    assert await is_stored(runner, "t")
    await runner.resume(fork)
    assert not await is_stored(runner, "f")


async def test_a_child_stays_until_its_parent_is_deleted(runner: Runner) -> None:
    boss = Agent(ScriptedModel([call("sayer", input="x"), text("All.")]), name="boss", subagents=[sayer()])
    assert (await runner.run(boss, "Go.", task_id="t", options=ONCE)).final_text == "All."
    assert not (await runner.list_tasks()).items


async def test_a_task_that_is_only_started_stays(runner: Runner) -> None:
    handle = await runner.start(sayer(), "Go.", task_id="t", options=ONCE)
    assert (await handle.result()).final_text == "Done."
    assert await is_stored(runner, "t")


async def test_a_failed_task_stays(runner: Runner) -> None:
    result = await runner.run(sayer(fail(400)), "Go.", task_id="t", options=ONCE)
    assert (result.state, await is_stored(runner, "t")) == ("failed", True)


async def test_a_server_deletes_what_its_client_ran() -> None:
    agent = sayer("Done.", "Done.")
    with served(agent) as url:
        async with client(url, agents=(agent,)) as remote:
            assert (await remote.run(agent, "Go.", task_id="a", options=ONCE)).final_text == "Done."
            async with remote.run_stream(agent, "Go.", task_id="b", options=ONCE) as stream:
                kinds = [getattr(event, "kind", "") async for event in stream]
            assert (kinds[-1], stream.result.final_text) == ("task_ended", "Done.")
            assert not (await remote.list_tasks()).items


@pytest.mark.parametrize("value", ["yes", 1.5])
def test_only_true_and_false_are_taken(value: Any) -> None:
    with pytest.raises(ValueError, match="delete_on_finish"):
        RunOptions(delete_on_finish=value)
