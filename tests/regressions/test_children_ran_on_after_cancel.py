"""The children of a cancelled task went on and spent money."""

import asyncio
import time
from typing import Any

import pytest

from treadle import Agent, Limits, Runner, ScriptedModel, tool
from treadle.llm.scripted import call
from treadle.testing.audit import Evidence, audit_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("verb", ["cancel", "interrupt"])
async def test_no_model_is_asked_in_a_tree_of_three_levels_once_its_root_was_stopped(
    tmp_path: Any, verb: str
) -> None:
    asked_at: list[float] = []

    @tool(read_only=True)
    async def look() -> str:
        return "nothing yet"

    def agent(name: str, below: list[Agent[Any]]) -> Agent[Any]:
        async def loop_for_ever(request: Any) -> Any:
            asked_at.append(time.monotonic())
            await asyncio.sleep(0.005)
            if request.turn == 0 and below:
                return [call(other.name, input="go on") for other in below]
            return call("look")

        limits = Limits(repeats=0)
        return Agent(ScriptedModel(loop_for_ever), name=name, tools=[look], subagents=below, limits=limits)

    middle = [agent(f"middle{n}", [agent(f"leaf{n}{m}", []) for m in range(3)]) for n in range(3)]
    async with Runner(tmp_path / "journal.db") as runner:
        handle = await runner.start(agent("root", middle), "go")
        async with asyncio.timeout(20):
            while len(asked_at) < 40:  # noqa: ASYNC110  requests are made in other coroutines
                await asyncio.sleep(0.005)
        begun = time.monotonic()
        result = await (handle.cancel() if verb == "cancel" else handle.interrupt())
        assert result.state == ("cancelled" if verb == "cancel" else "interrupted")
        await asyncio.sleep(0.3)
        assert max(asked_at) - begun < 1
        states = {task.state for task in (await runner.list_tasks()).items}
        assert states == {result.state}
        assert await audit_store(runner.store, Evidence(ended=verb == "cancel")) == []
