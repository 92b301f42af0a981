"""What a request is estimated at before it is sent, and whether that fits into what limits leave."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cast import look
from tests.runner.acts import assert_journal_makes_sense
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, Usage, tool
from treadle.llm.scripted import call, turn

pytestmark = pytest.mark.anyio


async def test_the_last_answer_is_asked_for_where_it_fits_without_the_tools(store: Any) -> None:
    @tool(read_only=True, description="Look. " * 2_000)
    def look() -> str:
        return "seen"

    agent = Agent(ScriptedModel([turn("A guess.", usage=Usage(30, 5))]), name="a", tools=[look])
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(tokens=1_000)))
        assert (result.state, result.final_text) == ("degraded", "A guess.")
        assert [request.tools for request in agent.model.requests] == [()]
        await assert_journal_makes_sense(runner, result.task_id)


@pytest.mark.parametrize(("reported", "requests"), [(2_000, 2), (4_000, 1)])
async def test_an_estimate_follows_what_the_model_reports(store: Any, reported: int, requests: int) -> None:
    """By the rule of thumb, the prompt has 5,000 tokens: after 2,000 it would not fit into the rest of 6,500."""

    script = [turn("", [call("look")], usage=Usage(reported, 5)), turn("Done.", usage=Usage(reported, 5))]
    agent = Agent(ScriptedModel(script), name="a", tools=[look])
    options = RunOptions(limits=Limits(tokens=6_500), on_limit="fail")
    async with Runner(store) as runner:
        result = await runner.run(agent, "word " * 4_000, options=options)
        assert (result.state, len(agent.model.requests)) == (
            "completed" if requests == 2 else "failed",
            requests,
        )


async def test_a_part_of_requests_that_does_not_grow_is_not_multiplied(store: Any) -> None:
    """A provider adds 400 tokens of its own to a short request: a longer one has no more of them."""

    @tool(read_only=True)
    def look() -> str:
        return "word " * 800

    script = [turn("", [call("look")], usage=Usage(430, 5)), turn("Done.", usage=Usage(1_430, 5))]
    agent = Agent(ScriptedModel(script), name="a", tools=[look])
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", options=RunOptions(limits=Limits(tokens=4_000)))
        assert (result.state, result.final_text) == ("completed", "Done.")
