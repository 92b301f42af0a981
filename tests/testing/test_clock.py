"""Virtual time: hours pass in milliseconds, in the order real time would have them."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.core import events as e
from treadle.llm.scripted import call, text
from treadle.testing import clock
from treadle.tools import threads

HOUR = 3600


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": clock.VirtualTimeLoop}


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 10


@tool(read_only=True, timeout=HOUR)
async def wait(hours: float) -> str:
    await asyncio.sleep(hours * HOUR)
    return f"after {hours}"


@tool(read_only=True)
def in_thread(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@pytest.mark.anyio
async def test_a_tool_that_takes_longer_than_its_timeout_of_an_hour_is_stopped_in_milliseconds() -> None:
    agent = Agent(ScriptedModel([call("wait", hours=2) + call("wait", hours=0.5), text("so")]), tools=[wait])
    async with clock.runner() as runner:
        result = await runner.run(agent, "go")
    assert [execution.outcome for execution in result.tool_executions] == ["timeout", "ok"]
    assert asyncio.get_running_loop().time() == pytest.approx(HOUR, abs=1)


@pytest.mark.anyio
async def test_events_happen_in_virtual_time() -> None:
    agent = Agent(ScriptedModel([text("slowly", delay=5 * HOUR)]))
    async with clock.runner() as runner:
        result = await runner.run(agent, "go")
        events = [
            event async for event in runner.handle(result.task_id).events() if isinstance(event, e.Event)
        ]
    assert events[-1].time - events[0].time == pytest.approx(5 * HOUR * 1e6, rel=0.001)
    assert events[0].time >= clock.BEGIN


@pytest.mark.anyio
async def test_a_limit_in_seconds_counts_virtual_time_over_several_attempts() -> None:
    model = ScriptedModel([call("wait", hours=0.5), call("wait", hours=0.9), text("so")])
    options = RunOptions(limits=Limits(seconds=HOUR), on_limit="fail")
    async with clock.runner() as runner:
        task = await runner.create_task(Agent(model, tools=[wait]), "go", options=options)
        await runner.run_step(task)
        await asyncio.sleep(10 * HOUR)  # no driver drives it meanwhile
        result = await runner.resume(task)
    assert (result.state, result.error and result.error.kind) == ("failed", "seconds")
    assert asyncio.get_running_loop().time() == pytest.approx(11 * HOUR, abs=5)


@pytest.mark.anyio
async def test_time_stands_still_while_a_tool_works_in_a_thread_or_a_store_writes(tmp_path: Path) -> None:
    calls = [call("in_thread", seconds=0.1) + call("wait", hours=0.5)]
    agent = Agent(ScriptedModel([*calls, text("so")]), tools=[wait, in_thread])
    async with clock.runner(tmp_path / "journal.db") as runner:
        result = await runner.run(agent, "go")
        events = [
            event async for event in runner.handle(result.task_id).events() if isinstance(event, e.Event)
        ]
    ends = {event.call: event.time - events[0].time for event in events if isinstance(event, e.ToolEnded)}
    assert ends["s1-0"] < 1e6 < HOUR * 1e6 / 2 <= ends["s1-1"]
    assert result.state == "completed"


@pytest.mark.anyio
async def test_time_stands_still_when_work_in_a_thread_ends_while_the_loop_looks_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop looked for what woke it, then for work: what ended in between was late by the time of a jump."""
    loop = asyncio.get_running_loop()
    ended, began = asyncio.Event(), loop.time()

    def end_just_now() -> int:
        loop.call_soon_threadsafe(ended.set)
        return 0

    monkeypatch.setattr(threads, "at_work", end_just_now)
    async with asyncio.timeout(HOUR):
        await ended.wait()
    assert loop.time() == began


@pytest.mark.anyio
async def test_timers_fire_in_their_order_and_waiting_takes_no_time() -> None:
    order: list[float] = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    await asyncio.gather(*(after(seconds) for seconds in (86_400, 1, 3600, 0.001)))
    assert order == [0.001, 1, 3600, 86_400]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(7 * 86_400):
            await asyncio.get_running_loop().create_future()
    assert await asyncio.to_thread(lambda: "from a thread") == "from a thread"


def test_a_coroutine_can_be_run_in_virtual_time_without_a_plugin() -> None:
    async def story() -> float:
        await asyncio.sleep(1e6)
        return asyncio.get_running_loop().time()

    assert clock.run(story()) == pytest.approx(1e6)


@pytest.mark.anyio
async def test_a_runner_takes_its_clock_as_an_argument() -> None:
    async with Runner("memory:", clock=lambda: 42) as runner:  # as a test may have it stand still
        task = await runner.create_task(Agent(ScriptedModel(["so"])), "go", task_id="t")
        assert [event.time async for event in runner.handle(task.task_id).events(deltas=False)] == [42]
