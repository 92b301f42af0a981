"""The auditor counts how often a conversation holds the result of a call in the background."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, ToolContext, tool
from treadle.llm.scripted import call, text
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


async def test_the_same_result_in_an_earlier_task_of_the_thread_was_counted_as_a_second_delivery() -> None:
    tickets: list[str] = []

    @tool(background=True, idempotent=True)
    async def render(ctx: ToolContext[Any]) -> Any:
        """Render a film."""
        tickets.append(ctx.ticket)
        return ctx.background({"job": 1}, expires=60)

    model = ScriptedModel([call("render"), text("started"), text("it is there")] * 2)
    agent = Agent(model, name="films", tools=[render])
    async with Runner("memory:", agents=[agent]) as runner:
        for name in ("first", "second"):
            await runner.run(agent, "a film", thread_id="films", task_id=name)
            await runner.complete(tickets[-1], "the film")
            assert (await runner.resume(name)).final_text == "it is there"
        await runner.fork("second")
        assert await audit_store(runner.store) == []
