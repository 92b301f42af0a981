"""A cancel during a tool call left a conversation that providers refuse, which showed only after a restart."""

import asyncio
import random

import pytest

from treadle import Agent, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import call, text
from treadle.stores.memory import MemoryStore
from treadle.testing import clock
from treadle.testing.audit import Evidence, audit_store


@tool(read_only=True)
async def look(n: int) -> str:
    await asyncio.sleep(0.02)
    return "seen"


@tool
async def save(n: int) -> str:
    await asyncio.sleep(0.03)
    return "saved"


@pytest.mark.parametrize("verb", ["cancel", "interrupt"])
def test_a_thread_goes_on_after_a_stop_at_any_millisecond_of_a_call(verb: str) -> None:
    model = ScriptedModel([call("look", n=1) + call("save", n=2), text("so")])
    agent = Agent(model, tools=[look, save])
    options = RunOptions(keep_in_thread="always", on_unknown_outcome="tell_model")

    async def story(milliseconds: int) -> None:
        store = MemoryStore()
        async with clock.runner(store, options=options) as runner:
            handle = await runner.start(agent, "go", thread_id="talk")
            await asyncio.sleep(milliseconds / 1000)
            await getattr(handle, verb)()
            first = handle.task_id
        async with clock.runner(store, options=options, agents=[agent]) as runner:
            if verb == "interrupt":
                await runner.resume(first)
            result = await runner.run(agent, "and now?", thread_id="talk")
            assert result.state == "completed"
            requests = {
                task: [request.messages for request in model.requests if request.task_id == task]
                for task in (first, result.task_id)
            }
            assert await audit_store(store, Evidence(requests=requests, ended=True)) == []

    for milliseconds in range(random.randrange(3), 35, 3):
        clock.run(story(milliseconds))
