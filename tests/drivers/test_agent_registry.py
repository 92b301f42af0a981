"""The registry of agents: by name and version, and what each brings to a drive."""

from typing import Any

import pytest

from tests.cast import sayer
from treadle import Agent, Runner, RunOptions, ScriptedModel
from treadle.core.state import start
from treadle.drivers import agent_registry
from treadle.drivers.agent_registry import AgentRegistry
from treadle.engine.metering import no_price
from treadle.errors import AgentUnknown, ConfigurationError, PriceUnknown, TaskConflict
from treadle.policy.limits import Limits

pytestmark = pytest.mark.anyio


def registry(*agents: Agent[Any]) -> AgentRegistry:
    made = AgentRegistry(lambda model: ScriptedModel(["Hi."]) if isinstance(model, str) else model, no_price)
    for agent in agents:
        made.register(agent)
    return made


def test_an_agent_is_registered_with_the_agents_it_may_call_unless_their_names_are_taken() -> None:
    clerk, other_clerk = sayer("One.", name="clerk"), sayer("Two.", name="clerk")
    boss = Agent(ScriptedModel(["x"]), name="boss", subagents=[other_clerk, sayer(name="scribe")])
    agents = registry(clerk, boss)
    assert agents.has("scribe")
    assert agents.of("clerk", None, "t") is clerk


def test_a_task_finds_the_version_it_began_with() -> None:
    old, new = sayer("One.", instructions="Be brief."), sayer("One.", instructions="Be long.")
    agents, state = registry(old, new), start("t")
    state.fingerprint = old.fingerprint
    assert agents.of("sayer", None, "t") is new
    assert agents.with_task(state, new) is old


def test_old_versions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_registry, "MAX_VERSIONS", 2)
    versions = [sayer(instructions=str(number)) for number in range(3)]
    agents, state = registry(*versions), start("t")
    state.fingerprint = versions[0].fingerprint
    assert agents.with_task(state, versions[2]) is versions[2]


def test_an_agent_that_is_not_of_the_task_is_refused() -> None:
    agents = registry(sayer())
    with pytest.raises(AgentUnknown, match="'missing'"):
        agents.of("missing", None, "t")
    with pytest.raises(TaskConflict):
        agents.of("sayer", sayer(name="other"), "t")
    with pytest.raises(ConfigurationError, match="must be an Agent"):
        agents.register("sayer")  # type: ignore[arg-type]


def test_the_runtime_of_an_agent_is_made_once_for_the_same_options() -> None:
    agent = sayer()
    agents, state = registry(agent), start("t")
    first = agents.runtime_for(state, agent)
    assert agents.runtime_for(start("u"), agent) is first
    state.options = {"tool_output_max_chars": 100}
    assert agents.runtime_for(state, agent).max_chars == 100


async def test_a_limit_on_cost_needs_the_price_of_every_model_that_may_be_asked() -> None:
    boss = Agent(ScriptedModel(["x"]), name="boss", subagents=[sayer(name="clerk")])
    agents = registry(boss)
    await agents.check_limits(boss, Limits())
    with pytest.raises(PriceUnknown):
        await agents.check_limits(boss, Limits(cost=1.0))


async def test_a_worker_without_a_registered_agent_is_no_reviewer() -> None:
    async with Runner("memory:", options=RunOptions()) as runner:
        task = await runner.create_task(sayer(), "go")
        state = (await runner._driver.cache.load(task.task_id)).state
        assert runner._driver.agents.reviewer_of(state) is None
