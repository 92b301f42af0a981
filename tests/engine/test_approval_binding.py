"""What the definition of a tool is: anything that a person who approved a call may have relied on."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.core import events as e
from treadle.core.data import frozen
from treadle.core.messages import Text
from treadle.core.permits import Permit, digest_of
from treadle.core.rules.fold import apply
from treadle.core.state import start
from treadle.core.steps import CallState
from treadle.core.tools import ToolSpec
from treadle.engine.approval_binding import definition_of, is_void


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


def test_what_a_later_version_lets_tools_declare_changes_no_definition() -> None:
    """Each field that a release added to what tools declare voided all approvals that were open, or stood."""
    known = agent_with(save)
    spec = known.tools[0].spec
    names = {field.name: getattr(spec, field.name) for field in fields(spec)}

    @frozen
    class Later(ToolSpec):
        novel: bool = False

    def of(spec: ToolSpec) -> str:
        runtime = SimpleNamespace(
            tools={"save": SimpleNamespace(spec=spec, code="x")}, agent=SimpleNamespace(subagents_by_tool={})
        )
        return definition_of(cast("Any", runtime), "save")

    assert of(Later(**names)) == of(spec)
    assert of(Later(**names, novel=True)) != of(spec)


def test_another_version_of_a_subagent_is_another_definition() -> None:
    def above(instructions: str) -> Agent[Any]:
        below = Agent(ScriptedModel(["x"]), name="below", instructions=instructions)
        return Agent(ScriptedModel(["x"]), subagents=[below])

    assert definition(above("Be kind."), "below") == definition(above("Be kind."), "below")
    assert definition(above("Be kind."), "below") != definition(above("Be quick."), "below")


@pytest.mark.parametrize(("changed", "void"), [({"text": "a"}, False), ({"text": "b"}, True)])
def test_an_approval_of_a_tool_that_the_agent_lost_holds_for_its_arguments(
    changed: dict[str, Any], void: bool
) -> None:
    digest = digest_of({"text": "a"})
    request = e.ApprovalRequested("s1", "s1-0", 1, "the definition of then", digest, 9_000)
    call = CallState("s1-0", "s1", "save", changed)
    call.permit = Permit("approved", request=request, digest=digest)
    without_tools = cast("Any", SimpleNamespace(runtime=SimpleNamespace(tools={})))
    recorded: list[e.Event] = []
    assert is_void(without_tools, call, cast("Any", recorded.append)) is void
    assert [event.kind for event in recorded] == ["approval_voided"] * void
