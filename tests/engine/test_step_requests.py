"""Requests of step functions to their drive: recorded in order, answered, or refused once the step is over."""

import asyncio
import threading
from typing import Any

import pytest

from tests.cast import look
from tests.engine.function_workers import agent_of, planned, sound
from treadle import Agent, NextStep, Runner, ScriptedModel, StepContext, StepResult, tool
from treadle.core.model import ModelRequest
from treadle.errors import WorkerError
from treadle.llm.scripted import Turn, text

pytestmark = pytest.mark.anyio


async def test_a_thread_whose_step_was_interrupted_does_not_wait_for_ever(runner: Runner) -> None:
    began, left, errors = asyncio.Event(), threading.Event(), list[str]()

    @tool(read_only=True)
    async def long() -> int:
        """Take long."""
        began.set()
        await asyncio.sleep(60)
        return 1

    def worker(ctx: StepContext) -> StepResult:
        try:
            ctx.wait(ctx.call_tool("long"))
        except WorkerError as error:
            errors.append(str(error))
        left.set()
        return StepResult("late", is_last=True)

    handle = await runner.start(agent_of(worker, long), "go")
    await began.wait()
    await handle.interrupt()
    assert await asyncio.to_thread(left.wait, 5)
    assert "does not run any more" in errors[0]
    assert (await handle.result()).state == "interrupted"


async def test_a_thread_whose_step_is_not_needed_any_more_does_not_wait_for_ever(runner: Runner) -> None:
    request_sent, left, over = threading.Event(), threading.Event(), threading.Event()

    async def model(request: ModelRequest) -> Turn:
        request_sent.set()
        await asyncio.sleep(60)
        return text("late")

    def worker(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return planned(NextStep("a"), NextStep("b"), NextStep("first", after=("a", "b"), join="any"))
        if ctx.name == "a":
            request_sent.wait(5)
        if ctx.name == "b":
            try:
                ctx.wait(ctx.call_model("are you there?"))
            finally:
                left.set()
        if ctx.name == "first":
            over.set() if left.wait(5) else None
        return StepResult(ctx.name, is_last=ctx.name == "first")

    result = await runner.run(Agent(ScriptedModel(model), worker=worker), "go")  # type: ignore[arg-type]
    assert (result.state, over.is_set()) == ("completed", True)


async def test_a_step_context_used_in_the_wrong_place_raises_instead_of_hanging(runner: Runner) -> None:
    errors: list[str] = []

    def elsewhere(ctx: StepContext) -> Any:
        return asyncio.run(ctx.call_tool("look"))  # type: ignore[arg-type]

    async def worker(ctx: StepContext) -> StepResult:
        for misuse in (lambda: ctx.wait(ctx.call_tool("look")), lambda: asyncio.to_thread(elsewhere, ctx)):
            try:
                await misuse()
            except WorkerError as error:
                errors.append(str(error))
        contexts.append(ctx)
        return StepResult("done", is_last=True)

    contexts: list[StepContext] = []
    result = await sound(runner, await runner.run(agent_of(worker, look), "go"))
    assert result.state == "completed"
    assert ["says await" in errors[0], "ctx.wait(" in errors[1]] == [True, True]
    with pytest.raises(WorkerError, match="has ended"):
        await contexts[0].call_tool("look")


async def test_a_request_made_just_before_a_step_ends_belongs_to_the_step(runner: Runner) -> None:
    left: list[asyncio.Task[Any]] = []

    async def worker(ctx: StepContext) -> StepResult:
        left.append(asyncio.create_task(ctx.call_tool("look")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        return StepResult("done", is_last=True)

    result = await sound(runner, await runner.run(agent_of(worker, look), "go"))
    assert (result.state, [run.outcome for run in result.tool_executions]) == ("completed", ["ok"])
    assert await left[0] == "seen"
