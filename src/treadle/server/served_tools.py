"""Serve a tool by itself: an agent without a model, whose task is one call of the tool.

So a call from outside passes the policy, the approvals and the guardrails of the runner, and has a journal.
"""

from __future__ import annotations

import json
from typing import Any, cast

from treadle.agents.agent import Agent
from treadle.agents.workers.step_context import StepContext
from treadle.agents.workers.worker import StepResult
from treadle.core.messages import Json, Text
from treadle.errors import ConfigurationError, ToolCallFailed, WorkerError
from treadle.policy.guardrails import Guardrail
from treadle.policy.verdicts import Judge
from treadle.ports import Tool


async def call_once(ctx: StepContext[Any]) -> StepResult:
    """Call the only tool of the agent with the arguments in the task's input."""
    text = "".join([part.text for part in ctx.task_input if isinstance(part, Text)])
    try:
        arguments: Any = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise WorkerError("the input of the task must be a JSON object: the arguments of the tool")
    (tool,) = ctx.tools
    try:
        output = await ctx.call_tool(tool.name, cast("dict[str, Json]", arguments), key="call")
    except ToolCallFailed as error:
        if error.outcome == "denied":
            raise WorkerError(f"the call was denied: {error}") from None
        raise
    return StepResult(output, is_last=True)


def tool_agent(
    tool: Tool[Any], *, policy: Judge | None = None, guardrails: tuple[Guardrail, ...] = ()
) -> Agent[Any]:
    """Return an agent that calls a tool once, with the JSON object in its input as the arguments.

    An MCP server offers it as the tool itself, with the tool's name, description, arguments and effects.

    Args:
        tool: a function decorated with `@tool`, or another tool.
        policy: judges the call beside the policy of the runner.
        guardrails: check the result of the tool beside the guardrails of the runner.

    Raises:
        ConfigurationError: it is not a tool.
    """
    if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"tool_agent takes a function decorated with @tool, got {tool!r:.80}")
    return Agent(
        name=tool.spec.name,
        description=tool.spec.description,
        tools=[tool],
        worker=call_once,
        policy=policy,
        guardrails=guardrails,
    )


def served_spec(agent: Agent[Any]) -> Any:
    """Return the specification of the tool that an agent calls once; None for another agent."""
    return agent.tools[0].spec if agent.worker is call_once else None
