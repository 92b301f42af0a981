"""Tool selection: the choice of an agent's tools for each request to its model (`Agent(offer=)`).

The agent's `tools` fix the capabilities of a task. Each call of them can be recovered after a crash, settled and
undone. A selector only chooses among them before each request. Its choice is journalled with the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from treadle.agents.context import RequestContext
from treadle.core.messages import Json
from treadle.core.refused_uses import can_be_called, no_function
from treadle.errors import ConfigurationError
from treadle.ports import ContextT, Tool

ToolSelector: TypeAlias = Callable[[RequestContext[ContextT]], Iterable[str | Tool]]
"""Returns the tools of a request, or their names. It should depend on its argument alone, and be quick."""


@runtime_checkable
class DescribedToolSelector(Protocol):
    """A selector with settings. It checks the tools when the agent is made, and is part of the agent's fingerprint."""

    def check(self, tools: Sequence[Tool]) -> None:
        """Raise `ConfigurationError` if it cannot select among these tools."""
        ...

    def facts(self) -> Json:
        """Return JSON data that differs when the settings do, for the fingerprint of the agent."""
        ...

    def __call__(self, ctx: RequestContext[Any]) -> Iterable[str | Tool]: ...


def checked_tool_selector(offer: Any, tools: tuple[Tool, ...]) -> ToolSelector[Any]:
    """Return a selector that can select among these tools; raises `ConfigurationError` for another value."""
    call = offer if inspect.isroutine(offer) else getattr(offer, "__call__", None)  # noqa: B004
    if isinstance(offer, type) or not can_be_called(offer):
        raise ConfigurationError(
            f"offer must be a ToolIndex or a function of RequestContext, got {no_function(offer)}"
        )
    if inspect.iscoroutinefunction(call):
        raise ConfigurationError("offer must be a plain function, not an async one: it may wait for nothing")
    if isinstance(offer, DescribedToolSelector):
        offer.check(tools)
    return offer


def facts(offer: ToolSelector[Any]) -> Json:
    """Return JSON data that differs between selectors."""
    if isinstance(offer, DescribedToolSelector):
        return offer.facts()
    return getattr(offer, "__qualname__", type(offer).__qualname__)


def selected_names(offer: ToolSelector[Any], ctx: RequestContext[Any]) -> set[str]:
    """Return the names that a selector returns, unchecked; raises `ConfigurationError` for anything else."""
    answer: Any = offer(ctx)
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise ConfigurationError(f"an offer returns tools or their names, got {answer!r:.80}")
    names: set[str] = set()
    for item in cast("Iterable[Any]", answer):
        if isinstance(item, str):
            names.add(item)
        elif isinstance(item, Tool):
            names.add(item.spec.name)
        else:
            raise ConfigurationError(
                f"an offer returns tools or their names, and among them was {item!r:.80}"
            )
    return names
