"""An answer with thousands of calls blocked the event loop until the last of them had ended."""

import asyncio
from typing import Any

import pytest

from tests.runner.acts import results_seen
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, StepContext, StepResult, tool
from treadle.llm.scripted import Turn, call
from treadle.stores.memory import MemoryStore
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio

MAX_CALLS = 1_000
"""As the guide says."""


def asks_for(calls: int, name: str = "look") -> Turn:
    return Turn(parts=tuple([call(name, n=number).parts[0] for number in range(calls)]))


class Looks:
    def __init__(self) -> None:
        self.seen: list[int] = []

        @tool(read_only=True)
        async def look(n: int) -> int:
            self.seen.append(n)
            return n

        self.tool = look


@pytest.mark.parametrize("worker", ["function_calling", "function"])
async def test_an_answer_with_too_many_calls_runs_none_and_the_model_sees_why(
    worker: str,
) -> None:
    looks = Looks()

    async def ask(ctx: StepContext) -> StepResult:
        answer = await ctx.call_model()
        await ctx.call_tools(answer)
        return StepResult((await ctx.call_model()).message.text, is_last=True)

    options: dict[str, Any] = {} if worker == "function_calling" else {"worker": ask}
    agent = Agent(ScriptedModel([asks_for(MAX_CALLS + 1), "Sorry."]), tools=[looks.tool], **options)
    async with Runner(MemoryStore()) as runner:
        result = await runner.run(agent, "Look everywhere")
        assert await audit_store(runner.store) == []
    assert (looks.seen, result.final_text) == ([], "Sorry.")
    assert [execution.outcome for execution in result.tool_executions] == ["invalid"]
    (observation,) = results_seen(agent.model.requests[1].messages)  # type: ignore[union-attr]
    assert observation == (
        "look was not run: it was one of 1,001 calls in one answer, and 1,000 are the most. "
        "None of them was run. Ask for fewer at a time."
    )


async def test_as_many_calls_as_an_answer_may_have_are_made() -> None:
    looks = Looks()
    agent = Agent(ScriptedModel([asks_for(MAX_CALLS), "Done."]), tools=[looks.tool])
    async with Runner(MemoryStore()) as runner:
        result = await runner.run(agent, "Look everywhere")
    assert (len(looks.seen), result.state) == (MAX_CALLS, "completed")


async def test_a_typed_answer_among_too_many_calls_is_none() -> None:
    turns = [asks_for(MAX_CALLS + 1, "final_answer"), call("final_answer", n=7)]
    agent = Agent(ScriptedModel(turns), output_type=dict[str, int], output_mode="tool")
    async with Runner(MemoryStore()) as runner:
        result = await runner.run(agent, "Count")
    assert (result.output, result.steps) == ({"n": 7}, 2)


@pytest.mark.parametrize("why", ["no such tool", "no calls left"])
async def test_calls_that_end_at_once_leave_other_tasks_their_turn(why: str) -> None:
    turns, stop = 0, False

    async def others() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            await asyncio.sleep(0)

    name = "look" if why == "no calls left" else "luke"
    options = RunOptions(limits=Limits(tool_calls=1 if name == "look" else None), on_limit="fail")
    agent = Agent(ScriptedModel([asks_for(MAX_CALLS, name), "Done."]), tools=[Looks().tool])
    async with Runner(MemoryStore()) as runner:
        beside = asyncio.create_task(others())
        await runner.run(agent, "Look everywhere", options=options)
        stop = True
        await beside
    assert turns >= MAX_CALLS / 32, "each few ends, others had their turn"
