"""Watching and waiting for a task of another process: its events arrive, and its crash is noticed."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked import Forked, completed
from treadle import Agent, Runner, ScriptedModel, StepContext, StepResult
from treadle.core.events import ModelStopped, ToolStarted
from treadle.core.messages import Message, Text
from treadle.core.model import ModelAnswer, ModelRequest
from treadle.llm.scripted import text
from treadle.stores.memory import MemoryStore

DRIVER = """
import sys, time
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.llm.scripted import call, text

@tool(read_only=True)
def sleep() -> str:
    time.sleep(60)
    return "slept"

agent = Agent(ScriptedModel([call("sleep"), text("done")]), name="sleeper", tools=[sleep])
Runner(sys.argv[1]).run_sync(agent, "sleep", task_id="nap")
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    store = tmp_path / "journal.db"
    process = Forked([sys.executable, "-c", DRIVER, str(store)])
    yield store, process
    process.kill()
    process.wait()


async def begun(runner: Runner) -> None:
    for _ in range(200):
        page = await runner.list_tasks()
        if page.items and page.items[0].state == "running":
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the driver did not begin")


@pytest.mark.anyio
async def test_events_of_another_process_arrive_and_end_when_it_is_killed(driver):
    store, process = driver
    async with Runner(store) as runner:
        await begun(runner)
        seen = []
        async with asyncio.timeout(10):
            async for event in runner.handle("nap").events(deltas=False):
                seen.append(event)
                if isinstance(event, ToolStarted):
                    process.send_signal(signal.SIGKILL)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[-1], ToolStarted)


@pytest.mark.anyio
async def test_waiting_for_a_task_ends_when_its_driver_is_killed_without_a_record_of_it(driver):
    store, process = driver
    async with Runner(store) as runner:
        await begun(runner)
        waiting = asyncio.ensure_future(runner.handle("nap").result())
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGKILL)
        async with asyncio.timeout(10):
            assert (await waiting).state == "interrupted"


@pytest.mark.anyio
async def test_a_task_whose_driver_was_killed_is_listed_among_the_interrupted_and_not_the_running(driver):
    store, process = driver
    async with Runner(store) as runner:
        await begun(runner)
        assert [item.task_id for item in (await runner.list_tasks(state="running")).items] == ["nap"]
        process.kill()
        process.wait()
        assert [item.task_id for item in (await runner.list_tasks(state="interrupted")).items] == ["nap"]
        assert (await runner.list_tasks(state="running")).items == ()


CLAIMER = """
import asyncio, os, sys
from treadle import Runner

async def claim():
    runner = Runner(sys.argv[1])
    await runner.store.open()
    await runner.store.claim("greeting")
    os._exit(0)

asyncio.run(claim())
"""


@pytest.mark.anyio
async def test_an_ended_task_stays_ended_when_a_process_dies_that_was_about_to_reopen_it(tmp_path):
    store = tmp_path / "journal.db"
    agent = Agent(ScriptedModel([text("Hello.")]), name="greeter")
    async with Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "Hello?", task_id="greeting")
        await asyncio.to_thread(completed, [sys.executable, "-c", CLAIMER, str(store)], check=True)
        row = await runner.store.row("greeting")
        assert row.driver is not None
        assert not row.driver.alive
        assert (await runner.get_task("greeting")).state == "completed"
        assert [item.task_id for item in (await runner.list_tasks(state="completed")).items] == ["greeting"]
        assert (await runner.resume("greeting")).state == "completed"
        assert (await runner.undo_step("greeting")).complete


class LeavesOpen:
    """Never answers the first time."""

    name = "slow"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelAnswer]:
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.sleep(3600)
        yield ModelAnswer(Message("assistant", (Text("Yes."),)))


async def asks(ctx: StepContext[Any]) -> StepResult:
    return StepResult((await ctx.call_model("Now?")).message.text, is_last=True)


@pytest.mark.anyio
@pytest.mark.parametrize("worker", ["function_calling", asks], ids=["worker", "function"])
async def test_a_request_in_flight_when_its_driver_died_is_recorded_as_cut_off(worker: Any) -> None:
    store, model = MemoryStore(), LeavesOpen()
    agent = Agent(model, worker=worker)
    one = Runner(store)
    await one.start(agent, "Go.", task_id="t")
    await model.asked.wait()
    await asyncio.sleep(0.01)
    await store.close()  # the next runner that opens it finds the task without a driver
    await store.open()
    async with Runner(store) as two:
        assert (await two.resume("t", agent=agent)).final_text == "Yes."
        events = [event async for event in two.handle("t").events(deltas=False)]
        stopped = [event.reason for event in events if isinstance(event, ModelStopped)]
        assert stopped == ["crash"]
        await one.aclose()
