"""Agents as tools of other agents: called with a text, they answer. A runner runs each call as a task of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ConfigurationError, ToolArgumentsInvalid
from treadle.ports import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from treadle.agents.agent import Agent

ALONE = "It sees nothing of this conversation: tell it all it has to know. What it answers is the result of the call."
_PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "What it is to do, with all it needs to know for it."}
    },
    "required": ["input"],
    "additionalProperties": False,
}


class SubagentTool:
    """An agent, as a model is offered it.

    Args:
        agent: the agent; or the name of one that the runner knows, such as one that is to call itself.
    """

    def __init__(self, agent: Agent[Any] | str) -> None:
        self.agent = agent
        self.agent_name = agent if isinstance(agent, str) else agent.name
        told = "" if isinstance(agent, str) else agent.description
        told = told or f"Hands work to the agent {self.agent_name}."
        self.spec = ToolSpec(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", self.agent_name),
            description=f"{told}\n\n{ALONE}",
            parameters=_PARAMETERS,
            idempotent=True,  # a second start goes on with the task that the first one began
            declared=True,
        )

    def validate(self, arguments: dict[str, Json]) -> str:
        """Return the text that the agent is to be given; raises `ToolArgumentsInvalid`."""
        told: Any = arguments.get("input")
        if not isinstance(told, str) or not told.strip() or len(arguments) != 1:
            raise ToolArgumentsInvalid(
                f'{self.spec.name} takes {{"input": text}} and nothing else, and the text must not be empty'
            )
        return told

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Refuse: only a runner can run an agent."""
        raise ConfigurationError(f"the agent {self.agent_name} is run by a runner, as a task of its own")

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Refuse: what an agent did is taken back in its task."""
        raise ConfigurationError(f"what the agent {self.agent_name} did is taken back in its own task")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return that it is not known: it need not be asked, since the task has a journal."""
        return Unknown()


def with_agents(name: str, tools: tuple[Tool, ...], subagents: Any) -> tuple[Tool, ...]:
    """Return an agent's tools with its subagents as tools; raises `ConfigurationError`."""
    if isinstance(subagents, (str, bytes)) or not isinstance(subagents, Sequence):
        raise ConfigurationError(f"Agent {name!r}: subagents must be a list, got {subagents!r}")
    from treadle.agents.agent import Agent

    taken = {tool.spec.name for tool in tools}
    found: list[Tool] = list(tools)
    for index, given in enumerate(subagents):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if not isinstance(given, (Agent, str)) or not given:
            raise ConfigurationError(
                f"Agent {name!r}: subagents[{index}] must be an Agent, or the name of one, got {given!r}"
            )
        made = SubagentTool(given)  # pyright: ignore[reportUnknownArgumentType]
        if made.spec.name in taken:
            raise ConfigurationError(
                f"Agent {name!r}: its subagent {made.agent_name!r} has the name of another of its tools"
            )
        taken.add(made.spec.name)
        found.append(made)
    return tuple(found)
