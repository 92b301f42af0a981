"""A handle on a task: it tells the state of the task wherever the task is driven."""

import gc
from typing import Any

import pytest

from tests.cast import Gate, gate_agent
from treadle import Runner

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("own_garbage")
async def test_a_dropped_handle_keeps_its_task_running(runner: Runner) -> None:
    gate = Gate()
    task_id = (await runner.start(gate_agent(gate), "go")).task_id
    gc.collect()
    await gate.entered.wait()
    gate.let_go.set()
    assert (await runner.handle(task_id).result()).state == "completed"


async def test_a_handle_tells_how_its_task_stands_also_after_another_driver_resumed_it(store: Any) -> None:
    gate = Gate(read_only=True)
    agent = gate_agent(gate)
    async with Runner(store, agents=[agent]) as runner:
        handle = await runner.start(agent, "go")
        await gate.entered.wait()
        await handle.interrupt()
        assert (await handle.result()).state == "interrupted"
        gate.let_go.set()
        done = await runner.resume(handle.task_id)
        assert done.state == "completed"
        assert await handle.result() == done
        await handle.undo_step(to=0, force=True)
        assert (await handle.result()).state == "running"
        await handle.cancel()
        assert (await handle.result()).state == "cancelled"
        other = await runner.start(agent, "go", task_id="other")
        await other.result()
    assert (await other.result()).state == "completed", "also once the store is closed"
