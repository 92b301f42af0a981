"""Tasks that are created without running and driven step by step, and steps that fail."""

from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import kinds, only, roles_and_texts, step_to_answer
from treadle import Agent, FailurePolicy, Limits, Runner, RunOptions, ScriptedModel
from treadle.core.events import Delta, Event
from treadle.errors import (
    AgentUnknown,
    StepFailed,
    StepNotFound,
    TaskFinished,
    TaskNotFound,
    TaskParked,
    TaskUnfinished,
)
from treadle.llm.scripted import call, fail, text

pytestmark = pytest.mark.anyio

# ------------------------------------------------------------------------------------- create and step


async def test_creating_a_task_runs_nothing(runner: Runner) -> None:
    agent = calculator()
    task = await runner.create_task(agent, "What is (121 * 3) + 42?")
    assert (task.state, task.driven, task.steps) == ("created", False, 0)
    assert agent.model.requests == []
    assert await kinds(runner, task) == ["task_created"]


async def test_a_task_is_stepped_to_its_answer_and_finalized(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "What is (121 * 3) + 42?")
    outputs = await step_to_answer(runner, task)
    assert [out.step.step_id for out in outputs] == ["s1", "s2", "s3"]
    assert [out.is_last for out in outputs] == [False, False, True]
    assert [out.state for out in outputs] == ["running", "running", "answered"]
    result = await runner.finalize(task)
    assert (result.state, result.final_text, result.steps) == ("completed", "405", 3)


async def test_a_step_ends_at_its_step_completed_event(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    assert await kinds(runner, task) == [
        "task_created",
        "step_started",
        "model_started",
        "model_returned",
        "tool_started",
        "tool_ended",
        "step_completed",
    ]


async def test_a_step_can_be_named_and_only_the_next_one(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task, step="s1")
    with pytest.raises(StepNotFound, match="'s1' is not the next step"):
        await runner.run_step(task, step="s1")
    assert (await runner.run_step(task, step="s2")).step.step_id == "s2"
    assert (await runner.get_task(task)).steps == 2


async def test_streaming_a_step_gives_its_events_and_its_output(runner: Runner) -> None:
    task = await runner.create_task(sayer(text("one two three", chunk=4)), "?")
    async with runner.stream_step(task) as stream:
        seen = [event async for event in stream]
    kinds_seen = [event.kind for event in seen if isinstance(event, Event)]
    assert kinds_seen == ["step_started", "model_started", "model_returned", "step_completed"]
    content = "".join(event.text for event in seen if isinstance(event, Delta))
    assert content == "one two three"
    assert (stream.output.is_last, stream.output.output) == (True, "one two three")


async def test_streaming_a_later_step_leaves_out_what_came_before(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    async with runner.stream_step(task) as stream:
        seen = [event async for event in stream if isinstance(event, Event)]
    assert seen[0].kind == "step_started"
    assert seen[0].step == "s2"
    assert seen[-1].kind == "step_completed"


async def test_a_streamed_step_can_be_named_and_only_one_that_is_ready(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    async with runner.stream_step(task, step="s1") as stream:
        seen = [event async for event in stream if isinstance(event, Event)]
    assert {event.step for event in seen if event.kind == "step_completed"} == {"s1"}
    with pytest.raises(StepNotFound, match="'s1' is not the next step"):
        async with runner.stream_step(task, step="s1") as stream:
            _ = [event async for event in stream]


async def test_leaving_a_streamed_step_early_interrupts_the_task_which_goes_on_later(runner: Runner) -> None:
    task = await runner.create_task(sayer(text("slow", delay=30)), "?")
    async with runner.stream_step(task) as stream:
        async for event in stream:
            if getattr(event, "kind", "") == "model_started":
                break
    assert (await runner.get_task(task)).state == "interrupted"
    fast = sayer("quick")
    out = await runner.run_step(task, agent=fast)
    assert (out.step.step_id, out.output) == ("s1", "quick")


async def test_stepping_without_the_agent_is_an_error_with_advice(store: Any) -> None:
    async with Runner(store) as runner:
        task = await runner.create_task(calculator(), "?")
    async with Runner(store) as runner:
        with pytest.raises(AgentUnknown, match=r"agent 'math'.*Runner\(agents=\[\.\.\.\]\)"):
            await runner.run_step(task)
        assert (await runner.run_step(task, agent=calculator())).step.index == 1
    async with Runner(store, agents=[calculator()]) as runner:
        assert (await runner.run_step(task)).step.index == 2


async def test_a_step_of_a_limit_that_is_reached_is_the_last_and_degraded(runner: Runner) -> None:
    agent = calculator(call("add", a=1, b=1), "about 2", limits=Limits(steps=1))
    task = await runner.create_task(agent, "?")
    out = await runner.run_step(task)
    assert (out.is_last, out.output, out.step.step_id) == (True, "about 2", "s1")
    result = await runner.finalize(task)
    assert (result.state, result.degraded_reasons) == ("degraded", ("limit reached: steps",))


async def test_a_step_that_meets_a_limit_that_ends_the_task_is_the_last(runner: Runner) -> None:
    agent = calculator(limits=Limits(steps=1))
    task = await runner.create_task(agent, "?", options=RunOptions(on_limit="fail"))
    await runner.run_step(task)
    out = await runner.run_step(task)
    assert (out.is_last, out.state) == (True, "failed")
    assert out.error is not None
    assert out.error.kind == "steps"


# ------------------------------------------------------------------------------------------ what is over


async def test_an_answered_task_is_not_stepped_but_finalized(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hi."), "Hello")
    await runner.run_step(task)
    assert (await runner.get_task(task)).state == "answered"
    with pytest.raises(TaskFinished, match="has answered; call finalize") as caught:
        await runner.run_step(task)
    assert (caught.value.task_id, caught.value.state) == (task.task_id, "answered")


async def test_finalizing_a_task_without_an_answer_is_refused_with_advice(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    with pytest.raises(TaskUnfinished, match="is created and has no answer to finalize; step or resume it"):
        await runner.finalize(task)
    assert (await runner.get_task(task)).state == "created"
    await runner.run_step(task)
    with pytest.raises(TaskUnfinished, match="is running"):
        await runner.finalize(task)
    await runner.cancel(task)
    with pytest.raises(TaskUnfinished, match="is cancelled"):
        await runner.finalize(task)
    assert (await runner.get_task(task)).driven is False


async def test_finalizing_twice_changes_nothing(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hi."), "Hello", thread_id="talk")
    await runner.run_step(task)
    first = await runner.finalize(task)
    assert await runner.finalize(task) == first
    assert len(await runner.get_thread("talk")) == 2
    assert (await kinds(runner, task)).count("task_ended") == 1


async def test_the_answer_can_be_had_without_finalizing(runner: Runner) -> None:
    task = await runner.create_task(sayer("Hi."), "Hello", thread_id="talk")
    await runner.run_step(task)
    result = await runner.result(task)
    assert (result.state, result.final_text) == ("answered", "Hi.")
    assert await runner.get_thread("talk") == ()


async def test_a_paused_task_is_not_stepped_but_resumed(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    await runner.run_step(task)
    await runner.pause(task, reason="lunch")
    with pytest.raises(TaskParked, match="is paused: lunch") as caught:
        await runner.run_step(task)
    assert (caught.value.state, caught.value.pending) == ("paused", ())
    assert (await runner.resume(task)).final_text == "405"


# ------------------------------------------------------------------------------------------ failed steps


async def test_a_failed_step_stays_next_with_its_attempts_counted_until_it_succeeds(runner: Runner) -> None:
    agent = sayer(fail(500), fail(500), "Hi.")
    task = await runner.create_task(agent, "Hello")
    for attempt in (1, 2):
        with pytest.raises(StepFailed, match="step s1 failed: scripted failure: 500") as caught:
            await runner.run_step(task)
        assert caught.value.output.step.attempt == attempt
        assert caught.value.error.kind == "server"
        now = await runner.get_task(task)
        assert (now.state, now.driven, now.attempt) == ("failed", False, attempt)
        (upcoming,) = await runner.get_upcoming_steps(task)
        assert (upcoming.step_id, upcoming.attempt, upcoming.status) == ("s1", attempt, "failed")
    out = await runner.run_step(task)
    assert (out.step.step_id, out.step.attempt, out.output) == ("s1", 3, "Hi.")
    assert (await runner.finalize(task)).state == "completed"


async def test_a_step_fails_like_a_free_run_with_one_end_per_attempt(runner: Runner) -> None:
    task = await runner.create_task(sayer(fail(500), "Hi."), "Hello")
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    assert (await kinds(runner, task))[-2:] == ["step_failed", "task_ended"]
    await runner.run_step(task)
    await runner.finalize(task)
    seen = await kinds(runner, task)
    assert (seen.count("task_ended"), seen.count("task_reopened")) == (2, 1)
    (reopened,) = await only(runner, task, "task_reopened")
    assert (reopened.attempt, reopened.reason) == (2, "run_step")


async def test_a_failed_step_can_be_skipped_on_record(runner: Runner) -> None:
    def script(request: Any) -> Any:
        return fail(500) if request.step == "s1" else "Never mind."

    task = await runner.create_task(Agent(ScriptedModel(script), name="sayer"), "Hello")
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    await runner.skip_step(task, by="ann")
    (skipped,) = await only(runner, task, "step_skipped")
    assert (skipped.step, skipped.by) == ("s1", "ann")
    assert (await runner.get_step(task, "s1")).step.status == "skipped"
    out = await runner.run_step(task)
    assert (out.step.step_id, out.output) == ("s2", "Never mind.")


async def test_only_a_failed_step_can_be_skipped(runner: Runner) -> None:
    task = await runner.create_task(calculator(), "?")
    with pytest.raises(StepNotFound, match="no failed step to skip"):
        await runner.skip_step(task)
    await runner.run_step(task)
    with pytest.raises(StepNotFound, match="no failed step to skip"):
        await runner.skip_step(task)
    assert (await runner.get_task(task)).driven is False


async def test_a_failed_task_can_be_given_up(runner: Runner) -> None:
    task = await runner.create_task(sayer(fail(500)), "Hello")
    with pytest.raises(StepFailed):
        await runner.run_step(task)
    assert (await runner.cancel(task)).state == "failed", "it has ended, so cancel does nothing"
    await runner.delete_task(task)
    with pytest.raises(TaskNotFound):
        await runner.get_task(task)


async def test_a_step_that_the_policy_pauses_raises_task_parked(runner: Runner) -> None:
    options = RunOptions(on_failure=FailurePolicy(model="pause"))
    task = await runner.create_task(sayer(fail(500), "Hi."), "Hello", options=options)
    with pytest.raises(TaskParked, match="model failed") as caught:
        await runner.run_step(task)
    assert caught.value.state == "paused"
    assert (await runner.resume(task)).final_text == "Hi."


# ----------------------------------------------------------------------------------------------- delete


async def test_a_deleted_task_is_gone_and_its_thread_was_never_touched(runner: Runner) -> None:
    await runner.run(sayer("Hi."), "Hello", thread_id="talk")
    before = await runner.get_thread("talk")
    task = await runner.create_task(calculator(), "?", thread_id="talk")
    await runner.run_step(task)
    await runner.delete_task(task)
    with pytest.raises(TaskNotFound):
        await runner.run_step(task)
    assert await runner.get_thread("talk") == before


async def test_a_task_that_is_driven_is_not_deleted(runner: Runner) -> None:
    from treadle.errors import TaskBusy

    handle = await runner.start(sayer(text("slow", delay=30)), "?")
    with pytest.raises(TaskBusy, match=handle.task_id):
        await runner.delete_task(handle.task_id)
    await handle.cancel()
    await runner.delete_task(handle.task_id)


async def test_a_deleted_task_leaves_its_messages_in_its_thread(runner: Runner) -> None:
    first = await runner.run(calculator(), "?", thread_id="talk")
    agent = sayer("You asked that before.")
    await runner.run(agent, "And again?", thread_id="talk")
    thread = await runner.get_thread("talk")
    await runner.delete_task(first.task_id)
    with pytest.raises(TaskNotFound):
        await runner.get_task(first.task_id)
    assert await runner.get_thread("talk") == thread
    await runner.run(agent, "Once more?", thread_id="talk")
    assert roles_and_texts(agent.model.requests[-1].messages)[: len(thread)] == roles_and_texts(thread)
