"""The public facts about an agent that a process can drive: data alone, none of the agent's code."""

from __future__ import annotations

from typing import Any

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.display import Displayed, Table, View
from treadle.core.messages import Json
from treadle.core.tools import ToolSpec
from treadle.policy.limits import Limits


@frozen
class AgentInfo(Displayed):
    """An agent that a runner can drive.

    `fingerprint` is the digest that identifies the version of an agent. `instructions` is None if a function computes
    them for each task. `tools` are the agent's own, without those of its toolsets. Each has the schema of its arguments
    and its declared effects. `subagents` and `handoffs` name the agents that it may call and hand over to.
    `output_schema` is the JSON schema of its answer, None for text.
    """

    name: str
    fingerprint: str
    model: str
    worker: str
    description: str
    instructions: str | None
    tools: tuple[ToolSpec, ...]
    toolsets: tuple[str, ...]
    subagents: tuple[str, ...]
    handoffs: tuple[str, ...]
    output_schema: dict[str, Json] | None
    limits: Limits
    metadata: Json = None

    def _view(self) -> View:
        facts = (
            ("model", self.model),
            ("worker", self.worker),
            ("toolsets", ", ".join(self.toolsets)),
            ("subagents", ", ".join(self.subagents)),
            ("handoffs", ", ".join(self.handoffs)),
            ("version", self.fingerprint),
        )
        tools = Table("tools", ("tool", "effect", "description"), self.tools, _tool_row)
        return View(title="AgentInfo", name=self.name, facts=facts, text=self.description, tables=(tools,))


def agent_info(agent: Agent[Any], model: str | None = None) -> AgentInfo:
    """Return the facts about an agent. `model` is the name of its model if it does not name one."""
    derived = {*agent.subagents_by_tool, *agent.handoffs_by_tool}
    return AgentInfo(
        agent.name,
        agent.fingerprint,
        agent.model_name or model or "",
        agent.worker if isinstance(agent.worker, str) else type(agent.worker).__name__,
        agent.description,
        str(agent.instructions) if isinstance(agent.instructions, str) else None,
        tuple([tool.spec for tool in agent.tools if tool.spec.name not in derived]),
        tuple([toolset.name for toolset in agent.toolsets]),
        tuple([_name_of(other) for other in agent.subagents_by_tool.values()]),
        tuple([_name_of(handoff.agent) for handoff in agent.handoffs_by_tool.values()]),
        agent.typed.schema if agent.typed is not None else None,
        agent.limits,
        agent.metadata,
    )


def _name_of(agent: Any) -> str:
    return agent if isinstance(agent, str) else agent.name


def _tool_row(spec: ToolSpec) -> tuple[str, str, str]:
    return spec.name, spec.effect, spec.description.partition("\n")[0]
