"""Middleware around tools: functions that wrap the execution of a call, each around the next.

    runner's --> agent's --> tool's --> the tool --> back through all of them

A middleware is an async function of the call and of `next`, which runs the inner layers and the tool:

    async def timing(call: ToolInvocation, next: NextLayer) -> ToolOutput:
        began = time.monotonic()
        try:
            return await next(call)
        finally:
            metrics.observe(call.name, time.monotonic() - began)

It may return another result, call `next` with other arguments, or answer without calling `next`. A cancellation, a
question to a person and a deferral pass through it unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic, Literal, TypeAlias, cast

from treadle.core.codec import is_text, storable
from treadle.core.data import frozen
from treadle.core.messages import Json
from treadle.core.refused_uses import no_function
from treadle.core.tools import EffectClass, ToolSpec
from treadle.core.unknown_names import explains_names
from treadle.errors import ConfigurationError
from treadle.ports import ContextT_co, Tool, ToolContext, ToolOutput

LayerOwner = Literal["runner", "agent", "tool"]
"""The owner of a middleware; the first is the outermost."""


@explains_names("ToolInvocation")
@frozen
class ToolInvocation(Generic[ContextT_co]):
    """A call of a tool as its middleware sees it.

    Args:
        tool: the tool, or the subagent as a tool.
        arguments: the arguments of the tool, as JSON data. Changing them counts as a rewrite.
        context: the context that the tool receives.
        definition: returns a digest of the tool's definition.
        on_progress: rewrites the progress values that the tool reports; None leaves them.
        notes: the notes of middleware about the call, by name.
    """

    tool: Tool
    arguments: dict[str, Json]
    context: ToolContext[ContextT_co]
    definition: Callable[[], str] = field(repr=False)
    on_progress: Callable[[Json], Json] | None = field(default=None, repr=False)
    notes: dict[str, Json] = field(default_factory=dict[str, Json], repr=False)

    @property
    def spec(self) -> ToolSpec:
        """The declarations of the tool."""
        return self.tool.spec

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.tool.spec.name

    @property
    def effect(self) -> EffectClass:
        """The effect class of the tool, which tells whether a second start of the call is safe."""
        return self.tool.spec.effect

    @property
    def attempt(self) -> int:
        """1 for the first start of the call."""
        return self.context.attempt

    @property
    def key(self) -> str:
        """The idempotency key: the same for each attempt of this call, different for every other."""
        return self.context.idempotency_key

    def with_arguments(self, arguments: Mapping[str, Json]) -> ToolInvocation[ContextT_co]:
        """Return the call with these arguments, to be passed to `next`."""
        return replace(self, arguments=dict(arguments))

    def with_progress(self, rewrite: Callable[[Json], Json]) -> ToolInvocation[ContextT_co]:
        """Return the call with its progress rewritten by a function, after those of inner middleware.

        The function is called in the thread of the tool.
        """
        inner = self.on_progress

        def both(value: Json) -> Json:
            return rewrite(value if inner is None else inner(value))

        return replace(self, on_progress=both)

    def note(self, name: str, value: Json) -> None:
        """Note a fact of the call under a name. It is journalled with the call's end.

        Raises:
            ValueError: the value is not JSON data, or the name is not text.
        """
        if not is_text(name):
            raise ValueError(f"the name of a note must be a text, got {name!r:.80}")
        self.notes[name] = storable(value)


NextLayer: TypeAlias = Callable[[ToolInvocation[Any]], Awaitable[ToolOutput]]
"""Runs the inner layers and the tool; may be called once."""

ToolMiddleware: TypeAlias = Callable[[ToolInvocation[Any], NextLayer], Awaitable[ToolOutput]]
"""An async function of a call and of `next`, or an object that is called like one."""


@frozen
class Layer:
    """One middleware of a tool, and its owner."""

    middleware: ToolMiddleware
    owner: LayerOwner

    @property
    def name(self) -> str:
        """The name of the middleware for people."""
        return name_of(self.middleware)

    def __str__(self) -> str:
        return f"{self.name} ({self.owner})"


def name_of(middleware: Any) -> str:
    """Return the name of a middleware: that of its function, else of its class."""
    inner = getattr(middleware, "func", middleware)
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


def layers_of(
    tool: Tool, runner: Sequence[ToolMiddleware], agent: Sequence[ToolMiddleware]
) -> tuple[Layer, ...]:
    """Return the middleware of a tool, the outermost first.

    Args:
        tool: the tool; its middleware is its attribute `middleware`, if it declares any.
        runner: the middleware of the runner.
        agent: the middleware of the agent whose model calls the tool.
    """
    own: Sequence[ToolMiddleware] = getattr(tool, "middleware", ())
    declared: tuple[tuple[Sequence[ToolMiddleware], LayerOwner], ...] = (
        (runner, "runner"),
        (agent, "agent"),
        (own, "tool"),
    )
    return tuple([Layer(each, owner) for listed, owner in declared for each in listed])


def checked_middleware(where: str, value: Any) -> tuple[ToolMiddleware, ...]:
    """Return middleware as a tuple.

    Raises:
        ConfigurationError: it is not a list of async functions of two arguments; `where` names the argument.
    """
    if not isinstance(value, (list, tuple)):
        raise ConfigurationError(
            f"{where} must be a list of async functions (call, next), got {value!r:.200}"
        )
    for item in cast("Sequence[Any]", value):
        is_async = inspect.iscoroutinefunction(item) or inspect.iscoroutinefunction(
            getattr(item, "__call__", None)  # noqa: B004
        )
        if isinstance(item, type) or not is_async:
            raise ConfigurationError(
                f"{where} must hold async functions (call, next) that return `await next(call)`, got "
                f"{no_function(item)}"
            )
        try:
            inspect.signature(item).bind(None, None)
        except TypeError:
            raise ConfigurationError(
                f"{where}: {name_of(item)} must take two arguments, the call and next"
            ) from None
    return tuple(cast("Sequence[ToolMiddleware]", value))
