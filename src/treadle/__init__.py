"""Treadle: LLM agents as durable tasks made of steps.

An `Agent` says what should run, a `Runner` runs it as a task: stepped or freely, streamed, paused, fed back to,
cancelled, resumed, undone, forked. Each task is an append-only journal of events; its state is what they add up to.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treadle.agents.agent import Agent, RunContext
from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from treadle.core.model import (
    ModelAnswer,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from treadle.core.tools import Happened, NotHappened, ToolSpec, Unknown
from treadle.llm.scripted import ScriptedModel
from treadle.policy.limits import Limits
from treadle.ports import ToolContext, ToolOutput
from treadle.runner.handle import RunHandle
from treadle.runner.options import Breakpoint, FailurePolicy, RunOptions
from treadle.runner.results import RunResult, Task, TaskStepOutput, TaskUsage, UndoReport
from treadle.tools.function import tool
from treadle.wiring import Runner

if TYPE_CHECKING:
    from treadle.agents.dialect import Reading
    from treadle.agents.node import Ask, NodeContext
    from treadle.agents.offer import RequestContext
    from treadle.agents.pipeline import Node, Pipeline
    from treadle.agents.plan_refine import PlanRefine
    from treadle.agents.planner import Planner
    from treadle.agents.react import React
    from treadle.agents.step_context import StepContext
    from treadle.agents.worker import AgentWorker, Decider, Quorum, StepResult
    from treadle.core.events import NextStep
    from treadle.tools.index import ToolIndex

_HOMES = {  # what few agents need is imported by those that do
    "AgentWorker": "treadle.agents.worker",
    "Decider": "treadle.agents.worker",
    "Ask": "treadle.agents.node",
    "NextStep": "treadle.core.events",
    "Node": "treadle.agents.pipeline",
    "NodeContext": "treadle.agents.node",
    "Pipeline": "treadle.agents.pipeline",
    "PlanRefine": "treadle.agents.plan_refine",
    "Planner": "treadle.agents.planner",
    "React": "treadle.agents.react",
    "Quorum": "treadle.agents.worker",
    "Reading": "treadle.agents.dialect",
    "RequestContext": "treadle.agents.offer",
    "ToolIndex": "treadle.tools.index",
    "StepContext": "treadle.agents.step_context",
    "StepResult": "treadle.agents.worker",
}

__all__ = [
    "Agent",
    "AgentWorker",
    "Ask",
    "Breakpoint",
    "Decider",
    "FailurePolicy",
    "File",
    "Happened",
    "Image",
    "Limits",
    "Message",
    "ModelAnswer",
    "ModelRequest",
    "ModelSettings",
    "NextStep",
    "Node",
    "NodeContext",
    "NotHappened",
    "Pipeline",
    "PlanRefine",
    "Planner",
    "Quorum",
    "React",
    "Reading",
    "Reasoning",
    "ReasoningDelta",
    "RequestContext",
    "RunContext",
    "RunHandle",
    "RunOptions",
    "RunResult",
    "Runner",
    "ScriptedModel",
    "StepContext",
    "StepResult",
    "Task",
    "TaskStepOutput",
    "TaskUsage",
    "Text",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolIndex",
    "ToolOutput",
    "ToolResult",
    "ToolSpec",
    "UndoReport",
    "Unknown",
    "Usage",
    "tool",
]


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
