"""Toolsets of Pydantic AI as toolsets of an agent.

Theory of operation. The tools of a Pydantic AI toolset may depend on the run: filters, `prepare` functions and dynamic
toolsets receive its `deps`. So each call is a separate run there. The toolset is made for the run, entered, listed,
called and left, with the task's `context` as `deps`. A drive lists it once before, with the `deps` of the declaration.
A listed tool that is left out for the context of a call is not called.

    drive begins    toolset.for_run(listing) --> get_tools --> ForeignTool, one for each
    a call          toolset.for_run(call)    --> get_tools --> call_tool, with the context as deps

A probe shows whether a call needs an approval. It is the same toolset with leaves that do nothing. Its layers that
require approvals raise `ApprovalRequired`, as they would in the call.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import cache, partial
from typing import Any, Final, cast

from treadle.core.messages import Content, File, Image, Json, Text
from treadle.core.observation import as_text, whole_error_text
from treadle.core.tools import ToolSpec
from treadle.core.unknown_names import explains_names
from treadle.core.validation_messages import clauses
from treadle.errors import (
    ConfigurationError,
    ToolArgumentsInvalid,
    ToolError,
    ToolOutcomeUnknown,
    ToolsetUnavailable,
)
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.tools.approval import code_digest
from treadle.tools.definitions import check_arguments
from treadle.tools.foreign.tool import ForeignTool, Terms, in_tool_thread, is_of
from treadle.tools.observe import to_output

_log = logging.getLogger("treadle.tools")

_MOST_UNASKED: Final = 10_000

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")


@explains_names("PydanticAIToolset")
class PydanticAIToolset:
    """A toolset of Pydantic AI for an agent: `Agent(tools=[PydanticAIToolset("desk", toolset)])`.

    Its tools are named `name__tool` and keep their descriptions and schemas. Their `RunContext` has the task's
    `context` as `deps`, and no model. A tool that requires an approval waits for it as any other tool does.
    `ModelRetry` and `ToolFailed` are the call's error.

    Args:
        name: the prefix of the tools' names: at most 32 letters, digits, `-` and single `_`.
        toolset: a `FunctionToolset`, or one that combines, filters, prefixes or wraps others.
        listed_with: the `deps` for listing the tools before there is a call with a `context`. Filters and `prepare`
            functions receive it.
        effects: declared effects by patterns of the toolset's tool names, `{"search*": ["read_only"]}`. The first match
            counts. A tool without declared effects may write and is never started twice.
        timeout: seconds that a call may take; None for no limit.
        retries: how often a failed call of a read-only or idempotent tool is tried again.

    Raises:
        ConfigurationError: an argument is not valid; the text names it.
    """

    def __init__(
        self,
        name: str,
        toolset: Any,
        *,
        listed_with: Any = None,
        effects: Mapping[str, Sequence[str]] | None = None,
        timeout: float | None = None,
        retries: int = 0,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"PydanticAIToolset: name must be at most 32 letters, digits, '-' and single '_', got {name!r}"
            )
        is_toolset = is_of(toolset, "pydantic_ai") and hasattr(toolset, "get_tools")
        if not is_toolset or not hasattr(toolset, "call_tool"):
            raise ConfigurationError(
                f"PydanticAIToolset {name!r}: a {type(toolset).__name__} is not a toolset of Pydantic AI: write "
                "FunctionToolset([...]) of functions and tools"
            )
        self._name, self.toolset, self.listed_with = name, toolset, listed_with
        self.approval_free_calls: OrderedDict[str, None] = OrderedDict()
        """keys of the latest calls that needed no approval when they were judged

        The idempotency key is used, because tenants may have the same task and call ids.
        """
        self.terms = Terms.of(f"PydanticAIToolset {name!r}", effects, timeout, retries)

    def __repr__(self) -> str:
        return f"PydanticAIToolset({self._name!r}, {type(self.toolset).__name__})"

    @property
    def name(self) -> str:
        """The prefix of its tools' names, before `__`."""
        return self._name

    def facts(self) -> Json:
        """Return facts that identify this declaration."""
        effects: Json = {pattern: list(flags) for pattern, flags in self.terms.effects.items()}
        return [self._name, _shape(self.toolset), effects, self.terms.timeout, self.terms.retries]

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        """Return None: a toolset may list other tools each time."""
        return None

    def connect(self) -> _Connection:
        """Return a connection, which lists the tools in a driver process."""
        return _Connection(self)


def _shape(toolset: Any) -> Json:
    """Return the structure of a toolset, as far as it is visible."""
    tools: Any = getattr(toolset, "tools", None)
    inside: list[Any] = [*getattr(toolset, "toolsets", ())]
    wrapped = getattr(toolset, "wrapped", None)
    return {
        "kind": type(toolset).__name__,
        "prefix": getattr(toolset, "prefix", None),
        "renamed": dict(getattr(toolset, "name_map", None) or {}),
        "tools": sorted(cast("Mapping[str, Any]", tools)) if isinstance(tools, Mapping) else [],
        "inside": [_shape(each) for each in (inside if wrapped is None else [wrapped, *inside])],
    }


def _asks_for_approvals(toolset: Any) -> bool:
    """Return whether a layer of a toolset may require an approval; True for layers of unknown classes."""
    if hasattr(toolset, "approval_required_func"):
        return True
    inside = [*getattr(toolset, "toolsets", ())]
    wrapped = getattr(toolset, "wrapped", None)
    is_dynamic = hasattr(toolset, "toolset_func")
    return is_dynamic or any(_asks_for_approvals(each) for each in (inside if wrapped is None else [wrapped]))


class _Connection:
    """Lists the tools of a toolset; keeps nothing open between calls."""

    def __init__(self, declared: PydanticAIToolset) -> None:
        self._declared = declared
        self._tools: list[Tool] = []
        self._specs: list[tuple[ToolSpec, str]] | None = None

    async def tools(self) -> Sequence[Tool]:
        """Return the current tools. It is the same object as long as they are unchanged."""
        declared = self._declared
        ctx = _run_context(deps=declared.listed_with)
        try:
            async with _running(declared.toolset, ctx) as toolset:
                toolset_tools: Mapping[str, Any] = await toolset.get_tools(ctx)
                instructions = (
                    await toolset.get_instructions(ctx) if hasattr(toolset, "get_instructions") else None
                )
        except Exception as error:
            raise ToolsetUnavailable(
                f"the toolset {declared.name!r} cannot be listed: {whole_error_text(error)}; where its functions need "
                "deps, give listed_with= to PydanticAIToolset",
                toolset=declared.name,
            ) from error
        tools = [_OneTool(declared, name, tool).as_tool() for name, tool in toolset_tools.items()]
        specs = [(tool.spec, tool.code) for tool in tools]
        if specs != self._specs:
            declared.terms.check_used(list(toolset_tools))
            if instructions:
                _log.warning(
                    "the toolset %s has instructions, which no model is sent: write them into those of the agent",
                    declared.name,
                )
            self._tools, self._specs = list[Tool](tools), specs
        return self._tools

    async def close(self) -> None:
        """Do nothing: each call leaves the toolset that it entered."""


@asynccontextmanager
async def _running(toolset: Any, ctx: Any) -> AsyncGenerator[Any]:
    """Prepare a toolset for one run with one step, as an agent of Pydantic AI does."""
    running = await toolset.for_run(ctx)
    async with running:
        yield await running.for_run_step(ctx)


def _run_context(**known: Any) -> Any:
    """Return a `RunContext` without a model, with the fields that this version of the library has."""
    from pydantic_ai import RunContext, RunUsage

    names = {each.name for each in fields(RunContext)}
    return RunContext(
        model=cast("Any", None),
        usage=RunUsage(),
        **{key: value for key, value in known.items() if key in names},
    )


@cache
def _idle_leaf() -> type[Any]:
    """Return a class of toolsets that list the wrapped tools and call nothing."""
    from pydantic_ai.toolsets import WrapperToolset

    class IdleLeaf(WrapperToolset[Any]):
        async def call_tool(self, *call: Any, **more: Any) -> Any:
            return None

    return IdleLeaf


class _OneTool:
    """A tool of a toolset.

    Args:
        declared: the toolset.
        name: the tool's name in the toolset.
        listed: the tool as listed when the drive began.
    """

    def __init__(self, declared: PydanticAIToolset, name: str, listed: Any) -> None:
        self._declared, self._name, self._listed = declared, name, listed
        self._always_asks = listed.tool_def.kind == "unapproved"
        self._may_ask = self._always_asks or _asks_for_approvals(declared.toolset)

    def as_tool(self) -> ForeignTool:
        declared, definition = self._declared, self._listed.tool_def
        if definition.kind not in ("function", "unapproved"):
            raise ConfigurationError(
                f"PydanticAIToolset {declared.name!r}: the tool {self._name!r} is of the kind {definition.kind!r}, "
                "which ends outside of the call: write a function with @tool(background=True)"
            )
        spec = declared.terms.spec(
            f"{declared.name}__{self._name}",
            definition.description or "",
            definition.parameters_json_schema,
            names=(self._name,),
            needs_approval=self._may_ask,
        )
        return ForeignTool(
            spec, self._validate, self._call, code=self._code(), needs_approval=self._needs_approval
        )

    def _code(self) -> str:
        """Return a digest of the tool's function; empty without one."""
        leaf = self._listed
        while hasattr(leaf, "source_tool"):
            leaf = leaf.source_tool
        schema: Any = getattr(getattr(leaf, "call_func", None), "__self__", None)
        return code_digest(getattr(schema, "function", None))

    def _validate(self, arguments: dict[str, Json]) -> Any:
        from pydantic import ValidationError

        schema = self._listed.tool_def.parameters_json_schema
        properties: dict[str, Any] = schema.get("properties", {})
        try:
            validated: Any = self._listed.args_validator.validate_python(arguments)
        except ValidationError as error:
            details = error.errors(include_url=False)
            raise ToolArgumentsInvalid(clauses(details, cast("Json", arguments), [*properties])) from error
        # Without a function's signature nothing was checked. With one, an argument that `prepare` left out is accepted.
        accepted_schema = (
            schema if validated is arguments else {**schema, "properties": dict.fromkeys(properties)}
        )
        check_arguments(arguments, {"additionalProperties": False, **accepted_schema})
        return validated

    def _context(self, ctx: ToolContext[Any], **more: Any) -> Any:
        return _run_context(
            deps=ctx.context,
            tool_call_id=ctx.call_id,
            tool_name=self._name,
            retry=ctx.attempt - 1,
            max_retries=self._declared.terms.retries,
            run_id=ctx.task_id,
            conversation_id=ctx.thread_id,
            **more,
        )

    async def _needs_approval(self, arguments: Any, ctx: ToolContext[Any]) -> bool:
        """Return whether the toolset requires an approval for these arguments. If not, remember the call's key."""
        approval_free_calls, call = self._declared.approval_free_calls, ctx.idempotency_key
        if await self._requires_approval(arguments, ctx):
            approval_free_calls.pop(call, None)
            return True
        approval_free_calls[call] = None
        if len(approval_free_calls) > _MOST_UNASKED:
            approval_free_calls.popitem(last=False)
        return False

    async def _requires_approval(self, arguments: Any, ctx: ToolContext[Any]) -> bool:
        from pydantic_ai.exceptions import ApprovalRequired

        if self._always_asks:
            return True
        run_context = self._context(ctx)
        async with _running(self._declared.toolset, run_context) as running:
            probe = running.visit_and_replace(_idle_leaf())
            tool = (await probe.get_tools(run_context)).get(self._name)
            if tool is None:
                return False  # the toolset leaves it out for this context, so the call will fail
            try:
                await probe.call_tool(self._name, arguments, run_context, tool)
            except ApprovalRequired:
                return True
        return False

    async def _call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        from pydantic_ai import Agent

        threads = _CallThreads(partial(in_tool_thread, ctx, f"{self._declared.name}__{self._name}"))
        # A layer that requires an approval asked before the call started. A tool that raises `ApprovalRequired` itself
        # did not, so it must not run as if it were approved.
        approved = self._may_ask and await self._requires_approval(arguments, ctx)
        if approved and ctx.idempotency_key in self._declared.approval_free_calls:
            raise ToolError(
                f"{self._name} was not run: its toolset requires an approval now, but did not when the call was "
                "judged: call it again"
            )
        run_context = self._context(ctx, tool_call_approved=approved)
        try:
            with Agent.using_thread_executor(threads):
                value = await self._call_toolset(arguments, run_context)
        except asyncio.CancelledError:
            await threads.ended()
            raise
        except Exception as error:
            if threads.leave_behind():
                raise ToolOutcomeUnknown(
                    f"{self._name} was given up, and its thread still runs: {error}"
                ) from error
            raise self._failure(error) from error
        return _output(value)

    async def _call_toolset(self, arguments: Any, run_context: Any) -> Any:
        async with _running(self._declared.toolset, run_context) as toolset:
            tool = (await toolset.get_tools(run_context)).get(self._name)
            if tool is None:
                raise ToolError(
                    f"{self._name} is not there for the context of this task: its toolset leaves it out"
                )
            check = getattr(tool, "args_validator_func", None)
            if check is not None:
                checked = check(run_context, **arguments)
                if inspect.isawaitable(checked):
                    await checked
            return await toolset.call_tool(self._name, arguments, run_context, tool)

    def _failure(self, error: Exception) -> Exception:
        from pydantic_ai import exceptions

        if isinstance(error, exceptions.ApprovalRequired):
            return ToolError(
                f"{self._name} asks for an approval in the middle of the call: let its toolset ask before, by "
                "toolset.approval_required(...) or requires_approval=True"
            )
        if isinstance(error, exceptions.CallDeferred):
            return ToolError(
                f"{self._name} leaves its work to others: write a function with @tool(background=True)"
            )
        failed: Any = getattr(exceptions, "ToolFailed", exceptions.ModelRetry)
        return ToolError(str(error)) if isinstance(error, (exceptions.ModelRetry, failed)) else error


class _CallThreads(Executor):
    """Runs the sync functions of one call in tool threads, which count until they end.

    Args:
        in_thread: runs a function in a tool thread.
    """

    def __init__(self, in_thread: Callable[[Callable[[], Any]], Any]) -> None:
        self._in_thread = in_thread
        self._tasks: list[asyncio.Task[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a function; called in the event loop of the call."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a started thread cannot be cancelled
        task = asyncio.get_running_loop().create_task(self._in_thread(partial(fn, *args, **kwargs)))
        task.add_done_callback(partial(_settle, future))
        self._tasks.append(task)
        return future

    async def ended(self) -> None:
        """Ask running functions to stop, and wait until they end. When cancelled, abandon them."""
        running = [task for task in self._tasks if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)

    def leave_behind(self) -> bool:
        """Abandon running functions; return whether there were any."""
        running = [task for task in self._tasks if not task.done()]
        for task in running:
            task.cancel()
            asyncio.get_running_loop().call_soon(task.cancel)
        return bool(running)


def _settle(future: Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        future.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


# --------------------------------------------------------------------------------------------- results


def _output(value: Any) -> ToolOutput:
    if not (is_of(value, "pydantic_ai.messages") and hasattr(value, "return_value")):
        return to_output(_parts(value) or value)
    returned = to_output(_parts(value.return_value) or value.return_value)
    output = returned.output
    if value.metadata is not None:
        output = {"return_value": output, "metadata": _plain(value.metadata)}
    observation = returned.observation
    if value.content is not None:
        contents = [value.content] if isinstance(value.content, str) else value.content
        text = as_text(returned.output) if observation is None else observation
        first: list[Any] = [text] if isinstance(text, str) else [*text]
        observation = [*first, *[_part(each) or str(each) for each in contents]]
    elif value.metadata is not None and observation is None:
        observation = as_text(returned.output)
    return to_output(ToolOutput(output, observation))


def _plain(value: Any) -> Json:
    try:
        return to_output(value).output
    except ToolError as error:
        return str(error)  # metadata is for the application, and this has no JSON form


def _parts(value: Any) -> list[Content] | None:
    """Return a value as content parts; None unless it contains files, and only text besides."""
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]
    parts = [_part(each) for each in items]
    has_files = any(isinstance(part, (Image, File)) for part in parts)
    return [part for part in parts if part is not None] if has_files and None not in parts else None


def _part(value: Any) -> Content | None:
    if isinstance(value, str):
        return Text(value)
    if not is_of(value, "pydantic_ai.messages"):
        return None
    if isinstance(getattr(value, "content", None), str):
        return Text(value.content)
    data, media_type = getattr(value, "data", None), getattr(value, "media_type", None)
    if isinstance(data, bytes):
        if str(media_type).startswith("image/"):
            return Image(data=data, media_type=media_type)
        return File(data=data, media_type=media_type, name=value.identifier)
    url = getattr(value, "url", None)
    if isinstance(url, str):
        return Image(url=url) if "Image" in type(value).__name__ else File(url=url)
    return None
