"""Requests to a model: in the conversation, after it, and beside it."""

from typing import Any

import pytest

from treadle import Agent, Runner, RunOptions, ScriptedModel, StepContext, StepResult
from treadle.core.messages import Message, Text, user
from treadle.core.model import ModelRequest
from treadle.llm.scripted import Turn, text
from treadle.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_request_after_the_conversation_sees_it_and_leaves_it_as_it_was() -> None:
    seen: list[list[str]] = []

    def reply(request: ModelRequest) -> Turn:
        seen.append([message.text for message in request.messages])
        return text(f"answer {request.turn}")

    async def worker(ctx: StepContext[Any]) -> StepResult:
        await ctx.call_model()
        aside = await ctx.call_model("and?", after_conversation=True)
        side_messages = [user("and?"), Message("assistant", (Text("x"),)), user("no?")]
        again = await ctx.call_model(side_messages, after_conversation=True)
        alone = await ctx.call_model("and?")
        return StepResult([aside.message.text, again.message.text, alone.message.text], is_last=True)

    async with Runner("memory:") as runner:
        agent = Agent(ScriptedModel(reply), worker=worker)
        await runner.run(agent, "before", thread_id="talk")
        seen.clear()
        result = await runner.run(agent, "go", thread_id="talk")
    assert seen[0][-1] == "go"
    talk = [*seen[0], "answer 0"]
    assert seen[1:] == [[*talk, "and?"], [*talk, "and?", "x", "no?"], ["and?"]]
    assert result.output == ["answer 1", "answer 2", "answer 3"]
    assert [message.text for message in result.messages[:2]] == ["go", "answer 0"]


async def test_such_a_request_fits_the_window_like_one_in_the_conversation() -> None:
    model = ScriptedModel(lambda request: text("yes " * 200))

    async def worker(ctx: StepContext[Any]) -> StepResult:
        await ctx.call_model("and?", after_conversation=True)
        return StepResult("done", is_last=True)

    store = MemoryStore()
    async with Runner(store) as runner:
        for _ in range(5):
            await runner.run(Agent(model), "go " * 200, thread_id="talk")
        options = RunOptions(context_tokens=1000)
        await runner.run(Agent(model, worker=worker), "go", thread_id="talk", options=options)
    assert 2 < len(model.requests[-1].messages) < 12
    assert model.requests[-1].messages[-1].text == "and?"
