"""Callers who are cancelled, at any moment: nothing is logged as a fault, and the task can be resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel

pytestmark = pytest.mark.anyio


async def test_a_fork_whose_caller_is_cancelled_while_it_is_written_is_no_fault(tmp_path: Path) -> None:
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
