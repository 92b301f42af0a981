"""Wrappers of ports that pass every call on to the adapter inside; a test overrides the one method it is about.

The wrapped adapter stays the same for its callers: names, schemas and fingerprint are those of the adapter inside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from treadle.core.messages import Json, ToolCall
from treadle.core.model import ModelAnswer, ModelDelta, ModelRequest
from treadle.core.tools import ToolSpec, Verdict
from treadle.ports import JournalStore, Model, Tool, ToolContext, ToolOutput, output_mode_of

if TYPE_CHECKING:
    # A base of type Any passes for a store.
    Port: Any = cast("Any", object)
else:
    # A method that a subclass leaves out is looked up in the store inside, not in the port's empty methods.
    Port = object


class WrappedStore(Port):
    """A store that passes every call on to another store; override the methods that a test is about."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class WrappedTool(Tool):
    """A tool that passes every call on to another tool; override the methods that a test is about."""

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


class WrappedModel(Model):
    """A model that passes every request on to another model; override `stream`."""

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
