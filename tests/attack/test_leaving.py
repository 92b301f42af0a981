"""Callers that are cancelled at any moment: nothing is logged as an error, and the task can be resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel
from treadle.errors import TaskConflict

pytestmark = pytest.mark.anyio


async def test_cancelling_the_caller_during_the_write_of_a_fork_logs_no_error(tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    agent = Agent(ScriptedModel(["done"]))
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        task = await runner.create_task(agent, "Go.")
        for rounds in range(40):
            forking = asyncio.ensure_future(runner.fork(task))
            for _ in range(rounds):
                await asyncio.sleep(0)
            forking.cancel()
            await asyncio.wait([forking])
        await asyncio.sleep(0.05)
    assert not faults


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_id_of_a_deleted_task_that_forks_still_share_is_refused(kind: str, tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(["done"]))
    store = "memory:" if kind == "memory" else tmp_path / "journal.db"
    async with asyncio.timeout(5), Runner(store, agents=[agent]) as runner:
        await runner.run(agent, "Go.", task_id="t")
        await runner.fork("t")
        await runner.delete_task("t")
        with pytest.raises(TaskConflict, match="deleted"):
            await runner.run(agent, "Go.", task_id="t")
