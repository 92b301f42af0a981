"""Tools and step functions that sleep, in virtual time: the process may exit, and an adopter wakes the task."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treadle import Agent, RunOptions, ScriptedModel, StepContext, StepResult, ToolContext, tool
from treadle.core import events as e
from treadle.llm.scripted import call, text
from treadle.testing import clock
from treadle.testing.audit import audit_store

DAY = 86_400


def sleeper(log: list[Any], **options: Any) -> Agent[Any]:
    """Return an agent whose tool submits once, sleeps for a day, and then looks once more an hour later."""

    @tool(**(options or {"idempotent": True}))
    async def poll(ctx: ToolContext[Any]) -> str:
        """Look again tomorrow."""
        order = await ctx.once("submit", lambda: log.append("submitted") or 17)
        await ctx.sleep(DAY)
        log.append(f"woke for {order}, attempt {ctx.attempt}")
        await ctx.sleep(until=(clock.BEGIN / 1e6) + DAY + 3_600)
        return f"order {order} is there"

    return Agent(ScriptedModel([call("poll"), text("It is there.")]), name="sleeper", tools=[poll])


def test_a_run_ends_while_a_tool_sleeps_and_an_adopter_wakes_it(tmp_path: Path) -> None:
    log: list[Any] = []
    agent = sleeper(log)

    async def story() -> None:
        async with clock.runner(tmp_path / "journal.db", agents=[agent]) as runner:
            result = await runner.run(agent, "Where is it?", task_id="order-17")
            assert (result.state, [each.kind for each in result.pending]) == ("waiting", ["timer"])
            assert result.pending[0].text == "poll sleeps until 2026-01-02 00:00:00 UTC"
            assert (await runner.resume("order-17")).state == "waiting"
        await asyncio.sleep(DAY - 60)
        async with clock.runner(tmp_path / "journal.db", agents=[agent], adopt=True) as runner:
            await asyncio.sleep(30)
            assert log == ["submitted"]
            await asyncio.sleep(60)
            assert log == ["submitted", "woke for 17, attempt 2"]
        await asyncio.sleep(3_600)
        async with clock.runner(tmp_path / "journal.db", agents=[agent], adopt=True) as runner:
            await asyncio.sleep(5)
            result = await runner.result("order-17")
            assert (result.state, result.final_text) == ("completed", "It is there.")
            assert result.tool_executions[0].output == "order 17 is there"
            assert log == ["submitted", "woke for 17, attempt 2", "woke for 17, attempt 3"]
            assert await audit_store(runner.store) == []

    clock.run(story())


def test_a_short_sleep_is_waited_for_in_place() -> None:
    attempts: list[int] = []

    @tool(read_only=True)
    async def nap(ctx: ToolContext[Any]) -> str:
        """Nap."""
        attempts.append(ctx.attempt)
        await ctx.sleep(30)
        return "rested"

    @tool(read_only=True)
    def doze(ctx: ToolContext[Any]) -> str:
        """Nap in a thread."""
        ctx.wait(ctx.sleep(20))
        return "dozed"

    agent = Agent(
        ScriptedModel([[call("nap"), call("doze")], text("Rested.")]), name="naps", tools=[nap, doze]
    )

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            began = clock.now()
            result = await runner.run(agent, "Rest.")
            assert (result.state, attempts) == ("completed", [1, 2])
            assert [each.output for each in result.tool_executions] == ["rested", "dozed"]
            assert 29 <= (clock.now() - began) / 1e6 < 40
            assert await audit_store(runner.store) == []

    clock.run(story())


def test_a_tool_that_may_not_start_again_may_not_sleep() -> None:
    log: list[Any] = []
    agent = sleeper(log, timeout=5)

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "Where is it?")
            error = result.tool_executions[0].error
            assert error is not None
            assert "'poll' may not sleep: it may write and is not idempotent" in error.message

    clock.run(story())


def test_sleeps_do_not_count_as_retries() -> None:
    attempts: list[int] = []

    @tool(read_only=True, retries=1)
    async def flaky(ctx: ToolContext[Any]) -> str:
        """Sleep twice, then fail once."""
        attempts.append(ctx.attempt)
        await ctx.sleep(1)
        await ctx.sleep(1)
        if ctx.attempt == 3:
            raise RuntimeError("once")
        return "done"

    agent = Agent(ScriptedModel([call("flaky"), text("So.")]), name="flaky", tools=[flaky])

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            result = await runner.run(agent, "go")
            assert ([each.outcome for each in result.tool_executions], attempts) == (["ok"], [1, 2, 3, 4])

    clock.run(story())


def stepper(log: list[str], seconds: float = DAY) -> Agent[Any]:
    async def work(ctx: StepContext[Any]) -> StepResult:
        log.append("entered")
        await ctx.sleep(seconds)
        await ctx.sleep(until=datetime(2025, 1, 1, tzinfo=UTC))
        log.append("woke")
        return StepResult("rested", is_last=True)

    return Agent(ScriptedModel([]), worker=work, name="stepper")


def test_a_step_function_sleeps_without_a_process(tmp_path: Path) -> None:
    log: list[str] = []
    agent = stepper(log)

    async def story() -> None:
        async with clock.runner(tmp_path / "journal.db", agents=[agent]) as runner:
            result = await runner.run(agent, "rest", task_id="rest")
            assert (result.state, log) == ("waiting", ["entered"])
            assert result.pending[0].text == "step s1 sleeps until 2026-01-02 00:00:00 UTC"
        await asyncio.sleep(DAY)
        async with clock.runner(tmp_path / "journal.db", agents=[agent], adopt=True) as runner:
            await asyncio.sleep(5)
            result = await runner.result("rest")
            assert (result.state, result.final_text) == ("completed", "rested")
            assert log == ["entered", "entered", "woke"]
            kinds = [event.kind async for event in runner.handle("rest").events(deltas=False)]  # type: ignore[union-attr]
            assert (kinds.count("sleep_started"), kinds.count("sleep_ended")) == (1, 1)
            assert await audit_store(runner.store) == []

    clock.run(story())


def test_a_step_function_that_naps_goes_on_where_it_is() -> None:
    log: list[str] = []
    agent = stepper(log, seconds=20)

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            assert (await runner.run(agent, "rest")).state == "completed"
            assert log == ["entered", "woke"]

    clock.run(story())


def test_calls_beside_a_sleeping_one_go_on_and_a_pause_holds_the_sleeper() -> None:
    log: list[Any] = []

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        log.append("looked")
        return "seen"

    agent = Agent(
        ScriptedModel([[call("poll"), call("look")], text("So.")]),
        name="both",
        tools=[*sleeper(log).tools, look],
    )

    async def story() -> None:
        async with clock.runner(agents=[agent], adopt=True) as runner:
            handle = await runner.start(agent, "go")
            assert (await handle.result()).state == "waiting"
            assert sorted(log) == ["looked", "submitted"]
            await runner.pause(handle.task_id)

    clock.run(story())


def test_a_sleeping_task_can_be_cancelled_and_undone() -> None:
    log: list[Any] = []
    agent = sleeper(log, read_only=True)

    async def story() -> None:
        async with clock.runner(agents=[agent]) as runner:
            task = (await runner.run(agent, "go", options=RunOptions(labels={"a": "b"}))).task_id
            assert (await runner.undo_step(task)).complete
            assert (await runner.resume(task)).state == "waiting"
            assert (await runner.cancel(task)).state == "cancelled"
            told = [event async for event in runner.handle(task).events(deltas=False)]
            assert sum(isinstance(event, e.SleepStarted) for event in told) == 2
            assert await audit_store(runner.store) == []

    clock.run(story())
