"""A limit on tokens or cost let a request out that was larger than the whole limit, and the task completed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runner.acts import assert_journal_makes_sense, only
from treadle import (
    Agent,
    Limits,
    Message,
    NextStep,
    Runner,
    RunOptions,
    ScriptedModel,
    StepContext,
    StepResult,
    Text,
    Usage,
)
from treadle.llm.scripted import call, turn
from treadle.models import Price

pytestmark = pytest.mark.anyio

PROMPT = "word " * 30_000
STATES = {"final_answer": "degraded", "fail": "failed", "pause": "paused"}
PRICES = {"scripted": Price(10, 10)}
TOO_LARGE = "about 37,506 tokens would be sent, by an estimate, and 5,000 are left for it"
TOO_DEAR = "the request would cost about $0.37506, by an estimate, and $0.05 are left for it"


def reader(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel([turn("x", usage=Usage(30_000, 5))]), name="reader", **options)


@pytest.mark.parametrize("on_limit", STATES)
@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(tokens=5_000), TOO_LARGE), (Limits(cost=0.05), TOO_DEAR)],
    ids=["tokens", "cost"],
)
async def test_a_request_larger_than_its_limit_is_not_sent(
    store: Any, limits: Limits, reason: str, on_limit: Any
) -> None:
    agent = reader()
    async with Runner(store, agents=[agent], prices=PRICES) as runner:
        options = RunOptions(limits=limits, on_limit=on_limit)
        result = await runner.run(agent, PROMPT, task_id="t", options=options)
        assert (result.state, result.usage.model_calls, agent.model.requests) == (STATES[on_limit], 0, [])
        (reached,) = await only(runner, "t", "limit_reached")
        assert reached.detail == reason
        if on_limit == "final_answer":
            assert result.degraded_reasons == (f"limit reached: {reached.limit}: {reason}",)
        if on_limit == "fail":
            assert reason in str(result.error)
        await assert_journal_makes_sense(runner, "t")
    async with Runner(store, agents=[agent], prices=PRICES) as later:
        again = await later.resume("t", options=RunOptions(limits=Limits(tokens=50_000)))
        assert (again.state, again.final_text) == ("completed", "x")


async def test_parent_and_children_share_what_is_left(store: Any) -> None:
    """Of three children at once, each of 3,000 tokens, the rest of 5,000 lets one ask."""
    leaf = Agent(ScriptedModel(lambda request: turn("read", usage=Usage(3_000, 5))), name="leaf")

    def spread(request: Any) -> Any:
        if request.turn or not request.tools:
            return turn("All done.", usage=Usage(100, 5))
        return turn(
            "", [call("leaf", input=f"{n} " + "word " * 2_400) for n in range(3)], usage=Usage(100, 5)
        )

    boss = Agent(ScriptedModel(spread), name="boss", subagents=[leaf])
    async with Runner(store) as runner:
        result = await runner.run(boss, "go", task_id="boss", options=RunOptions(limits=Limits(tokens=5_000)))
        assert len(leaf.model.requests) == 1
        children = [item.task_id for item in (await runner.list_tasks(parent="boss")).items]
        reached = [event for child in children for event in await only(runner, child, "limit_reached")]
        assert len(reached) == 2
        for event in reached:
            assert "tokens would be sent, by an estimate" in event.detail
            assert event.detail.endswith("; it is shared with task boss")
        assert result.usage.total_tokens <= 5_000
        for task in ("boss", *children):
            await assert_journal_makes_sense(runner, task)


def parallel(reported: int) -> Agent[Any]:
    """An agent with three parallel steps, each of which asks for about 3,000 tokens."""

    async def own(ctx: StepContext) -> StepResult:
        if ctx.name == "start":
            return StepResult(next_steps=[*map(NextStep, "abc"), NextStep("end", after=tuple("abc"))])
        if ctx.name == "end":
            return StepResult("done", is_last=True)
        await ctx.call_model([Message("user", (Text("word " * 2_400),))])
        return StepResult(ctx.name)

    model = ScriptedModel(lambda request: turn("read", usage=Usage(reported, 5), delay=0.001))
    return Agent(model, name="own", worker=own)


@pytest.mark.parametrize("on_limit", STATES)
async def test_parallel_steps_share_what_is_left(store: Any, on_limit: Any) -> None:
    agent, options = parallel(3_000), RunOptions(limits=Limits(tokens=5_000), on_limit=on_limit)
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t", options=options)
        assert (result.state, len(agent.model.requests)) == (STATES[on_limit], 1)
        assert len(await only(runner, "t", "limit_reached")) == 1
        await assert_journal_makes_sense(runner, "t")


async def test_a_parallel_request_that_does_not_fit_yet_waits_for_those_in_flight(store: Any) -> None:
    """The first reports fewer tokens than were kept back for it, so that the others fit after all."""
    agent = parallel(500)
    async with Runner(store) as runner:
        result = await runner.run(agent, "go", task_id="t", options=RunOptions(limits=Limits(tokens=5_000)))
        assert (result.state, len(agent.model.requests)) == ("completed", 3)
        assert await only(runner, "t", "limit_reached") == []
