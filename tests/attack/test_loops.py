"""Event loops that end under a task, exits raised in calls, clocks that go backwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cast import nap
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel
from treadle.context.recall import Recall
from treadle.drivers.driver import Dependencies
from treadle.engine.options import Breakpoint
from treadle.llm.default_layers import resolve
from treadle.llm.scripted import call
from treadle.runner.runner import TaskRunner
from treadle.stores.memory import MemoryStore
from treadle.stores.tenants import Tenants
from treadle.testing.audit import audit_store
from treadle.wiring import load_parts


def in_a_loop_that_is_closed(runner: Runner, agent: Agent[Any]) -> None:
    """Start a task in a loop that is closed without giving its tasks a chance to end."""

    def work() -> None:
        loop = asyncio.new_event_loop()

        async def begin() -> None:
            await runner.start(agent, "Go.", task_id="t")
            await asyncio.sleep(0.05)

        loop.run_until_complete(begin())
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["resume", "cancel", "delete_task"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine")
async def test_a_task_whose_event_loop_was_closed_can_be_resumed(verb: str, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("nap", seconds=0.3), "done"]), tools=[nap])
    async with asyncio.timeout(5), Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        in_a_loop_that_is_closed(runner, agent)
        result = await getattr(runner, verb)("t")
        if result is not None:
            assert result.state == ("completed" if verb == "resume" else "cancelled")
        assert await audit_store(runner.store) == []


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine")
async def test_closing_does_not_wait_for_a_closed_event_loop(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("nap", seconds=5), "done"]), tools=[nap])
    runner = Runner(tmp_path / "journal.db", agents=[agent])
    in_a_loop_that_is_closed(runner, agent)
    async with asyncio.timeout(5):
        await runner.aclose()


class Exiting:
    name = "own:exiting"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        raise SystemExit(1)
        yield


def exits(_: Any) -> str:
    raise SystemExit(2)


def test_an_exit_raised_in_one_call_does_not_end_the_thread_of_all_others() -> None:
    runner = Runner("memory:")
    assert runner.run_sync(Agent(ScriptedModel(["done"]), instructions=exits), "Go.").state == "failed"
    assert runner.run_sync(Agent(Exiting()), "Go.").state == "failed"
    assert runner.run_sync(Agent(ScriptedModel(["done"])), "Go.").final_text == "done"


@pytest.mark.anyio
async def test_a_backward_clock_extends_no_task_and_makes_no_duration_negative() -> None:
    now = 2_000_000_000_000_000

    def clock() -> int:
        nonlocal now
        now -= 7_000_000
        return now

    agent = Agent(ScriptedModel([call("nap", seconds=0), "done"]), tools=[nap])
    options = RunOptions(limits=Limits(seconds=5))
    store = MemoryStore()
    runner = TaskRunner(
        Dependencies(store, Tenants(store), resolve, load_parts, options, Recall(), (agent,), None, clock)
    )
    result = await runner.run(agent, "Go.", task_id="t")
    assert result.state == "completed"
    (execution,) = result.tool_executions
    assert 0 <= execution.latency < 5, "it is what passed, and the clock is set back by 7 s at each look"
    assert 0 <= (await runner._driver.cache.load("t")).state.driven < 5_000_000


@pytest.mark.anyio
@pytest.mark.parametrize("event", ["model_started", "tool_started"])
async def test_a_breakpoint_on_the_start_of_an_effect_stops_behind_it(event: str) -> None:
    agent = Agent(ScriptedModel([call("nap", seconds=0), "done"]), tools=[nap])
    async with Runner("memory:", agents=[agent]) as runner:
        result = await runner.run(agent, "Go.", options=RunOptions(break_on=[Breakpoint(event=event)]))
        assert result.state == "paused"
        for _ in range(3):
            result = await runner.resume(result.task_id)
        assert result.state == "completed"
        assert await audit_store(runner.store) == []


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine")
async def test_a_caller_that_waits_for_a_task_of_another_loop_returns_when_the_loop_closes() -> None:
    agent = Agent(ScriptedModel([call("nap", seconds=60), "done"]), tools=[nap])
    async with asyncio.timeout(10), Runner("memory:", agents=[agent]) as runner:
        await runner.create_task(agent, "Go.", task_id="t")
        closing = asyncio.ensure_future(asyncio.to_thread(in_a_loop_that_is_closed, runner, agent))
        while not (await runner.get_task("t")).driven:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        result = await runner.handle("t").result()
        await closing
        assert (result.state, result.output) == ("running", None)
