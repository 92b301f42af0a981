"""Blocking tools that filled the thread pool, each running an agent with a blocking tool, waited for ever."""

import asyncio
import threading
from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel, tool
from treadle.engine import in_flight
from treadle.llm.scripted import Turn, call
from treadle.stores.memory import MemoryStore
from treadle.tools import threads

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_pool", None)


def many(name: str, times: int) -> Turn:
    answer = Turn()
    for number in range(times):
        answer += call(name, n=number)
    return answer


def tower(runner: Runner, floors: int, wide: int, how: str, ends: list[int]) -> Agent[Any]:
    """Return an agent whose blocking tool runs another one, down to one whose tool just ends."""

    @tool(read_only=True)
    def leaf(n: int) -> int:
        ends.append(n)
        return n

    below = Agent(ScriptedModel([many("leaf", 2), "Done."]), name="floor0", tools=[leaf])
    for floor in range(floors):
        below = story(runner, below, wide if floor == floors - 1 else 2, floor + 1, how)
    return below


def story(runner: Runner, below: Agent[Any], wide: int, floor: int, how: str) -> Agent[Any]:
    @tool(read_only=True, name="down")
    def down(n: int) -> str:
        threading.Event().wait(0.1)  # until all places are taken by such calls
        if how == "sync":
            return runner.sync.run(below, "go").final_text
        return asyncio.run(runner.run(below, "go")).final_text

    return Agent(ScriptedModel([many("down", wide), "Done."]), name=f"floor{floor}", tools=[down])


@pytest.mark.parametrize(("floors", "wide", "how"), [(1, 32, "sync"), (1, 32, "loop"), (2, 33, "sync")])
async def test_a_call_that_waits_for_its_own_runner_lends_its_slot(floors: int, wide: int, how: str) -> None:
    ends: list[int] = []
    async with Runner(MemoryStore()) as runner:
        agent = tower(runner, floors, wide, how, ends)
        async with asyncio.timeout(20):
            result = await runner.run(agent, "go", options=RunOptions(max_parallel_tools=64))
        assert result.final_text == "Done."
        assert {execution.outcome for execution in result.tool_executions} == {"ok"}
        assert len(ends) == wide * 2**floors
    async with asyncio.timeout(5):
        while threads.at_work():  # noqa: ASYNC110  the last threads are about to be idle
            await asyncio.sleep(0.001)


async def test_no_more_calls_run_at_once_than_there_are_slots_and_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 2)
    at_once, most, lock = 0, 0, threading.Lock()

    @tool(read_only=True)
    def leaf(n: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.005)
        with lock:
            at_once -= 1

    async with Runner(MemoryStore()) as runner:
        below = Agent(ScriptedModel([many("leaf", 8), "Done."]), name="below", tools=[leaf])
        agent = story(runner, below, 6, 1, "sync")
        async with asyncio.timeout(20):
            await runner.run(agent, "go")
    assert most == 2, "each of two callers lends its place to one call after the other"


async def test_a_lent_slot_is_returned_when_the_call_in_it_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "MAX_THREADS", 1)
    entered, let_go, given_up = threading.Event(), threading.Event(), list[str]()

    @tool(read_only=True)
    def deaf() -> None:
        entered.set()
        let_go.wait(10)

    @tool(read_only=True)
    def quick() -> str:
        return "quick"

    def outer(job: Any) -> str:
        async def inside() -> str:
            stuck = asyncio.create_task(_call(deaf))
            await asyncio.to_thread(entered.wait, 5)
            waiting = asyncio.create_task(_call(quick))
            for _ in range(2):
                await asyncio.sleep(0.02)
                stuck.cancel()
            outcome = await waiting
            given_up.extend(one.tool for one in threads.abandoned())
            return outcome

        return asyncio.run(inside())

    async with asyncio.timeout(5):
        assert await threads.in_thread(outer, tool="outer", task_id="t", call_id="c") == "quick"
    assert given_up == ["deaf"]
    let_go.set()


async def _call(request: Any) -> Any:
    return await threads.in_thread(lambda job: request(), tool=request.spec.name, task_id="t", call_id="c")


async def test_a_blocking_read_that_ignores_its_cancellation_is_named_by_its_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.02)
    monkeypatch.setattr(in_flight, "INSIST", 0.02)
    entered, let_go = threading.Event(), threading.Event()

    @tool(read_only=True)
    def deaf() -> None:
        entered.set()
        let_go.wait(10)

    agent = Agent(ScriptedModel([call("deaf"), "Done."]), tools=[deaf])
    async with Runner(MemoryStore()) as runner:
        handle = await runner.start(agent, "go")
        await asyncio.to_thread(entered.wait, 5)
        result = await handle.cancel()
        abandoned = [(one.name, one.task_id, one.call_id) for one in runner.abandoned]
        assert abandoned == [("deaf", handle.task_id, "s1-0")]
        execution = result.tool_executions[0]
        assert execution.outcome == "abandoned"
        assert execution.error is not None
        assert "did not stop when it was cancelled" in execution.error.message
        let_go.set()
        async with asyncio.timeout(5):
            while runner.abandoned:  # noqa: ASYNC110  it ends in a thread
                await asyncio.sleep(0.01)
