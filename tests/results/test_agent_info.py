"""What a runner tells of its agents: names, versions, tools with their effects, schemas, limits; no code."""

import json

import pytest
from pydantic import BaseModel

from treadle import Agent, Limits, Runner, ScriptedModel, tool
from treadle.results.agent_info import AgentInfo
from treadle.results.wire import from_wire, wire_bytes

pytestmark = pytest.mark.anyio


class Quote(BaseModel):
    cents: int


@tool(read_only=True)
def price(item: str) -> int:
    """Say what an item costs.

    In cents.
    """
    return 250


@tool(spends=True)
def buy(item: str) -> None:
    """Buy an item."""


async def test_a_runner_tells_its_agents_with_those_that_they_reach() -> None:
    scout = Agent(ScriptedModel(["x"]), name="scout", description="Looks around.", output_type=Quote)
    desk = Agent(ScriptedModel(["x"]), name="desk", instructions=lambda run: "be " + run.task_id)
    shop = Agent(
        ScriptedModel(["x"]),
        name="shop",
        instructions="Sell.",
        tools=[price, buy],
        subagents=[scout],
        handoffs=[desk],
        limits=Limits(steps=5),
        metadata={"team": "b"},
    )
    async with Runner("memory:", agents=[shop]) as runner:
        told = await runner.get_agents()
        assert runner.sync.get_agents() == told
    by_name = {each.name: each for each in told}
    assert list(by_name) == ["desk", "scout", "shop"]
    info = by_name["shop"]
    assert (info.fingerprint, info.model, info.worker) == (shop.fingerprint, "scripted", "function_calling")
    assert [(spec.name, spec.effect, spec.spends) for spec in info.tools] == [
        ("price", "read", False),
        ("buy", "write", True),
    ]
    assert info.tools[0].parameters["properties"]["item"]["type"] == "string"
    assert (info.subagents, info.handoffs, info.limits.steps) == (("scout",), ("desk",), 5)
    assert (info.instructions, by_name["desk"].instructions) == ("Sell.", None)
    assert by_name["scout"].output_schema is not None
    assert info.output_schema is None
    assert "price" in repr(info) or "price" in str(info._repr_html_())


async def test_what_is_told_of_an_agent_comes_back_from_the_public_json_form() -> None:
    agent = Agent(ScriptedModel(["x"]), name="scout", tools=[price], output_type=Quote)
    async with Runner("memory:", agents=[agent]) as runner:
        told = await runner.get_agents()
    assert from_wire(tuple[AgentInfo, ...], json.loads(wire_bytes(told)), strict=True) == told


async def test_a_worker_with_settings_is_told_by_its_name() -> None:
    from treadle import React

    async with Runner(
        "memory:", agents=[Agent(ScriptedModel(["x"]), worker=React(max_parse_errors=3))]
    ) as runner:
        assert [each.worker for each in await runner.get_agents()] == ["React"]
