"""Work that is left to a driver which adopts tasks: `submit`, and `resume(drive=False)`."""

import asyncio
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import kinds, only
from treadle import Agent, Limits, Runner, RunOptions, RunResult, ScriptedModel, tool
from treadle.errors import ConfigurationError, TaskBusy, TaskConflict
from treadle.llm.scripted import call, fail
from treadle.ports import AT_ONCE

pytestmark = pytest.mark.anyio


async def driven_by_another(
    store: Any, task: Any, *agents: Agent[Any], state: str = "completed"
) -> RunResult:
    """Let another runner adopt what is to be driven, and return the task's result once it is in a state."""
    async with Runner(store, agents=agents, adopt=True) as other, asyncio.timeout(10):
        while (await other.get_task(task)).state != state:  # noqa: ASYNC110  it is not driven here
            await asyncio.sleep(0.01)
        return await other.result(task)


async def test_a_submitted_task_is_returned_at_once_and_driven_by_whichever_runner_adopts_it(
    store: Any,
) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        task = await runner.submit(agent, "What is (121 * 3) + 42?", thread_id="desk")
        assert (task.state, task.driven, task.thread_id) == ("created", False, "desk")
        assert (await runner.store.row(task.task_id)).due_at == AT_ONCE
        result = await driven_by_another(store, task, agent)
        assert result.final_text == "405"
        assert len(await runner.get_thread("desk")) > 1


async def test_the_first_driver_of_a_submitted_task_does_not_tell_of_a_takeover(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        task = await runner.submit(agent, "What?")
        await driven_by_another(store, task, agent)
    assert [each.getMessage() for each in caplog.records if "taken over" in each.getMessage()] == []


async def test_a_created_task_is_not_driven_and_becomes_wanted_when_it_is_submitted(store: Any) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        await runner.create_task(agent, "What?", task_id="t")
        assert (await runner.store.row("t")).due_at == 0
        await runner.submit(agent, "What?", task_id="t")
        assert (await runner.store.row("t")).due_at == AT_ONCE
        assert await kinds(runner, "t") == ["task_created"]


async def test_submitting_a_task_twice_runs_it_once(store: Any) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        for _ in range(3):
            await runner.submit(agent, "What?", task_id="t")
        await driven_by_another(store, "t", agent)
        assert (await runner.submit(agent, "What?", task_id="t")).state == "completed"
        assert (await runner.store.row("t")).due_at == 0
        assert len(await only(runner, "t", "task_ended")) == 1
        with pytest.raises(TaskConflict, match="another input"):
            await runner.submit(agent, "Something else", task_id="t")


async def test_a_task_that_ran_is_left_as_it_is_when_it_is_submitted_again(runner: Runner) -> None:
    """The request may be an old one that was repeated, and a person may have stopped the task since."""
    agent = calculator()
    await runner.submit(agent, "What?", task_id="t")
    await runner.run_step("t", agent=agent)
    for stop, state in ((None, "running"), (runner.interrupt, "interrupted"), (runner.undo_step, "running")):
        if stop is not None:
            await stop("t")
        before = await kinds(runner, "t")
        assert (await runner.submit(agent, "What?", task_id="t", by="ada")).state == state
        assert (await runner.store.row("t")).due_at == 0
        assert await kinds(runner, "t") == before


async def test_a_submitted_task_that_is_driven_is_left_to_its_driver(runner: Runner) -> None:
    slow = Slow()
    handle = await runner.start(slow.agent, "Go", task_id="t")
    await slow.entered.wait()
    assert (await runner.submit(slow.agent, "Go", task_id="t")).driven
    slow.let_go.set()
    assert (await handle.result()).state == "completed"
    assert "resumed" not in await kinds(runner, "t")


async def test_a_submitted_task_that_a_person_paused_is_left_paused_when_it_is_submitted_again(
    runner: Runner,
) -> None:
    agent = calculator()
    await runner.submit(agent, "What?", task_id="t")
    await runner.pause("t")
    assert (await runner.submit(agent, "What?", task_id="t")).state == "paused"
    assert (await runner.store.row("t")).due_at == 0


async def test_a_task_that_is_resumed_without_driving_goes_on_elsewhere_from_where_it_stood(
    store: Any,
) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "What is (121 * 3) + 42?")
        await runner.run_step(task)
        await runner.pause(task)
        result = await runner.resume(task, drive=False, by="ada")
        assert (result.state, result.steps) == ("running", 1)
        assert [event.by for event in await only(runner, task, "resumed")] == ["ada"]
        result = await driven_by_another(store, task, agent)
        assert (result.final_text, result.steps) == ("405", 3)


async def test_a_runner_without_the_agent_may_leave_a_task_to_one_that_has_it(store: Any) -> None:
    agent = calculator()
    async with Runner(store) as runner:
        task_id = (await runner.submit(agent, "What?")).task_id
        await runner.interrupt(task_id)
    async with Runner(store) as without_agents:
        assert (await without_agents.resume(task_id, drive=False)).state == "created"
    assert (await driven_by_another(store, task_id, agent)).state == "completed"


async def test_a_failed_task_is_taken_up_in_another_attempt_by_its_next_driver(store: Any) -> None:
    agent = sayer(fail(400), "There it is.")
    async with Runner(store) as runner:
        failed = await runner.run(agent, "Where?")
        assert failed.state == "failed"
        await runner.resume(failed.task_id, drive=False, by="ada")
        (reopened,) = await only(runner, failed.task_id, "task_reopened")
        assert (reopened.attempt, reopened.reason, reopened.by) == (2, "resume", "ada")
        assert (await driven_by_another(store, failed.task_id, agent)).final_text == "There it is."


async def test_raised_limits_are_kept_for_the_driver_that_goes_on(store: Any) -> None:
    agent = calculator()
    options = RunOptions(limits=Limits(steps=1), on_limit="pause")
    async with Runner(store) as runner:
        paused = await runner.run(agent, "What is (121 * 3) + 42?", options=options)
        assert paused.state == "paused"
        await runner.resume(paused.task_id, options=RunOptions(limits=Limits(steps=9)), drive=False)
        assert (await driven_by_another(store, paused.task_id, agent)).final_text == "405"


async def test_a_completed_task_is_left_as_it_is(runner: Runner) -> None:
    done = await runner.run(sayer(), "Hi")
    head = (await runner.get_task(done.task_id)).head
    assert (await runner.resume(done.task_id, drive=False)).state == "completed"
    assert (await runner.get_task(done.task_id)).head == head


class Slow:
    """An agent whose tool waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()

        @tool(read_only=True)
        async def wait() -> str:
            """Wait."""
            self.entered.set()
            await self.let_go.wait()
            return "waited"

        script = [call("wait"), "Done."]
        self.agent = Agent(ScriptedModel(script), name="slow", tools=[wait])


async def test_a_task_that_is_stepped_is_driven_on_by_another_once_its_step_is_done(store: Any) -> None:
    slow = Slow()
    async with Runner(store) as runner:
        task = await runner.create_task(slow.agent, "Go")
        stepping = asyncio.ensure_future(runner.run_step(task))
        await slow.entered.wait()
        result = await runner.resume(task, drive=False)
        assert (result.state, result.driven) == ("running", True)
        with pytest.raises(TaskBusy, match="once it has stopped"):
            await runner.resume(task, drive=False, options=RunOptions(limits=Limits(steps=9)))
        slow.let_go.set()
        assert (await stepping).step.index == 1
        assert (await runner.store.row(task.task_id)).due_at == AT_ONCE
        assert (await driven_by_another(store, task, slow.agent)).final_text == "Done."


async def test_a_task_that_is_run_to_its_end_is_not_wanted_again_by_a_resume_that_drives_nothing(
    runner: Runner,
) -> None:
    slow = Slow()
    handle = await runner.start(slow.agent, "Go")
    await slow.entered.wait()
    await handle.resume(drive=False)
    slow.let_go.set()
    assert (await handle.result()).state == "completed"
    assert (await runner.store.row(handle.task_id)).due_at == 0


async def test_what_only_a_driver_can_use_is_refused_where_none_is(runner: Runner) -> None:
    agent = sayer()
    task = await runner.create_task(agent, "Hi")
    with pytest.raises(ConfigurationError, match="leave them out"):
        await runner.resume(task, drive=False, agent=agent)
    with pytest.raises(ConfigurationError, match="leave them out"):
        await runner.resume(task, drive=False, context={"user": "ada"})
    with pytest.raises(ConfigurationError, match="resume: drive must be True or False"):
        await runner.resume(task, drive="no")  # type: ignore[arg-type]
