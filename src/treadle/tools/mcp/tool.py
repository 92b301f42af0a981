"""`MCPTool`: a server's tool as a tool of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from treadle.core.messages import Json, ToolCall
from treadle.core.tools import ToolSpec, Unknown, Verdict
from treadle.errors import ToolArgumentsInvalid, ToolError
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.definitions import problems_of
from treadle.tools.mcp.definitions import ToolDefinition

Call = Callable[[dict[str, Json], ToolContext[Any]], Awaitable[ToolOutput]]


class MCPTool:
    """A tool of a server.

    Args:
        spec: the tool as models see it.
        call: calls it.
        pinned: its pinned definition; None for tools that read resources and prompts.
        now: its current definition.
    """

    asks_as: Final = "changed_definition"
    """The rule that asks for approval of a changed tool's call."""

    told_by_code: Final = frozenset({"description", "parameters", "needs_approval", "previews"})
    """Fields of the specification that follow from the pinned definition: an approval holds even if the definition that
    the approver saw is pinned only later."""

    def __init__(
        self,
        spec: ToolSpec,
        call: Call,
        pinned: ToolDefinition | None = None,
        now: ToolDefinition | None = None,
    ) -> None:
        self._spec, self._call, self._pinned, self._now = spec, call, pinned, now
        self.code = now.digest if now is not None else ""
        """An approval holds only for the definition that it was given for."""

    def __repr__(self) -> str:
        return f"<MCP tool {self._spec.name} ({self._spec.effect})>"

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def validate(self, arguments: dict[str, Json]) -> dict[str, Json]:
        problems = problems_of(arguments, self._spec.parameters)
        if problems:
            raise ToolArgumentsInvalid("; ".join(problems[:8]))
        return arguments

    async def call(self, arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        return await self._call(arguments, ctx)

    async def needs_approval(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> bool:
        """Return whether the server has changed the pinned definition."""
        return self._spec.needs_approval

    @property
    def asks_because(self) -> str:
        """The reason for an approval, for the request."""
        return f"the server changed the definition of {self._spec.name} since it was pinned"

    async def preview(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> Json:
        """Return a comparison of both definitions, for the call's approver."""
        assert self._pinned is not None
        assert self._now is not None
        pinned, now = dict(self._pinned.definition), dict(self._now.definition)
        names = sorted(name for name in {*pinned, *now} if pinned.get(name) != now.get(name))
        return {
            "what": self.asks_because,
            "pinned": {name: pinned.get(name) for name in names},
            "now": {name: now.get(name) for name in names},
        }

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        raise ToolError(f"tool {self._spec.name!r} has no undo=")

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        return Unknown()
