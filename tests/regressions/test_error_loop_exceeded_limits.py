"""A model that repeated a failing call for ever exceeded its limits."""

import pytest

from tests.cast import broken
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel
from treadle.llm.scripted import call, fail
from treadle.testing.audit import audit_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("limits", [Limits(model_calls=7), Limits(tool_calls=7), Limits(steps=7)])
async def test_a_tool_that_always_fails_stops_at_the_limit(limits: Limits) -> None:
    model = ScriptedModel(lambda request: call("broken"))
    async with Runner("memory:") as runner:
        result = await runner.run(
            Agent(model, tools=[broken]), "go", options=RunOptions(limits=limits, on_limit="fail")
        )
        assert result.state == "failed"
        assert len(model.requests) <= 8
        assert len(result.tool_executions) <= 8
        assert await audit_store(runner.store) == []


async def test_a_provider_that_always_refuses_is_asked_once_by_a_plain_model() -> None:
    model = ScriptedModel(lambda request: fail(429, retry_after=1))
    async with Runner("memory:") as runner:
        assert (await runner.run(Agent(model), "go")).state == "failed"
    assert len(model.requests) == 1
