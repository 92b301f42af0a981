"""An agent with unchanged code, whose model and tools pass fault points and write to a ledger.

    agent = watched(agent, Ledger("effects.jsonl", crash))

The places around each request to the model are `ask STEP` and `answered STEP`. Around each call of a tool they are
`enter`, `start` and `done`, see `Ledger`. Those of its `undo=` and `reconcile=` are named `undo TOOL CALL` and
`reconcile TOOL CALL`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from treadle.agents.agent import Agent
from treadle.agents.handoff import Handoff
from treadle.agents.subagent import Subagent
from treadle.core.messages import ToolCall
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tools import Verdict
from treadle.llm.default_layers import resolve
from treadle.ports import Tool, ToolContext, ToolOutput, Toolset
from treadle.testing.audit.events import well_formed
from treadle.testing.ledger import Ledger
from treadle.testing.wrappers import WrappedModel, WrappedTool, WrappedToolset

C = TypeVar("C")

ILL_FORMED = "ill-formed"
"""The name of the note that a model received a conversation that providers refuse."""


def watched(agent: Agent[C], ledger: Ledger) -> Agent[C]:
    """Return the agent with a model and tools that record each request and call in a ledger.

    Args:
        agent: any agent.
        ledger: records requests and calls, which pass the places of its `Crash`.
    """
    derived = {*agent.subagents_by_tool, *agent.handoffs_by_tool}
    tools = [
        *(WatchedTool(tool, ledger) for tool in agent.tools if tool.spec.name not in derived),
        *(WatchedToolset(toolset, ledger) for toolset in agent.toolsets),
    ]
    subagents = [_watched_subagent(item, ledger) for item in agent.subagents]
    handoffs = [_watched_handoff(item, ledger) for item in agent.handoffs]
    model = WatchedModel(resolve(agent.model), ledger)
    return agent.replace(model=model, tools=tools, subagents=subagents, handoffs=handoffs)


def _watched_handoff(
    item: Agent[Any] | Handoff[Any] | str, ledger: Ledger
) -> Agent[Any] | Handoff[Any] | str:
    if isinstance(item, Handoff):
        agent = cast("Agent[Any] | str", item.agent)
        return item if isinstance(agent, str) else replace(item, agent=watched(agent, ledger))
    return item if isinstance(item, str) else watched(item, ledger)


def _watched_subagent(item: Agent[Any] | Subagent | str, ledger: Ledger) -> Agent[Any] | Subagent | str:
    if isinstance(item, Subagent):
        return item if isinstance(item.agent, str) else replace(item, agent=watched(item.agent, ledger))
    return item if isinstance(item, str) else watched(item, ledger)


TICKET: Final = "ticket"
"""The name of the ledger's lines about issued tickets."""


class WatchedTool(WrappedTool):
    """A tool that records each start and each effect in a ledger."""

    def __init__(self, tool: Tool, ledger: Ledger) -> None:
        super().__init__(tool)
        self._ledger = ledger

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        if ctx.issued:
            self._ledger.note(TICKET, ctx.issued, call=ctx.call_id, task=ctx.task_id)
        with self._ledger.call(self.spec.name, ctx, effect=self.spec.effect) as noted:
            output = await self._tool.call(arguments, ctx)
            noted.text = json.dumps(output.output)
        return output

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        with self._ledger.call(f"undo {self.spec.name}", ctx):
            await self._tool.undo(call, ctx)

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        self._ledger.crash.reach(self._ledger.crash.numbered(f"reconcile {self.spec.name} {call.id}"))
        return await self._tool.reconcile(call, ctx)


class WatchedToolset(WrappedToolset):
    """A toolset whose tools record each start and each effect in a ledger."""

    def __init__(self, toolset: Toolset, ledger: Ledger) -> None:
        super().__init__(toolset)
        self._ledger = ledger

    def wrapped(self, tool: Tool) -> Tool:
        return WatchedTool(tool, self._ledger)


class WatchedModel(WrappedModel):
    """A model that records each request in a ledger, and whether its conversation is well-formed."""

    def __init__(self, model: Any, ledger: Ledger) -> None:
        super().__init__(model)
        self._ledger = ledger

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        crash, subject = self._ledger.crash, f"{request.task_id} {request.step}"
        self._ledger.note("asked", f"turn {request.turn}", call=subject)
        for problem in well_formed(request.task_id, request.messages, request=True):
            self._ledger.note(ILL_FORMED, problem.text, call=subject)
        crash.reach(crash.numbered(f"ask {request.step}"))
        async for item in self._model.stream(request):
            if isinstance(item, ModelAnswer):
                crash.reach(crash.numbered(f"answered {request.step}"))
            yield item
