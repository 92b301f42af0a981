"""A waiter is woken by what it waits for. The checks at intervals are for what makes no noise, such as a driver that
was killed; here they are an hour apart, so that a waiter that is not woken waits in vain.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.cast import Gate, sayer
from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel
from treadle.core.tools import NotHappened
from treadle.drivers import adoption as adopting
from treadle.drivers import owned_tasks
from treadle.drivers.adoption import Adoption
from treadle.engine import drive
from treadle.llm.scripted import call

pytestmark = pytest.mark.anyio

HOUR = 3600.0


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_tasks, "DRIVER_LOOK", HOUR)
    monkeypatch.setattr(drive, "RECHECK_SECONDS", HOUR)
    monkeypatch.setattr(adopting, "SCAN_SECONDS", HOUR)


@pytest.fixture
async def other(store: Any, runner: Runner) -> AsyncIterator[Runner]:
    """Another runner on the same store, as another process has it."""
    async with Runner(store) as made:
        yield made


def holding(gate: Gate) -> Agent[Any]:
    return Agent(ScriptedModel([call("work"), "Held."]), name="holder", tools=[gate.tool])


async def soon(waits: Any) -> Any:
    async with asyncio.timeout(5):
        return await waits


@pytest.mark.parametrize("here", [True, False], ids=["in its own process", "elsewhere"])
async def test_a_queued_task_begins_as_soon_as_the_thread_is_free(
    runner: Runner, other: Runner, here: bool
) -> None:
    gate = Gate(read_only=True)
    first = await runner.start(holding(gate), "Hold.", thread_id="talk")
    await gate.entered.wait()
    second = await (runner if here else other).start(sayer("Mine."), "Next.", thread_id="talk")
    async for event in second.events(deltas=False):
        if event.kind == "thread_awaited":
            break
    await asyncio.sleep(0.01)  # it asks once more before it stands still
    gate.let_go.set()
    assert (await soon(second.result())).final_text == "Mine."
    assert (await first.result()).final_text == "Held."


async def test_a_driver_is_woken_at_once_by_a_command_of_another_process(
    runner: Runner, other: Runner
) -> None:
    gate = Gate(read_only=True)
    driven = await runner.start(holding(gate), "Hold.")
    await gate.entered.wait()
    assert (await soon(other.cancel(driven.task_id))).state == "cancelled"
    assert (await soon(driven.result())).state == "cancelled"


async def test_a_watcher_of_another_runner_sees_a_task_end(runner: Runner, other: Runner) -> None:
    gate = Gate(read_only=True)
    driven = await runner.start(holding(gate), "Hold.")
    await gate.entered.wait()
    watching = asyncio.create_task(other.handle(driven.task_id).result())
    await asyncio.sleep(0.05)
    gate.let_go.set()
    assert (await soon(watching)).final_text == "Held."


@pytest.mark.parametrize("here", [True, False], ids=["in its own process", "elsewhere"])
async def test_an_adopter_is_woken_by_the_release_of_a_task(store: Any, here: bool) -> None:
    """Released here by its own runner, which settles the call; elsewhere by a runner that shuts down."""
    gate = Gate("work", read_only=False)
    agent, notices = holding(gate), list[Adoption]()
    async with Runner(store, agents=[agent]) as one, Runner(store, agents=[agent]) as two:
        adopter = one if here else two
        driven = await one.start(agent, "Hold.", task_id="t")
        await gate.entered.wait()
        await driven.interrupt()
        assert (await one.resume("t")).state == "waiting"
        adopter.begin_adopting(tell=notices.append)
        await asyncio.sleep(0.3)  # its first look, and the breath after it
        gate.let_go.set()
        (pending,) = (await one.result("t")).pending
        await one.settle("t", pending.request_id, NotHappened())
        await until(lambda: [adoption.kind for adoption in notices][-1:] == ["stopped"])
        assert (await adopter.result("t")).final_text == "Held."
