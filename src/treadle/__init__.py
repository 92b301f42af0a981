"""Treadle: LLM agents as durable tasks made of steps.

An `Agent` describes the work, and a `Runner` runs it as a task. You can step, stream, pause, steer, cancel, resume,
undo and fork a task. Each task is an append-only journal of events, from which its state follows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle import errors as errors
    from treadle import events as events
    from treadle import models as models
    from treadle import telemetry as telemetry
    from treadle import testing as testing
    from treadle.agents.agent import Agent
    from treadle.agents.context import RequestContext, RunContext
    from treadle.agents.dialects.dialect import Reading
    from treadle.agents.dialects.planner import Planner
    from treadle.agents.dialects.react import React
    from treadle.agents.handoff import Handoff, LastMessages, only_user_messages, without_tool_calls
    from treadle.agents.middleware import NextLayer, ToolInvocation, ToolMiddleware
    from treadle.agents.routing import Route
    from treadle.agents.subagent import Subagent
    from treadle.agents.workers.node import Ask, NodeContext
    from treadle.agents.workers.pipeline import Node, Pipeline
    from treadle.agents.workers.plan_refine import PlanRefine
    from treadle.agents.workers.step_context import StepContext
    from treadle.agents.workers.worker import AgentWorker, Decider, Quorum, StepResult
    from treadle.client.client import Client
    from treadle.core.events import NextStep
    from treadle.core.labels import Label
    from treadle.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult, untrusted
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
    from treadle.engine.options import Breakpoint, FailurePolicy, RunOptions
    from treadle.llm.scripted import ScriptedModel
    from treadle.policy.guardrails import Guardrail, GuardrailRequest, Rewrite
    from treadle.policy.limits import Limits
    from treadle.policy.policy import Policy
    from treadle.policy.rule import Rule
    from treadle.policy.verdicts import Allow, AskPerson, Deny, EffectRequest, Replace
    from treadle.ports import ToolContext, ToolOutput
    from treadle.results.caller_tools import CallerTool
    from treadle.results.pending import Pending
    from treadle.results.reports import UndoReport
    from treadle.results.run_result import RunResult
    from treadle.results.step_outputs import TaskStepOutput
    from treadle.results.tasks import Task
    from treadle.results.usage import TaskUsage
    from treadle.runner.handle import RunHandle
    from treadle.tools.a2a.remote_agent import RemoteAgent
    from treadle.tools.function import tool
    from treadle.tools.index import ToolIndex
    from treadle.tools.mcp.server import MCPServer
    from treadle.wiring import Runner

    __version__: str

_HOMES = {  # a name is imported on first use, with its own imports only
    "Agent": "treadle.model_names",
    "AgentWorker": "treadle.agents.workers.worker",
    "Allow": "treadle.policy.verdicts",
    "Ask": "treadle.agents.workers.node",
    "AskPerson": "treadle.policy.verdicts",
    "Breakpoint": "treadle.engine.options",
    "CallerTool": "treadle.results.caller_tools",
    "Client": "treadle.client.client",
    "Decider": "treadle.agents.workers.worker",
    "Deny": "treadle.policy.verdicts",
    "EffectRequest": "treadle.policy.verdicts",
    "FailurePolicy": "treadle.engine.options",
    "File": "treadle.core.messages",
    "Guardrail": "treadle.policy.guardrails",
    "GuardrailRequest": "treadle.policy.guardrails",
    "Handoff": "treadle.agents.handoff",
    "Happened": "treadle.core.tools",
    "Image": "treadle.core.messages",
    "Label": "treadle.core.labels",
    "LastMessages": "treadle.agents.handoff",
    "Limits": "treadle.policy.limits",
    "MCPServer": "treadle.tools.mcp.server",
    "Message": "treadle.core.messages",
    "ModelAnswer": "treadle.core.model",
    "ModelRequest": "treadle.core.model",
    "ModelSettings": "treadle.core.model",
    "NextLayer": "treadle.agents.middleware",
    "NextStep": "treadle.core.events",
    "Node": "treadle.agents.workers.pipeline",
    "NodeContext": "treadle.agents.workers.node",
    "NotHappened": "treadle.core.tools",
    "Pending": "treadle.results.pending",
    "Pipeline": "treadle.agents.workers.pipeline",
    "PlanRefine": "treadle.agents.workers.plan_refine",
    "Planner": "treadle.agents.dialects.planner",
    "Policy": "treadle.policy.policy",
    "Quorum": "treadle.agents.workers.worker",
    "React": "treadle.agents.dialects.react",
    "Reading": "treadle.agents.dialects.dialect",
    "Reasoning": "treadle.core.messages",
    "ReasoningDelta": "treadle.core.model",
    "RemoteAgent": "treadle.tools.a2a.remote_agent",
    "Replace": "treadle.policy.verdicts",
    "RequestContext": "treadle.agents.context",
    "Rewrite": "treadle.policy.guardrails",
    "Route": "treadle.agents.routing",
    "Rule": "treadle.policy.rule",
    "RunContext": "treadle.agents.context",
    "RunHandle": "treadle.runner.handle",
    "RunOptions": "treadle.engine.options",
    "RunResult": "treadle.results.run_result",
    "Runner": "treadle.wiring",
    "ScriptedModel": "treadle.llm.scripted",
    "StepContext": "treadle.agents.workers.step_context",
    "StepResult": "treadle.agents.workers.worker",
    "Subagent": "treadle.agents.subagent",
    "Task": "treadle.results.tasks",
    "TaskStepOutput": "treadle.results.step_outputs",
    "TaskUsage": "treadle.results.usage",
    "Text": "treadle.core.messages",
    "TextDelta": "treadle.core.model",
    "ToolCall": "treadle.core.messages",
    "ToolCallDelta": "treadle.core.model",
    "ToolContext": "treadle.ports",
    "ToolIndex": "treadle.tools.index",
    "ToolInvocation": "treadle.agents.middleware",
    "ToolMiddleware": "treadle.agents.middleware",
    "ToolOutput": "treadle.ports",
    "ToolResult": "treadle.core.messages",
    "ToolSpec": "treadle.core.tools",
    "UndoReport": "treadle.results.reports",
    "Unknown": "treadle.core.tools",
    "Usage": "treadle.core.model",
    "only_user_messages": "treadle.agents.handoff",
    "tool": "treadle.tools.function",
    "untrusted": "treadle.core.messages",
    "without_tool_calls": "treadle.agents.handoff",
}

__all__ = [
    "Agent",
    "AgentWorker",
    "Allow",
    "Ask",
    "AskPerson",
    "Breakpoint",
    "CallerTool",
    "Client",
    "Decider",
    "Deny",
    "EffectRequest",
    "FailurePolicy",
    "File",
    "Guardrail",
    "GuardrailRequest",
    "Handoff",
    "Happened",
    "Image",
    "Label",
    "LastMessages",
    "Limits",
    "MCPServer",
    "Message",
    "ModelAnswer",
    "ModelRequest",
    "ModelSettings",
    "NextLayer",
    "NextStep",
    "Node",
    "NodeContext",
    "NotHappened",
    "Pending",
    "Pipeline",
    "PlanRefine",
    "Planner",
    "Policy",
    "Quorum",
    "React",
    "Reading",
    "Reasoning",
    "ReasoningDelta",
    "RemoteAgent",
    "Replace",
    "RequestContext",
    "Rewrite",
    "Route",
    "Rule",
    "RunContext",
    "RunHandle",
    "RunOptions",
    "RunResult",
    "Runner",
    "ScriptedModel",
    "StepContext",
    "StepResult",
    "Subagent",
    "Task",
    "TaskStepOutput",
    "TaskUsage",
    "Text",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolIndex",
    "ToolInvocation",
    "ToolMiddleware",
    "ToolOutput",
    "ToolResult",
    "ToolSpec",
    "UndoReport",
    "Unknown",
    "Usage",
    "only_user_messages",
    "tool",
    "untrusted",
    "without_tool_calls",
]


_MODULES = ("errors", "events", "models", "telemetry", "testing")
"""Public modules, which `import treadle` makes available without loading them."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "__version__"})


if not TYPE_CHECKING:  # for a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("treadle")
        if name in _MODULES:
            return import_module(f"treadle.{name}")
        if (home := _HOMES.get(name)) is None:
            from treadle.core.unknown_names import unknown_in_module

            raise unknown_in_module(__name__, name, [*__all__, *_MODULES])
        value = globals()[name] = getattr(import_module(home), name)
        return value
