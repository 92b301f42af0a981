"""An agent whose model and tools say where they are: the fault points at the borders, and the ledger, without its help.

    agent = watched(agent, Ledger("effects.jsonl", crash))

The places: `ask STEP` and `answered STEP` around each request to the model; `enter`, `start` and `done` (see `Ledger`)
around each call of a tool, of its `undo=` (`undo TOOL CALL`) and of its `reconcile=` (`reconcile TOOL CALL`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from treadle.agents.agent import Agent
from treadle.core.messages import ToolCall
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tools import Verdict
from treadle.llm.default_layers import resolve
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.testing.audit.events import well_formed
from treadle.testing.ledger import Ledger
from treadle.testing.wrappers import WrappedModel, WrappedTool

C = TypeVar("C")

ILL_FORMED = "ill-formed"
"""The name of the note that a model was sent a conversation no provider would take."""


def watched(agent: Agent[C], ledger: Ledger) -> Agent[C]:
    """Return the same agent, with whatever it does written to a ledger.

    Args:
        agent: any agent.
        ledger: where its calls are noted; its `Crash` is passed at each border.
    """
    tools = [
        WatchedTool(tool, ledger) for tool in agent.tools if tool.spec.name not in agent.subagents_by_tool
    ]
    below = [one if isinstance(one, str) else watched(one, ledger) for one in agent.subagents]
    model = WatchedModel(resolve(agent.model), ledger)
    return agent.replace(model=model, tools=tools, subagents=below)


class WatchedTool(WrappedTool):
    """A tool whose every entry and effect is in the ledger."""

    def __init__(self, tool: Tool, ledger: Ledger) -> None:
        super().__init__(tool)
        self._ledger = ledger

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
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


class WatchedModel(WrappedModel):
    """A model whose every request is in the ledger, and judged."""

    def __init__(self, model: Any, ledger: Ledger) -> None:
        super().__init__(model)
        self._ledger = ledger

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        crash, place = self._ledger.crash, f"{request.task_id} {request.step}"
        self._ledger.note("asked", f"turn {request.turn}", call=place)
        for problem in well_formed(request.task_id, request.messages, request=True):
            self._ledger.note(ILL_FORMED, problem.text, call=place)
        crash.reach(crash.numbered(f"ask {request.step}"))
        async for item in self._model.stream(request):
            if isinstance(item, ModelAnswer):
                crash.reach(crash.numbered(f"answered {request.step}"))
            yield item
