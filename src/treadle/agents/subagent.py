"""Subagents as tools: called with a text, they answer. The runner runs each call as a task of its own."""

from __future__ import annotations

import re
from typing import Any

from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ConfigurationError, ToolArgumentsInvalid
from treadle.ports import ToolContext, ToolOutput

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
    """A subagent as the tool that its caller's model is offered.

    Args:
        agent_name: the agent's.
        description: what the agent is for; empty for one that is known by name only.
    """

    def __init__(self, agent_name: str, description: str) -> None:
        self.agent_name = agent_name
        description = description or f"Hands work to the agent {agent_name}."
        self.spec = ToolSpec(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", agent_name),
            description=f"{description}\n\n{ALONE}",
            parameters=_PARAMETERS,
            idempotent=True,  # a second start goes on with the task that the first one began
            declared=True,
        )

    def validate(self, arguments: dict[str, Json]) -> str:
        """Return the input of the agent's task; raises `ToolArgumentsInvalid`."""
        text: Any = arguments.get("input")
        if not isinstance(text, str) or not text.strip() or len(arguments) != 1:
            raise ToolArgumentsInvalid(
                f'{self.spec.name} takes {{"input": text}} and nothing else, and the text must not be empty'
            )
        return text

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        """Refuse: only a runner can run an agent."""
        raise ConfigurationError(f"the agent {self.agent_name} is run by a runner, as a task of its own")

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        """Refuse: the calls of an agent are undone in its own task."""
        raise ConfigurationError(f"what the agent {self.agent_name} did is taken back in its own task")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        """Return that the outcome is unknown: it is in the journal of the agent's task."""
        return Unknown()
