"""Where a fork may begin: at any event after which nothing is in flight, wherever its record ends."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.core.events import StepStarted
from treadle.core.messages import ToolResult
from treadle.core.model import ModelRequest
from treadle.errors import ForkPointBusy
from treadle.llm.scripted import Turn, call, text


@tool(read_only=True)
def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.anyio
async def test_a_fork_may_begin_in_the_middle_of_a_record_that_goes_on_with_a_call():
    agent = Agent(ScriptedModel([call("add", a=1, b=2), text("3")]), name="math", tools=[add])
    async with Runner("memory:") as runner:
        done = await runner.run(agent, "1 + 2?")
        events = [event async for event in runner.handle(done.task_id).events()]
        second = next(event for event in events if isinstance(event, StepStarted) and event.index == 2)
        records = await runner.store.read(done.task_id)
        assert any(record.seq - record.count + 1 < second.seq <= record.seq for record in records)
        fork = await runner.fork(done.task_id, at=second.seq - 1)
        assert (await runner.resume(fork)).final_text == "3"


@pytest.mark.anyio
async def test_a_fork_of_a_fork_begins_by_default_with_what_that_one_was_made_with():
    def reply(request: ModelRequest) -> Turn:
        result, *more = request.messages[2:] or [None]
        if result is None:
            return call("add", a=1, b=2)
        result_part = next(part for part in result.parts if isinstance(part, ToolResult))
        return text(" ".join([result_part.text, *[message.text for message in more]]))

    agent = Agent(ScriptedModel(reply), name="math", tools=[add])
    async with Runner("memory:") as runner:
        done = await runner.run(agent, "1 + 2?")
        other = await runner.fork(done.task_id, replace={"s1-0": 4}, input="In words, please.")
        again = await runner.fork(other)
        assert (await runner.resume(again)).final_text == "4 In words, please."
        assert (await runner.resume(other)).final_text == "4 In words, please."


@pytest.mark.anyio
async def test_a_task_that_waits_is_forked_at_a_step_before_its_call_in_the_background():
    @tool(background=True, read_only=True)
    async def order(ctx: ToolContext[Any]) -> Any:
        return ctx.background({"job": "a print"}, expires=3_600)

    script = [call("add", a=1, b=2), call("order"), text("ordered")]
    agent = Agent(ScriptedModel(script), name="math", tools=[add, order])
    async with Runner("memory:") as runner:
        task = (await runner.run(agent, "1 + 2, and print it")).task_id
        fork = await runner.fork(task, at="s1")
        assert (await runner.get_task(fork)).steps == 1
        with pytest.raises(ForkPointBusy):
            await runner.fork(task, at="s2")
