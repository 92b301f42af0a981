"""Offers: which of an agent's tools each request to its model holds.

What a task may do is fixed by its agent's `tools`: a call of any of them can be recovered after a crash, settled and
taken back. An offer only chooses among them, before each request; what it chose is journalled with the request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from treadle.agents.context import RequestContext
from treadle.core.messages import Json
from treadle.errors import ConfigurationError
from treadle.ports import Tool

ToolSelector: TypeAlias = Callable[[RequestContext[Any]], Iterable[str | Tool]]
"""Chooses tools for a request, or names of tools. It should follow from what it is given, and be quick."""


@runtime_checkable
class DescribedToolSelector(Protocol):
    """An offer that is an object: it looks at the tools before there is an agent, and says what it goes by."""

    def check(self, tools: Sequence[Tool]) -> None:
        """Raise `ConfigurationError` when it cannot choose among these tools."""
        ...

    def facts(self) -> Json:
        """Return what a version of an agent is told by: JSON data that differs when the offer does."""
        ...

    def __call__(self, ctx: RequestContext[Any]) -> Iterable[str | Tool]: ...


def checked_tool_selector(offer: Any, tools: tuple[Tool, ...]) -> ToolSelector:
    """Return an offer; raises `ConfigurationError` for what cannot choose among these tools."""
    called = offer if inspect.isroutine(offer) else getattr(offer, "__call__", None)  # noqa: B004
    if isinstance(offer, type) or called is None:
        raise ConfigurationError(f"offer must be a ToolIndex or a function of RequestContext, got {offer!r}")
    if inspect.iscoroutinefunction(called):
        raise ConfigurationError("offer must be a plain function, not an async one: it may wait for nothing")
    if isinstance(offer, DescribedToolSelector):
        offer.check(tools)
    return offer


def facts(offer: ToolSelector) -> Json:
    """Return what tells an offer from another one."""
    if isinstance(offer, DescribedToolSelector):
        return offer.facts()
    return getattr(offer, "__qualname__", type(offer).__qualname__)


def selected_names(offer: ToolSelector, ctx: RequestContext[Any]) -> set[str]:
    """Return the names of the tools that an offer chooses, unchecked; raises `ConfigurationError` for what is none."""
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
