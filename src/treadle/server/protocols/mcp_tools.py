"""Describe agents and served tools as tools of MCP. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from treadle.core.messages import Json
from treadle.core.tools import ToolSpec
from treadle.results.agent_info import AgentInfo

Frame = dict[str, Any]
"""An object of the protocol."""

_INPUT: Final[Frame] = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "minLength": 1, "description": "The message for the agent."},
        "thread_id": {
            "type": "string",
            "description": "The conversation to continue, as a result names it. By default a new one.",
        },
        "task_id": {
            "type": "string",
            "description": "An id of your own for this call. A repeated call with the same input and the id of an "
            "earlier one returns the result of that one, and runs nothing again.",
        },
    },
    "required": ["input"],
    "additionalProperties": False,
}


def agent_tool(agent: AgentInfo) -> Frame:
    """Return an agent as a tool that takes a message."""
    return {
        "name": agent.name,
        "description": agent.description
        or f"Give a message to the agent {agent.name}, and return its answer.",
        "inputSchema": _INPUT,
        "outputSchema": _output_schema(agent),
        "annotations": _annotations_of(agent),
    }


def served_tool(spec: ToolSpec) -> Frame:
    """Return a tool of Treadle as a tool of MCP, with its effects as annotations."""
    schema = cast("Frame", spec.parameters)
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": {"type": "object", **schema},
        "annotations": hints_of((spec,)),
    }


def hints_of(specs: Sequence[ToolSpec]) -> Frame:
    """Return the annotations of calls that may use any of some tools.

    An absent hint means the worst case to a client, so undeclared effects have none.
    """
    if all(spec.read_only for spec in specs):
        hints: Frame = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}
    else:
        writing = [spec for spec in specs if not spec.read_only]
        hints = {"readOnlyHint": False, "idempotentHint": all(spec.idempotent for spec in writing)}
        if all(spec.declared for spec in writing) or any(spec.destructive for spec in writing):
            hints["destructiveHint"] = any(spec.destructive for spec in writing)
    if any(spec.open_world or spec.sends for spec in specs):
        hints["openWorldHint"] = True
    elif all(spec.declared for spec in specs):
        hints["openWorldHint"] = False
    return hints


def _annotations_of(agent: AgentInfo) -> Frame:
    if agent.toolsets or agent.subagents or agent.handoffs:
        return {"readOnlyHint": False, "idempotentHint": False}  # their tools are not known here
    return {**hints_of(agent.tools), "idempotentHint": False}


def _output_schema(agent: AgentInfo) -> Frame:
    """Return the schema of `structuredContent`, with the schema of the agent's answer in it."""
    answer: Frame = {"type": "string"}
    shared: Frame = {}
    if agent.output_schema is not None:
        answer = dict(agent.output_schema)
        shared = {name: answer.pop(name) for name in ("$defs",) if name in answer}
    texts: Json = {"type": "array", "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "task_id": {"type": "string"},
            "thread_id": {"type": "string", "description": "Names the conversation in a later call."},
            "state": {"type": "string"},
            "answer": answer,
            "reasons": {**texts, "description": "Why the answer is only a best effort."},
            "waits_for": {**texts, "description": "The open requests of the task."},
            "error": {"type": "string"},
        },
        "required": ["task_id", "thread_id", "state"],
        **shared,
    }
