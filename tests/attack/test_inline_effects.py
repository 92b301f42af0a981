"""An effect that runs inline in the loop task: neither its timeout nor its cancellation affects the loop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from treadle import Agent, Happened, Runner, ScriptedModel, ToolCall, ToolContext, tool
from treadle.llm.scripted import call
from treadle.testing import clock
from treadle.testing.audit import audit_store

SPEAKER: ContextVar[str] = ContextVar("speaker")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


@pytest.mark.anyio
@pytest.mark.parametrize("read_only", [True, False])
async def test_an_inline_call_that_times_out_is_not_run_a_second_time(read_only: bool) -> None:
    runs = 0

    @tool(read_only=read_only, timeout=0.05)
    async def stall() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(5)

    agent = Agent(ScriptedModel([call("stall"), "done"]), tools=[stall])
    async with asyncio.timeout(5), Runner("memory") as runner:
        result = await runner.run(agent, "Go.")
        assert result.state == ("completed" if read_only else "waiting")
        assert runs == 1
        assert await audit_store(runner.store) == []


@pytest.mark.anyio
async def test_tools_see_the_context_variables_of_the_caller_that_runs_the_task_not_of_a_sender() -> None:
    seen: list[str] = []
    begun, message_arrived = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def look() -> None:
        seen.append(SPEAKER.get())
        begun.set()
        await message_arrived.wait()

    async def speak(runner: Runner) -> None:
        SPEAKER.set("another")
        await runner.send("t", "Hello.")
        message_arrived.set()

    agent = Agent(ScriptedModel([call("look"), call("look"), "done"]), tools=[look])
    async with asyncio.timeout(5), Runner("memory") as runner:
        SPEAKER.set("caller")
        handle = await runner.start(agent, "Go.", task_id="t")
        await begun.wait()
        await asyncio.create_task(speak(runner))
        await handle.result()
    assert seen == ["caller", "caller"]


@pytest.mark.anyio
async def test_a_reconcile_that_cancels_itself_is_not_repeated_for_ever() -> None:
    looks = 0

    async def look(lost: ToolCall, ctx: ToolContext[None]) -> Happened:
        nonlocal looks
        looks += 1
        me = asyncio.current_task()
        assert me is not None
        me.cancel()
        await asyncio.sleep(1)
        return Happened()

    @tool(timeout=0.05, reconcile=look)
    async def send_mail() -> None:
        await asyncio.sleep(5)

    agent = Agent(ScriptedModel([call("send_mail"), "done"]), tools=[send_mail])
    async with Runner("memory") as runner:
        handle = await runner.start(agent, "Go.", task_id="t")
        await asyncio.wait([asyncio.ensure_future(handle.result())], timeout=1)
        assert looks == 1
        assert (await runner.get_task("t")).state == "waiting"
