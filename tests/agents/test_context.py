"""The contexts that tools and functions of instructions are passed."""

from pathlib import Path
from typing import Any

import pytest

from tests.cast import calculator, sayer
from tests.runner.acts import kinds, only, step_to_answer
from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio

SECRET = "the-context-never-lies-on-disk"


def database_bytes(folder: Path) -> bytes:
    """All that a closed store left on disk."""
    return b"".join(path.read_bytes() for path in folder.glob("journal.db*"))


@tool(read_only=True)
async def whoami(ctx: ToolContext[Any]) -> str:
    """Tell who asks."""
    return f"user {len(ctx.context['secret'])}"


def asker(**more: Any) -> Agent[Any]:
    return Agent(ScriptedModel([call("whoami"), "done"]), name="asker", tools=[whoami], **more)


async def test_the_context_reaches_tools_and_never_the_model_or_the_disk(tmp_path: Path) -> None:
    agent = asker(instructions=lambda ctx: f"Serve {len(ctx.context['secret'])}.")
    context = {"secret": SECRET}
    async with Runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent, "?", context=context)
        task = await runner.create_task(agent, "?")
        await runner.run_step(task, context=context)
        async with runner.stream_step(task, context=context) as stream:
            async for _ in stream:
                pass
        await runner.finalize(task)
        await runner.fork(task)
        await runner.undo_step(task, to=0, context=context)
    assert result.tool_executions[0].output == f"user {len(SECRET)}"
    assert SECRET not in repr([(r.messages, r.instructions, r.settings) for r in agent.model.requests])
    assert SECRET.encode() not in database_bytes(tmp_path)


async def test_each_drive_takes_its_own_context(runner: Runner) -> None:
    task = await runner.create_task(asker(), "?")
    out = await runner.run_step(task, context={"secret": "abc"})
    assert out.tool_executions[0].output == "user 3"
    await runner.undo_step(task)
    result = await runner.resume(task, context={"secret": "abcde"})
    assert result.tool_executions[0].output == "user 5"


async def test_a_factory_makes_the_context_of_drives_that_are_given_none(store: Any) -> None:
    async with Runner(store, context_factory=lambda task: {"secret": "1234"}) as runner:
        result = await runner.run(asker(), "?")
        assert result.tool_executions[0].output == "user 4"
        with_context = await runner.run(asker(), "?", context={"secret": ""})
        assert with_context.tool_executions[0].output == "user 0"


async def test_instructions_of_a_function_are_worked_out_once_per_task(store: Any) -> None:
    contexts: list[Any] = []

    def instructions_of(ctx: Any) -> str:
        contexts.append((ctx.task_id, ctx.thread_id, ctx.input[0].text, ctx.context))
        return f"Version {len(contexts)}."

    agent = calculator(instructions=instructions_of)
    async with Runner(store) as runner:
        task = await runner.create_task(agent, "?", thread_id="talk")
        assert contexts == []
        await runner.run_step(task, context="c")
        assert contexts == [(task.task_id, "talk", "?", "c")]
    async with Runner(store, agents=[agent]) as runner:
        await step_to_answer(runner, task)
        (told_once,) = await only(runner, task, "instructions_set")
    assert told_once.text == "Version 1."
    assert {request.instructions for request in agent.model.requests} == {"Version 1."}
    assert len(contexts) == 1


async def test_instructions_are_worked_out_at_once_for_a_task_created_with_a_context(runner: Runner) -> None:
    agent = sayer(instructions=lambda ctx: f"Serve {ctx.context}.")
    task = await runner.create_task(agent, "?", context="Ann")
    assert task.state == "created"
    assert await kinds(runner, task) == ["task_created", "instructions_set"]
    await runner.run_step(task, context="Bob")
    assert agent.model.requests[0].instructions == "Serve Ann."


async def test_instructions_that_are_not_text_fail_the_task(runner: Runner) -> None:
    task = await runner.create_task(sayer(instructions=lambda ctx: 42), "?")
    step = await runner.run_step(task)
    assert (step.state, step.error and step.error.message) == (
        "failed",
        "the instructions function of sayer must return text, and returned 'int'",
    )
    assert (await runner.get_task(task)).driven is False


async def test_an_error_in_instructions_fails_the_task_and_a_resume_calls_them_again(runner: Runner) -> None:
    asked = 0

    def broken(ctx: Any) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise LookupError("no such prompt")
        return "Be brief."

    task = await runner.create_task(sayer(instructions=broken), "?")
    failed = await runner.resume(task)
    assert failed.error is not None
    assert (failed.state, failed.error.source, failed.error.kind) == ("failed", "agent", "instructions")
    assert "LookupError: no such prompt" in failed.error.traceback
    assert (await runner.resume(task)).state == "completed"
    assert asked == 2
