"""A runner is closed: the tasks it drives are interrupted, and the tasks it started run on until then."""

import asyncio
import time
from typing import Any

import pytest

from tests.cast import Gate, gate_agent
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.engine import in_flight
from treadle.errors import StoreUnavailable
from treadle.llm.scripted import call
from treadle.stores.memory import MemoryStore


@pytest.mark.anyio
async def test_closing_a_runner_interrupts_what_it_drives(store: Any) -> None:
    gates = [Gate(read_only=True) for _ in range(3)]
    first = Runner(store)
    handles = [await first.start(gate_agent(gate), "go") for gate in gates]
    for gate in gates:
        await gate.entered.wait()
    async with asyncio.timeout(1.5):
        await first.aclose()
    assert [gate.cancelled for gate in gates] == [1, 1, 1]
    assert [(await handle.result()).state for handle in handles] == ["interrupted"] * 3
    if isinstance(store, MemoryStore):
        return
    async with Runner(store) as second:
        for handle, gate in zip(handles, gates, strict=True):
            gate.let_go.set()
            task = await second.get_task(handle.task_id)
            assert (task.state, task.driven) == ("interrupted", False)
            assert (await second.resume(handle.task_id, agent=gate_agent(gate))).state == "completed"


@pytest.mark.anyio
async def test_closing_a_runner_with_a_stubborn_tool_takes_the_grace_and_not_longer(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "GRACE", 0.4)
    entered, stop = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> None:
        entered.set()
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue

    first = Runner(store)
    handle = await first.start(Agent(ScriptedModel([call("stubborn"), "x"]), tools=[stubborn]), "go")
    await entered.wait()
    began = time.monotonic()
    await first.aclose()
    assert 0.4 <= time.monotonic() - began < 1.9
    assert (await handle.result()).state == "interrupted"
    stop.set()


@pytest.mark.anyio
async def test_closing_twice_and_closing_an_unused_runner_is_nothing(store: Any) -> None:
    async with Runner(store) as runner:
        await runner.run(Agent(ScriptedModel(["Hi."])), "go")
        await runner.aclose()
    await runner.aclose()
    await Runner(MemoryStore()).aclose()


@pytest.mark.anyio
async def test_a_closed_runner_says_so_and_can_be_opened_again(store: Any) -> None:
    agent = Agent(ScriptedModel(["Hi."] * 9), name="greeter")
    async with Runner(store, agents=[agent]) as runner:
        task = (await runner.create_task(agent, "go")).task_id
        page = await runner.list_tasks(limit=1)
        handle, stream = runner.handle(task), runner.run_stream(agent, "go")
    for use in (
        lambda: runner.run(agent, "go"),
        lambda: runner.run(agent, "go", task_id="other"),
        lambda: runner.create_task(agent, "go"),
        lambda: runner.resume(task),
        lambda: runner.run_step(task),
        lambda: runner.result(task),
        lambda: runner.cancel(task),
        runner.list_tasks,
        lambda: runner.get_thread("talk"),
        runner.verify,
        lambda: page.turn("1.a"),
        handle.result,
        lambda: anext(handle.events()),
        stream.__aenter__,
    ):
        with pytest.raises(
            StoreUnavailable, match=r"the runner of .* is closed: make another one, or open it"
        ):
            await use()
    await runner.drain()
    async with runner:
        assert (await runner.resume(task)).state == "completed"


def test_a_runner_closed_by_its_sync_verbs_says_so(store: Any) -> None:
    with Runner(store).sync as treadle:
        treadle.list_tasks()
    with pytest.raises(StoreUnavailable, match="is closed: make another one"):
        treadle.list_tasks()
    with treadle:
        assert treadle.list_tasks().items == ()


@pytest.mark.anyio
async def test_a_runner_is_opened_by_its_first_verb(store: Any) -> None:
    runner = Runner(store)
    assert (await runner.list_tasks()).items == ()
    await runner.aclose()
