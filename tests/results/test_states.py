"""The states of tasks, as callers see them."""

import asyncio

import pytest

from tests.cast import Gate, gate_agent
from treadle import Runner

pytestmark = pytest.mark.anyio


async def test_a_running_task_that_no_process_drives_is_between_steps(runner: Runner) -> None:
    gate = Gate(read_only=True)
    task = await runner.create_task(gate_agent(gate), "?")
    stepping = asyncio.ensure_future(runner.run_step(task))
    await gate.entered.wait()
    for view in (
        await runner.get_task(task),
        await runner.result(task),
        (await runner.list_tasks()).items[0],
    ):
        assert (view.state, view.driven, view.state_text) == ("running", True, "running")
    gate.let_go.set()
    await stepping
    for view in (
        await runner.get_task(task),
        await runner.result(task),
        (await runner.list_tasks()).items[0],
    ):
        assert (view.state, view.driven, view.state_text) == ("running", False, "between steps")
    assert str(await runner.result(task)) == "between steps. Next: `resume` or `run_step` goes on"
    result = await runner.resume(task, agent=gate_agent(gate))
    assert (result.state, result.driven, result.state_text) == ("completed", False, "completed")
