"""The demonstration's undo, where the process crashed in the last compensation."""

import asyncio
from typing import Any

import pytest

from tests.property.mortal import MortalStore, next_life
from treadle import Agent, Happened, Runner, ScriptedModel, ToolCall, ToolContext, tool
from treadle.cli.demo import Demo
from treadle.errors import StoreError
from treadle.llm.scripted import call, text
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


class OfOneTask(Demo):
    """A demonstration of a task of ours, of which the files need not be asked what became of a compensation."""

    def __init__(self, runner: Runner, agent: Agent[Any], task_id: str) -> None:
        self.runner, self.agent, self.task_id = runner, agent, task_id

    async def _settle(self) -> None:
        for pending in (await self.runner.result(self.task_id)).pending:
            await self.runner.settle(self.task_id, pending.request_id, Happened())


async def test_an_undo_that_ended_with_what_was_settled_is_not_asked_for_once_more() -> None:
    store = MortalStore(MemoryStore())
    await store.real.open()

    async def unwrite(written: ToolCall, ctx: ToolContext) -> None:
        store.die()
        await asyncio.sleep(0)

    @tool(undo=unwrite)
    async def write() -> None:
        """Write."""

    agent = Agent(ScriptedModel([call("write"), text("Done.")]), tools=[write])
    async with Runner(store, agents=[agent]) as runner:
        task = (await runner.run(agent, "go")).task_id
        with pytest.raises(StoreError):
            await runner.undo_step(task, to=0)
    async with Runner(await next_life(store, None), agents=[agent]) as runner:
        await OfOneTask(runner, agent, task).undo()
        assert (await runner.get_task(task)).steps == 0
