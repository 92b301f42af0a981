"""`once` of a name, inside the function of the same name, waited for itself for ever."""

import asyncio
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, StepContext, ToolContext, tool
from treadle.models import call

pytestmark = pytest.mark.anyio


async def failed(agent: Agent[Any]) -> str:
    async with Runner("memory:") as runner, asyncio.timeout(5):
        result = await runner.run(agent, "go")
    errors = [*[each.error for each in result.tool_executions], result.error]
    return next(error.message for error in errors if error is not None)


async def test_of_a_tool() -> None:
    @tool
    async def book(ctx: ToolContext) -> str:
        async def outer() -> str:
            return await ctx.once("key", lambda: "inner")

        return await ctx.once("key", outer)

    agent = Agent(ScriptedModel([call("book"), "Done."]), tools=[book])
    assert "once('key', ...) is called inside the function of once('key', ...)" in await failed(agent)


async def test_of_a_tool_in_a_thread() -> None:
    @tool
    def book(ctx: ToolContext) -> str:
        return ctx.wait(ctx.once("key", lambda: ctx.wait(ctx.once("key", lambda: "inner"))))

    agent = Agent(ScriptedModel([call("book"), "Done."]), tools=[book])
    assert "once('key', ...) is called inside the function of once('key', ...)" in await failed(agent)


async def test_of_a_tool_through_another_task() -> None:
    @tool
    async def book(ctx: ToolContext) -> str:
        async def outer() -> str:
            (value,) = await asyncio.gather(ctx.once("key", lambda: "inner"))
            return value

        return await ctx.once("key", outer)

    agent = Agent(ScriptedModel([call("book"), "Done."]), tools=[book])
    assert "is called inside the function of" in await failed(agent)


async def test_of_a_step() -> None:
    async def worker(ctx: StepContext[Any]) -> str:
        async def outer() -> str:
            return await ctx.once("key", lambda: "inner")

        return await ctx.once("key", outer)

    message = await failed(Agent(ScriptedModel([]), worker=worker))
    assert "step 'main': once('key', ...) is called inside" in message or "is called inside" in message


async def test_other_names_nest_and_a_name_is_shared_by_calls_side_by_side() -> None:
    made: list[str] = []

    @tool
    async def book(ctx: ToolContext) -> list[str]:
        async def slow() -> str:
            made.append("slow")
            await asyncio.sleep(0.01)
            return await ctx.once("inner", lambda: "value")

        return list(
            await asyncio.gather(ctx.once("key", slow), ctx.once("key", slow), ctx.once("inner", str))
        )

    agent = Agent(ScriptedModel([call("book"), "Done."]), tools=[book])
    async with Runner("memory:") as runner, asyncio.timeout(5):
        result = await runner.run(agent, "go")
    assert result.tool_executions[0].output == ["", "", ""]
    assert made == ["slow"]
