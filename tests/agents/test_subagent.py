"""Subagents as tools: which values may be a subagent, and the arguments of its calls."""

import pytest

from tests.drivers.agent_trees import answering
from tests.runner.acts import Gate
from treadle import (
    Agent,
    Runner,
    ScriptedModel,
)
from treadle.errors import (
    ConfigurationError,
)
from treadle.llm.scripted import call, text

pytestmark = pytest.mark.anyio


def test_a_value_that_is_not_a_subagent_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"subagents\[0\] must be an Agent"):
        Agent("openai:none", subagents=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="'work' has the name of another of its tools"):
        Agent("openai:none", tools=[Gate("work").tool], subagents=[answering("work")])
    with pytest.raises(ConfigurationError, match="subagents must be a list"):
        Agent("openai:none", subagents="writer")


def test_an_agent_with_other_subagents_is_another_version() -> None:
    model = ScriptedModel([text("hello")])
    alone = Agent(model, name="boss")
    boss = alone.replace(subagents=[answering("writer")])
    assert boss.fingerprint != alone.fingerprint
    assert [spec.spec.name for spec in boss.replace(name="chief").tools] == ["writer"]
    assert boss.replace(subagents=[]).fingerprint == alone.fingerprint


async def test_a_call_of_an_agent_with_empty_input_creates_no_task(runner: Runner) -> None:
    boss = Agent(
        ScriptedModel([call("writer", input=" "), call("writer", task="x"), text("well")]),
        name="boss",
        subagents=[answering("writer")],
    )
    result = await runner.run(boss, "go")
    assert [one.outcome for one in result.tool_executions] == ["invalid", "invalid"]
    assert not (await runner.list_tasks(parent=result.task_id)).items
