"""LangChain tools as tools of an agent. LangChain itself is not imported: the caller's objects suffice."""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from treadle.core.messages import Content, Image, Json, Text
from treadle.core.unknown_names import explains_call
from treadle.errors import ToolArgumentsInvalid, ToolDefinitionError, ToolError
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

_LIBRARY: Final = "langchain_core.tools"
_CALL_ID: Final = "InjectedToolCallId"


@explains_call
def langchain_tools(
    *tools: Any,
    effects: Mapping[str, Sequence[str]] | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[ForeignTool]:
    """Return LangChain tools as tools of an agent: `Agent(tools=[*langchain_tools(search, pay)])`.

    Names, descriptions, schemas and `return_direct` are kept. A tool with a coroutine runs in the event loop, any other
    in a thread. For a `content_and_artifact` tool, the artifact becomes the result's `output` and the content the
    observation. Its documents become the sources. A `ToolException` is the call's error, even if it is handled.

    Args:
        tools: objects of subclasses of `BaseTool`, such as functions decorated with LangChain's `@tool`.
        effects: declared effects by patterns of tool names, `{"search*": ["read_only"]}`. The first match counts. A
            tool without declared effects may write and is never started twice.
        timeout: seconds that a call may take; None for no limit.
        retries: how often a failed call of a read-only or idempotent tool is tried again.

    Raises:
        ConfigurationError: an argument is not valid, or not a LangChain tool.
        ToolDefinitionError: a tool needs arguments that LangGraph would inject.
    """
    terms = Terms.of("langchain_tools", effects, timeout, retries)
    checked_tools("langchain_tools", tools, _wrong)
    foreign_tools = [_foreign_tool(tool, terms) for tool in tools]
    terms.check_used([each.spec.name for each in foreign_tools])
    return foreign_tools


def _wrong(tool: Any) -> str | None:
    if is_of(tool, _LIBRARY) and hasattr(tool, "tool_call_schema"):
        return None
    return "is not a tool of LangChain: give objects of subclasses of BaseTool"


def _foreign_tool(tool: Any, terms: Terms) -> ForeignTool:
    name: str = tool.name
    model, schema = _schema(tool)
    properties, hidden = cast("dict[str, Json]", schema.get("properties", {})), _hidden(tool)
    unseen_names = {*hidden, *_aliases(tool, hidden)}
    if injected := sorted(key for key, is_needed in hidden.items() if is_needed):
        raise ToolDefinitionError(
            f"langchain_tools: the tool {name!r} needs {', '.join(injected)}, which only LangGraph injects: write a "
            "function with @tool that passes it, such as from ctx.context, and calls the tool"
        )
    # A message is needed to tell a handled error from a result, and to hold an artifact. Otherwise the plain value is
    # better: it keeps its data types.
    as_message = None in hidden.values() or tool.response_format != "content" or bool(tool.handle_tool_error)
    runs_in_loop = _has_coroutine(tool)

    def validate(arguments: dict[str, Json]) -> dict[str, Json]:
        if model is not None:
            validated(model, arguments, list(properties))
        else:
            check_arguments(arguments, schema)
        is_open = bool(schema.get("additionalProperties"))
        if unseen := [key for key in arguments if key in unseen_names or not (is_open or key in properties)]:
            raise ToolArgumentsInvalid(f"{', '.join(unseen)}: there is no such argument")
        return arguments

    async def call(arguments: dict[str, Json], ctx: ToolContext[Any]) -> ToolOutput:
        # `run`, because `invoke` would unpack arguments that look like a tool call.
        options: Any = {"config": {"configurable": {}}, "tool_call_id": ctx.call_id if as_message else None}
        if runs_in_loop:
            value = await tool.arun(dict(arguments), **options)
        else:
            value = await in_tool_thread(ctx, name, partial(tool.run, dict(arguments), **options))
        return _output(value, name)

    spec = terms.spec(name, tool.description, schema, return_direct=bool(tool.return_direct))
    as_taken = None if model is None else partial(taken_by, model)
    return ForeignTool(spec, validate, call, code=code_digest(_function(tool)), as_taken=as_taken)


# ----------------------------------------------------------------------------------------- definition


def _schema(tool: Any) -> tuple[Any, dict[str, Json]]:
    """Return the pydantic model of a tool's arguments, or None, and their JSON schema."""
    if tool.args_schema is None and "tool_input" in tool.args:
        # The oldest kind, `Tool(name, func, description)`: its function takes one text.
        return None, {"type": "object", "properties": dict(tool.args), "required": ["tool_input"]}
    model = tool.tool_call_schema
    if isinstance(model, dict):
        facts = cast("dict[str, Json]", model)
        return None, {key: value for key, value in facts.items() if key not in ("title", "description")}
    facts = model.model_json_schema() if hasattr(model, "model_json_schema") else model.schema()
    return model, {key: value for key, value in facts.items() if key not in ("title", "description")}


def _hidden(tool: Any) -> dict[str, bool | None]:
    """Return whether each argument that is hidden from models is required; None for the call's id."""
    hidden: dict[str, bool | None] = {}
    if not isinstance(tool.args_schema, dict):
        model_fields: Any = getattr(tool.tool_call_schema, "model_fields", None)
        declared: Any = getattr(tool.get_input_schema(), "model_fields", None)
        for name, field in cast("dict[str, Any]", declared or {}).items():
            if model_fields is not None and name not in model_fields:
                hidden[name] = None if _is_call_id(field) else bool(field.is_required())
    # Arguments such as `ToolRuntime` appear in the function's signature and in no schema.
    injected = cast("set[str]", getattr(tool, "_injected_args_keys", set[str]()))
    parameters: Mapping[str, inspect.Parameter] = {}
    if injected:
        parameters = inspect.signature(_function(tool)).parameters
    for name in injected:
        parameter = parameters.get(name)
        is_needed = parameter is None or parameter.default is parameter.empty
        hidden.setdefault(name, None if name == "tool_call_id" else is_needed)
    return hidden


def _aliases(tool: Any, names: Collection[str]) -> set[str]:
    """Return the aliases of a tool's argument names in its pydantic model."""
    aliases = set[str]()
    declared: Any = None if isinstance(tool.args_schema, dict) else tool.get_input_schema()
    for name, field in cast("dict[str, Any]", getattr(declared, "model_fields", None) or {}).items():
        if name not in names:
            continue
        validation_alias: Any = field.validation_alias
        for alias in (field.alias, *getattr(validation_alias, "choices", (validation_alias,))):
            path: Any = getattr(alias, "path", (alias,))  # for an `AliasPath`, its first field
            aliases |= {path[0]} if isinstance(path[0], str) else set()
    return aliases


def _is_call_id(field: Any) -> bool:
    return any(_CALL_ID in (getattr(mark, "__name__", ""), type(mark).__name__) for mark in field.metadata)


def _has_coroutine(tool: Any) -> bool:
    """Return whether a tool has its own async code. LangChain runs other tools in a thread."""
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    owner = next(kind for kind in type(tool).__mro__ if "_arun" in vars(kind))
    return not (owner.__module__ == _LIBRARY or owner.__module__.startswith(f"{_LIBRARY}."))


def _function(tool: Any) -> Any:
    """Return the code that a tool runs: its function, or a method of its class."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return function if callable(function) else tool._run  # noqa: SLF001  where each subclass has its code


# --------------------------------------------------------------------------------------------- results


def _output(value: Any, name: str) -> ToolOutput:
    """Convert a tool's return value; raises `ToolError` if it reports a failure."""
    if is_of(value, "langchain_core.messages.tool") and hasattr(value, "tool_call_id"):
        return _message_output(value, name)
    if is_of(value, "langgraph"):
        raise ToolError(f"{name} returned a {type(value).__name__} of LangGraph, and no graph runs here")
    blocks = _blocks(value)
    if blocks is not None:
        return to_output(blocks)
    output = to_output(value)
    sources = _sources(value)
    return ToolOutput(output.output, output.observation, sources=sources) if sources else output


def _message_output(message: Any, name: str) -> ToolOutput:
    content: Any = message.content
    if message.status == "error":
        raise ToolError(content if isinstance(content, str) else _text(content) or f"{name} failed")
    observation = content if isinstance(content, str) else _blocks(content) or _text(content)
    if message.artifact is None:
        content_output = to_output(observation)
        return ToolOutput(content_output.output, content_output.observation)
    try:
        output: Json = to_output(message.artifact).output
    except ToolError as error:  # the artifact is an object for the application
        output = {"content": _text(content), "artifact": str(error)}
    return to_output(ToolOutput(output, observation, sources=_sources(message.artifact)))


def _sources(value: Any) -> tuple[Json, ...]:
    """Return the documents in a value as sources."""
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    documents = [each for each in items if is_of(each, "langchain_core.documents")]
    return tuple(
        {"id": each.id, "metadata": to_output(each.metadata).output, "text": each.page_content}
        for each in documents
        if hasattr(each, "page_content")
    )


def _blocks(value: Any) -> list[Content] | None:
    """Return content blocks as content parts; None if the value is not a list of text and image blocks."""
    if not isinstance(value, list) or not value:
        return None
    parts: list[Content] = []
    for block in cast("list[Any]", value):
        part = Text(block) if isinstance(block, str) else _part(block)
        if part is None:
            return None
        parts.append(part)
    return parts if any(isinstance(block, Mapping) for block in cast("list[Any]", value)) else None


def _part(block: Any) -> Content | None:
    facts: Mapping[str, Any] = cast("Mapping[str, Any]", block) if isinstance(block, Mapping) else {}
    kind = facts.get("type")
    if kind == "text" and isinstance(facts.get("text"), str):
        return Text(facts["text"])
    if kind not in ("image", "image_url"):
        return None
    address: Any = facts.get("image_url", facts.get("url"))
    if isinstance(address, Mapping):
        address = cast("Mapping[str, Any]", address).get("url")
    data: Any = facts.get("base64", facts.get("data"))
    media_type: Any = facts.get("mime_type")
    if isinstance(address, str) and address.startswith("data:"):
        media_type, _, data = address[5:].partition(";base64,")
        address = None
    if isinstance(data, str):
        try:
            return Image(data=base64.b64decode(data, validate=True), media_type=media_type or "image/png")
        except (binascii.Error, ValueError):
            return None
    return Image(url=address, media_type=media_type) if isinstance(address, str) else None


def _text(content: Any) -> str:
    """Return the text of a message's content, with the kinds of its other blocks in brackets."""
    if not isinstance(content, list):
        return str(content)
    texts: list[str] = []
    for block in cast("list[Any]", content):
        facts = (
            cast("Mapping[str, Any]", block)
            if isinstance(block, Mapping)
            else {"type": "text", "text": str(block)}
        )
        texts.append(str(facts["text"]) if "text" in facts else f"[{facts.get('type', 'content')}]")
    return "\n".join(texts)
