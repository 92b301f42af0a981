"""Agents with pipelines, and functions for their nodes."""

from typing import Any

from tests.cast import add
from treadle import (
    Agent,
    Node,
    NodeContext,
    Pipeline,
    Runner,
    RunResult,
    ScriptedModel,
)
from treadle.core.model import ModelRequest
from treadle.llm.scripted import Turn, text


def echo(request: ModelRequest) -> Turn:
    return text(f"heard {request.messages[-1].text}", chunk=5)


def agent_of(*nodes: Node, tools: Any = (add,), model: Any = None, **more: Any) -> Agent[Any]:
    return Agent(model or ScriptedModel(echo), worker=Pipeline(nodes, **more), tools=tools)


def name_of(ctx: NodeContext) -> str:
    return ctx.name


def inputs_of(ctx: NodeContext) -> Any:
    return dict(ctx.results)


async def run(runner: Runner, *nodes: Node, **more: Any) -> RunResult:
    return await runner.run(agent_of(*nodes, **more), "go")
