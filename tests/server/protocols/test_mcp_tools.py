"""Agents and tools as tools of MCP: schemas and annotations, as tables."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.cast import look, pay, put
from treadle import Agent, ScriptedModel
from treadle.core.tools import ToolSpec
from treadle.results.agent_info import agent_info
from treadle.server.protocols.mcp_tools import agent_tool, hints_of, served_tool

HINTS: dict[str, tuple[list[ToolSpec], dict[str, bool]]] = {
    "reads": (
        [ToolSpec(name="a", read_only=True, declared=True)],
        {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False},
    ),
    "undeclared: the worst case": ([ToolSpec(name="a")], {"readOnlyHint": False, "idempotentHint": False}),
    "declared, writes": (
        [ToolSpec(name="a", declared=True)],
        {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": False, "openWorldHint": False},
    ),
    "destructive, idempotent": (
        [ToolSpec(name="a", declared=True, destructive=True, idempotent=True)],
        {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True, "openWorldHint": False},
    ),
    "sends": (
        [ToolSpec(name="a", declared=True, sends=True)],
        {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": False, "openWorldHint": True},
    ),
    "any of several": (
        [
            ToolSpec(name="a", read_only=True, declared=True),
            ToolSpec(name="b"),
            ToolSpec(name="c", destructive=True),
        ],
        {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": True},
    ),
    "no tools: nothing is written": (
        [],
        {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False, "openWorldHint": False},
    ),
}


@pytest.mark.parametrize(("specs", "hints"), HINTS.values(), ids=HINTS)
def test_effects_are_annotations(specs: list[ToolSpec], hints: dict[str, bool]):
    assert hints_of(specs) == hints


class Place(BaseModel):
    name: str


class Trip(BaseModel):
    to: Place


def test_the_schema_of_a_typed_answer_is_in_that_of_the_result():
    agent = Agent(ScriptedModel(["x"]), name="trips", output_type=Trip, tools=[look])
    tool = agent_tool(agent_info(agent))
    schema = tool["outputSchema"]
    Draft202012Validator.check_schema(schema)
    result = {"task_id": "t", "thread_id": "h", "state": "completed"}
    for facts, fits in (
        ({}, True),
        ({"answer": {"to": {"name": "Rome"}}}, True),
        ({"answer": {"to": 3}}, False),
    ):
        assert Draft202012Validator(schema).is_valid({**result, **facts}) is fits


def test_an_agent_that_calls_others_claims_no_effects():
    other = Agent(ScriptedModel(["x"]), name="other", tools=[look])
    agent = Agent(ScriptedModel(["x"]), name="shop", tools=[look], subagents=[other], description="Sells.")
    tool = agent_tool(agent_info(agent))
    assert tool["description"] == "Sells."
    assert tool["annotations"] == {"readOnlyHint": False, "idempotentHint": False}


@pytest.mark.parametrize("tool", [look, pay, put])
def test_a_served_tool_has_its_own_arguments(tool: Any):
    frame = served_tool(tool.spec)
    assert (frame["name"], frame["description"]) == (tool.spec.name, tool.spec.description)
    assert frame["inputSchema"] == {"type": "object", **tool.spec.parameters}
