"""LlamaIndex tools as tools of an agent. LlamaIndex itself is not imported: the caller's objects suffice."""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from treadle.core.messages import Content, Image, Json, Text
from treadle.core.unknown_names import explains_call
from treadle.errors import ToolDefinitionError, ToolError
from treadle.ports import ToolContext, ToolOutput
from treadle.tools.approval import code_digest
from treadle.tools.definitions import check_arguments
from treadle.tools.foreign.tool import (
    ForeignTool,
    Terms,
    checked_tools,
    in_tool_thread,
    is_of,
    taken_by,
    validated,
)
from treadle.tools.observe import to_output

_LIBRARY: Final = "llama_index.core.tools"
_ENGINES: Final = "llama_index.core.base.base_query_engine"


@explains_call
def llamaindex_tools(
    *tools: Any,
    effects: Mapping[str, Sequence[str]] | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[ForeignTool]:
    """Return LlamaIndex tools as tools of an agent: `Agent(tools=[*llamaindex_tools(manual, add)])`.

    Names, descriptions, schemas and `return_direct` are kept. A sync function runs in a thread. The nodes that a query
    engine or a retriever found are the result's sources.

    Args:
        tools: objects of subclasses of `BaseTool`: `FunctionTool`, `QueryEngineTool`, `RetrieverTool` and the like.
        effects: declared effects by patterns of tool names, `{"search*": ["read_only"]}`. The first match counts. A
            tool without declared effects may write and is never started twice.
        timeout: seconds that a call may take; None for no limit.
        retries: how often a failed call of a read-only or idempotent tool is tried again.

    Raises:
        ConfigurationError: an argument is not valid, or not a LlamaIndex tool.
        ToolDefinitionError: a tool needs the context of a workflow, or has no name.
    """
    terms = Terms.of("llamaindex_tools", effects, timeout, retries)
    checked_tools("llamaindex_tools", tools, _wrong)
    foreign_tools = [_foreign_tool(tool, terms) for tool in tools]
    terms.check_used([each.spec.name for each in foreign_tools])
    return foreign_tools


def _wrong(tool: Any) -> str | None:
    if is_of(tool, _LIBRARY) and hasattr(tool, "metadata"):
        return None
    if is_of(tool, _ENGINES):
        return "has no name: write QueryEngineTool.from_defaults(engine, name=..., description=...)"
    return "is not a tool of LlamaIndex: give objects of subclasses of BaseTool"


def _foreign_tool(tool: Any, terms: Terms) -> ForeignTool:
    metadata = tool.metadata
    if not metadata.name:
        raise ToolDefinitionError(f"llamaindex_tools: a {type(tool).__name__} has no name in its metadata")
    name: str = metadata.name
    if getattr(tool, "requires_context", False):
        raise ToolDefinitionError(
            f"llamaindex_tools: the tool {name!r} needs {tool.ctx_param_name}, the context of a workflow: "
            "write a function with @tool, which takes a ToolContext"
        )
    schema = cast("dict[str, Json]", metadata.get_parameters_dict())
    names = list(cast("dict[str, Json]", schema.get("properties", {})))
    model = metadata.fn_schema
    function = getattr(tool, "real_fn", None)
    # Functions take arguments by name. Other tools may not, so a single argument is passed by position.
    by_position = function is None and len(names) == 1
    runs_in_loop = inspect.iscoroutinefunction(function) if function is not None else hasattr(tool, "acall")

    def validate(arguments: dict[str, Json]) -> dict[str, Json]:
        if model is not None:
            validated(model, arguments, names)
        check_arguments(arguments, {**schema, "additionalProperties": False})
        return arguments

    async def call(arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        by_place = list(arguments.values()) if by_position else []
        by_name = {} if by_position else arguments
        if runs_in_loop:
            result = await tool.acall(*by_place, **by_name)
        else:
            result = await in_tool_thread(ctx, name, partial(tool, *by_place, **by_name))
        return _output(result, name)

    description = metadata.description or ""
    spec = terms.spec(name, description, schema, return_direct=bool(metadata.return_direct))
    as_taken = None if model is None else partial(taken_by, model)
    return ForeignTool(
        spec, validate, call, code=code_digest(function or type(tool).__call__), as_taken=as_taken
    )


def _output(result: Any, name: str) -> ToolOutput:
    """Convert a tool's return value; raises `ToolError` if it reports a failure."""
    content: str = result.content
    if result.is_error:
        raise ToolError(content or f"{name} failed")
    parts = _parts(result.blocks)
    observation: Any = content if parts is None else parts
    sources = _sources(getattr(result.raw_output, "source_nodes", None) or result.raw_output)
    if sources:
        return to_output(ToolOutput(content, observation, sources=sources))
    try:
        output = to_output(result.raw_output).output
    except ToolError:
        output = content  # an object for the application; `content` is its text
    return to_output(ToolOutput(output, None if output == observation else observation))


def _sources(value: Any) -> tuple[Json, ...]:
    """Return the nodes in a value as sources."""
    items: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else []
    scored_nodes = [each for each in items if hasattr(each, "node") and hasattr(each, "score")]
    return tuple(
        {
            "id": each.node.node_id,
            "score": None if each.score is None else float(each.score),
            "metadata": to_output(each.node.metadata).output,
            "text": each.node.get_content(),
        }
        for each in scored_nodes
    )


def _parts(blocks: Sequence[Any]) -> list[Content] | None:
    """Return blocks as content parts; None if all are text."""
    if all(block.block_type == "text" for block in blocks):
        return None
    return [_part(block) for block in blocks]


def _part(block: Any) -> Content:
    kind: str = block.block_type
    if kind == "text":
        return Text(block.text)
    if kind == "image" and isinstance(block.image, bytes):
        try:
            data = base64.b64decode(block.image, validate=True)
        except (binascii.Error, ValueError):
            return Text("[an image that is not base64]")
        return Image(data=data, media_type=block.image_mimetype or "image/png")
    if kind == "image" and block.url is not None:
        return Image(url=str(block.url), media_type=block.image_mimetype)
    return Text(f"[{kind}]")
