"""Run and resume: an id of the caller's own is one task in every run; tasks are resumed from every state."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import kinds, only, roles_and_texts, step_to_answer
from treadle import Limits, Runner, RunOptions
from treadle.errors import TaskConflict, TaskNotFound, VersionRefused
from treadle.llm.scripted import call, fail, text
from treadle.ports import TaskRow
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_known_id_returns_the_stored_result_and_runs_nothing(runner: Runner) -> None:
    agent = calculator()
    first = await runner.run(agent, "?", task_id="t", thread_id="talk")
    request_count = len(agent.model.requests)
    assert await runner.run(agent, "?", task_id="t", thread_id="talk") == first
    assert await runner.run(agent, "?", task_id="t") == first, "no thread given fits any"
    async with runner.run_stream(agent, "?", task_id="t") as stream:
        async for _ in stream:
            pass
    assert stream.result == first
    assert await (await runner.start(agent, "?", task_id="t")).result() == first
    assert len(agent.model.requests) == request_count
    assert len(await runner.get_thread("talk")) == 6


@pytest.mark.parametrize("state", ["failed", "cancelled", "degraded", "paused"])
async def test_run_does_not_drive_a_task_that_ended_paused_or_waits_to_be_settled(
    runner: Runner, state: str
) -> None:
    agent = calculator(call("add", a=1, b=1), fail(500), "2") if state == "failed" else calculator()
    if state == "degraded":
        agent = calculator(limits=Limits(steps=1))
    if state in ("failed", "degraded"):
        await runner.run(agent, "?", task_id="t")
    else:
        task = await runner.create_task(agent, "?", task_id="t")
        await runner.run_step(task)
        await (runner.cancel(task) if state == "cancelled" else runner.pause(task))
    before, request_count = await kinds(runner, "t"), len(agent.model.requests)
    assert (await runner.run(agent, "?", task_id="t")).state == state
    assert (await kinds(runner, "t"), len(agent.model.requests)) == (before, request_count)


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_a_task_that_was_created_or_stepped_is_driven_on(runner: Runner, steps: int) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "?", task_id="t")
    for _ in range(steps):
        await runner.run_step(task)
    result = await runner.run(agent, "?", task_id="t")
    assert (result.task_id, result.state, result.final_text) == ("t", "completed", "405")
    assert len(agent.model.requests) == 3


@pytest.mark.virtual_time
async def test_an_interrupted_task_is_driven_on(runner: Runner) -> None:
    slow = sayer(text("slow", delay=30))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(runner.run(slow, "?", task_id="t"), 0.2)
    assert (await runner.get_task("t")).state == "interrupted"
    assert (await runner.run(sayer("Hi."), "?", task_id="t")).final_text == "Hi."


async def test_creating_a_known_task_gives_the_same_task(runner: Runner) -> None:
    first = await runner.create_task(calculator(), "?", task_id="t")
    await runner.run_step(first)
    again = await runner.create_task(calculator(), "?", task_id="t")
    assert (again.task_id, again.steps) == ("t", 1)
    assert len((await runner.list_tasks()).items) == 1


@pytest.mark.parametrize(
    ("field", "change"),
    [("agent", {"agent": sayer()}), ("input", {"input": "!"}), ("thread", {"thread_id": "other"})],
    ids=["agent", "input", "thread"],
)
async def test_a_known_id_with_other_arguments_is_a_conflict_that_names_the_field(
    runner: Runner, field: str, change: dict[str, Any]
) -> None:
    how: dict[str, Any] = {"agent": calculator(), "input": "?", "thread_id": "talk"}
    await runner.run(how.pop("agent"), how.pop("input"), task_id="t", **how)
    before = await kinds(runner, "t")
    how = {"agent": calculator(), "input": "?", "thread_id": "talk", **change}
    for verb in (runner.run, runner.create_task, runner.start):
        with pytest.raises(TaskConflict, match=f"another {field}") as caught:
            await verb(**how, task_id="t")
        assert (caught.value.field, caught.value.task_id) == (field, "t")
    assert await kinds(runner, "t") == before


async def test_two_runs_of_one_id_at_once_run_once_and_both_get_the_result(runner: Runner) -> None:
    agent = calculator()
    results = await asyncio.gather(*(runner.run(agent, "?", task_id="t") for _ in range(5)))
    assert {result.final_text for result in results} == {"405"}
    assert len(agent.model.requests) == 3
    assert (await kinds(runner, "t")).count("task_ended") == 1


async def test_two_runners_run_one_id_once_and_both_get_the_result(store: Any) -> None:
    agents = [calculator(), calculator()]
    async with Runner(store) as one, Runner(store) as other:
        results = await asyncio.gather(
            one.run(agents[0], "?", task_id="t"), other.run(agents[1], "?", task_id="t")
        )
        assert {result.final_text for result in results} == {"405"}
        assert sum(len(agent.model.requests) for agent in agents) == 3


async def test_a_creator_that_is_too_late_with_an_id_caches_nothing() -> None:
    class Contested(MemoryStore):
        meanwhile: Callable[[], Awaitable[object]] | None = None

        async def row(self, task_id: str, *, deleted: bool = False) -> TaskRow:
            try:
                return await super().row(task_id, deleted=deleted)
            except TaskNotFound:
                meanwhile, self.meanwhile = self.meanwhile, None
                if meanwhile is not None:
                    await meanwhile()
                raise

    store = Contested()
    async with Runner(store) as one, Runner(store) as other:
        store.meanwhile = lambda: other.run(calculator(), "?", task_id="t")
        late = calculator()
        assert (await one.run(late, "?", task_id="t")).final_text == "405"
        assert late.model.requests == []
        assert await one.result("t") == await other.result("t")


async def test_ids_sort_by_time(runner: Runner) -> None:
    made = [(await runner.create_task(sayer(), "?")).task_id for _ in range(20)]
    assert made == sorted(made)


# ----------------------------------------------------------------------------------------------- resume


async def test_resume_goes_on_from_every_state(runner: Runner) -> None:
    created = await runner.create_task(calculator(), "?")
    running = await runner.create_task(calculator(), "?")
    await runner.run_step(running)
    answered = await runner.create_task(calculator(), "?")
    await step_to_answer(runner, answered)
    paused = await runner.create_task(calculator(), "?")
    await runner.run_step(paused)
    await runner.pause(paused)
    interrupted = await runner.create_task(calculator(), "?")
    await runner.interrupt(interrupted)
    for task in (created, running, answered, paused, interrupted):
        result = await runner.resume(task)
        assert (result.state, result.final_text, result.steps) == ("completed", "405", 3)


async def test_resume_of_what_is_over_returns_its_stored_result(runner: Runner) -> None:
    agent = calculator()
    completed = await runner.run(agent, "?")
    assert await runner.resume(completed.task_id) == completed
    task = await runner.create_task(agent, "?")
    cancelled = await runner.cancel(task)
    assert await runner.resume(task) == cancelled
    degraded = await runner.run(calculator(limits=Limits(steps=1)), "?")
    assert await runner.resume(degraded.task_id) == degraded, "the same limits would end it again"
    assert len(agent.model.requests) == 3


async def test_resume_of_a_failed_task_tries_what_failed_again_in_a_new_attempt(runner: Runner) -> None:
    agent = calculator(call("multiply", a=121, b=3), fail(500), call("add", a=363, b=42), "405")
    result = await runner.run(agent, "?")
    assert (result.state, result.final_text, result.attempt) == ("failed", "", 1)
    assert result.error is not None
    assert (result.error.source, result.error.kind, result.error.status) == ("model", "server", 500)
    again = await runner.resume(result.task_id, by="ann")
    assert (again.state, again.final_text, again.attempt, again.error) == ("completed", "405", 2, None)
    assert [run.output for run in again.tool_executions] == [363, 405]
    (reopened,) = await only(runner, result.task_id, "task_reopened")
    assert (reopened.attempt, reopened.reason, reopened.by) == (2, "resume", "ann")


async def test_a_limit_may_be_raised_on_resume_also_above_the_agents(runner: Runner) -> None:
    agent = calculator(limits=Limits(steps=1))
    result = await runner.run(agent, "?", options=RunOptions(limits=Limits(steps=1)))
    assert (result.state, result.degraded_reasons) == ("degraded", ("limit reached: steps",))
    again = await runner.resume(result.task_id, options=RunOptions(limits=Limits(steps=5)))
    assert (again.state, again.final_text, again.degraded_reasons) == ("completed", "405", ())
    (changed,) = await only(runner, result.task_id, "options_changed")
    assert changed.options["limits"]["steps"] == 5


# ---------------------------------------------------------------------------------------------- versions


async def test_another_version_of_the_agent_is_accepted_and_recorded(runner: Runner) -> None:
    before, after = calculator(instructions="One."), calculator(instructions="Two.")
    task = await runner.create_task(before, "?")
    await runner.run_step(task)
    result = await runner.resume(task, agent=after)
    assert result.state == "completed"
    (changed,) = await only(runner, task, "version_changed")
    assert (changed.previous, changed.fingerprint) == (before.fingerprint, after.fingerprint)
    assert after.model.requests[0].instructions == "Two."
    assert roles_and_texts(after.model.requests[0].messages)[0] == ("user", "?")


async def test_another_version_of_the_agent_may_be_refused(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?", options=RunOptions(on_version_change="refuse"))
    await runner.run_step(task)
    before = await kinds(runner, task)
    for verb in (runner.resume, runner.run_step):
        with pytest.raises(VersionRefused, match="'math'"):
            await verb(task, agent=calculator(instructions="Two."))
    assert await kinds(runner, task) == before
    now = await runner.get_task(task)
    assert (now.state, now.driven) == ("running", False)
    assert (await runner.resume(task, agent=calculator())).state == "completed"
