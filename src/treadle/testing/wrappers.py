"""Wrappers of ports that forward every call to the wrapped adapter; a test overrides single methods.

A wrapper keeps the names, schemas and fingerprint of the wrapped adapter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treadle.core.messages import Json, ToolCall
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tools import ToolSpec, Verdict
from treadle.ports import (
    JournalStore,
    Model,
    Tool,
    ToolContext,
    ToolOutput,
    Toolset,
    ToolsetConnection,
    output_mode_of,
)

if TYPE_CHECKING:
    # A base class of type Any passes for a store.
    Port: Any = cast("Any", object)
else:
    # Missing methods are forwarded to the wrapped store, since the port's empty methods must not hide them.
    Port = object


class WrappedStore(Port):
    """A store that forwards every call to another store; override the methods under test."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class WrappedTool(Tool):
    """A tool that forwards every call to another tool; override the methods under test."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def middleware(self) -> tuple[Any, ...]:
        return getattr(self._tool, "middleware", ())

    def validate(self, arguments: dict[str, Json]) -> Any:
        return self._tool.validate(arguments)

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        return await self._tool.call(arguments, ctx)

    async def undo(self, call: ToolCall, ctx: ToolContext[Any]) -> None:
        await self._tool.undo(call, ctx)

    async def reconcile(self, call: ToolCall, ctx: ToolContext[Any]) -> Verdict:
        return await self._tool.reconcile(call, ctx)


class WrappedToolset(Toolset):
    """A toolset that wraps each tool by `wrapped`, which a subclass overrides."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset

    @property
    def name(self) -> str:
        return self._toolset.name

    def facts(self) -> Json:
        return self._toolset.facts()

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        return self._toolset.known_specs()

    def connect(self) -> ToolsetConnection:
        return _WrappedConnection(self._toolset.connect(), self.wrapped)

    def connect_beside(self, store_file: Path | None) -> ToolsetConnection:
        connect_beside: Any = getattr(self._toolset, "connect_beside", None)
        inside = self._toolset.connect() if connect_beside is None else connect_beside(store_file)
        return _WrappedConnection(inside, self.wrapped)

    def wrapped(self, tool: Tool) -> Tool:
        """Return the wrapped form of a tool of the toolset."""
        return WrappedTool(tool)


class _WrappedConnection(ToolsetConnection):
    """A connection with wrapped tools, the same objects as long as the wrapped tools stay the same."""

    def __init__(self, connection: ToolsetConnection, wrapped: Callable[[Tool], Tool]) -> None:
        self._connection, self._wrapped = connection, wrapped
        self._inside: Sequence[Tool] | None = None
        self._tools: Sequence[Tool] = ()

    async def tools(self) -> Sequence[Tool]:
        inner_tools = await self._connection.tools()
        if inner_tools is not self._inside:
            self._inside, self._tools = inner_tools, tuple(map(self._wrapped, inner_tools))
        return self._tools

    async def close(self) -> None:
        await self._connection.close()


class WrappedModel(Model):
    """A model that forwards every request to another model; override `stream`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def output_mode(self) -> str:
        return output_mode_of(self._model)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelAnswer]:
        return self._model.stream(request)
