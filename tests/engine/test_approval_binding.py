"""What the definition of a tool is: anything that a person who approved a call may have relied on."""

from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.fold import apply
from treadle.core.messages import Text
from treadle.core.state import start
from treadle.engine.approval_binding import definition_of


def save(text: str) -> str:
    """Save."""
    return text


def definition(agent: Agent[Any], name: str = "save") -> str:
    state = start("t")
    apply(state, e.TaskCreated(agent.name, (Text("go"),), "talk", seq=1))
    registry = Runner("memory:", agents=[agent])._driver.agents
    return definition_of(registry.runtime_for(state, agent), name)


def agent_with(function: Any, **options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(["x"]), tools=[tool(function, **options)])


def test_the_same_tool_has_the_same_definition() -> None:
    assert definition(agent_with(save)) == definition(agent_with(save))


def other_body(text: str) -> str:
    """Save."""
    return text + "!"


def other_schema(text: str, loud: bool = False) -> str:
    """Save."""
    return text


@pytest.mark.parametrize(
    "other",
    [
        agent_with(other_body, name="save"),
        agent_with(other_schema, name="save"),
        agent_with(save, description="Delete."),
        agent_with(save, destructive=True),
    ],
    ids=["body", "schema", "description", "effects"],
)
def test_another_tool_of_the_name_has_another_definition(other: Agent[Any]) -> None:
    assert definition(other) != definition(agent_with(save))


def test_another_version_of_a_subagent_is_another_definition() -> None:
    def above(instructions: str) -> Agent[Any]:
        below = Agent(ScriptedModel(["x"]), name="below", instructions=instructions)
        return Agent(ScriptedModel(["x"]), subagents=[below])

    assert definition(above("Be kind."), "below") == definition(above("Be kind."), "below")
    assert definition(above("Be kind."), "below") != definition(above("Be quick."), "below")
