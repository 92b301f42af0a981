"""Routers: functions that choose instead of the model how a step continues, by calls of subagents or a handoff.

A router is called before the first request of each step. Its choice is journalled as an answer with calls. So limits,
policies, undo and forks treat them as the calls of a model. None leaves the step to the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol, TypeAlias, cast

from treadle.agents.context import RequestContext
from treadle.core.codec import storable
from treadle.core.data import frozen
from treadle.core.messages import Json, Message, ToolCall
from treadle.core.refused_uses import can_be_called, no_function
from treadle.core.unknown_names import near_name
from treadle.errors import ConfigurationError
from treadle.ports import ContextT

NOTHING: Final = "nothing that a router may return"


class Named(Protocol):
    """The part of an agent's interface that a route uses."""

    @property
    def name(self) -> str: ...


@frozen
class Route:
    """The target of a step, as a router chooses it.

    Args:
        agent: one of the agent's `subagents=` or `handoffs=`, or its name.
        input: the input of a subagent. With it the agent is called, without it the conversation moves there.
        arguments: the arguments of a handoff, of its input type.
    """

    agent: Named | str
    input: str | None = None
    arguments: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def agent_name(self) -> str:
        """The name of the agent."""
        return self.agent if isinstance(self.agent, str) else self.agent.name


Routes: TypeAlias = "Route | Named | str | Sequence[Route | Named | str] | None"
"""A router's return value: one route or several, an agent to hand over to, or None to call the model."""

Router: TypeAlias = Callable[[RequestContext[ContextT]], "Routes | Awaitable[Routes]"]
"""Chooses how a step continues, from the conversation in `ctx.messages`. A sync router runs in a thread."""


class RoutedAgent(Protocol):
    """The part of an agent's interface that its router uses."""

    @property
    def name(self) -> str: ...
    @property
    def subagents_by_tool(self) -> Mapping[str, Any]: ...
    @property
    def handoffs_by_tool(self) -> Mapping[str, Any]: ...


def checked_router(router: Any, *, reaches_agents: bool) -> None:
    """Raise `ConfigurationError` for a router that cannot be called, or has nothing to choose from."""
    if isinstance(router, type) or not can_be_called(router):
        raise ConfigurationError(f"router must be a function of RequestContext, got {no_function(router)}")
    try:
        inspect.signature(router).bind(None)
    except TypeError:
        raise ConfigurationError("router must be a function of one argument, the RequestContext") from None
    except ValueError:
        pass  # a function of C, whose signature is unknown
    if not reaches_agents:
        raise ConfigurationError("router chooses among subagents= and handoffs=, and there are none")


def message_of(agent: RoutedAgent, routes: Any) -> Message | None:
    """Return a router's choice as an answer with calls; None leaves the step to the model.

    Raises `ValueError` for a route to an agent that is neither a subagent nor a handoff.
    """
    if routes is None:
        return None
    listed = cast("Sequence[Any]", routes if isinstance(routes, (list, tuple)) else (routes,))
    calls = [_call(agent, item if isinstance(item, Route) else _route(item)) for item in listed]
    return Message("assistant", tuple(calls)) if calls else None


def _route(item: Any) -> Route:
    if isinstance(item, str) or isinstance(getattr(item, "name", None), str):
        return Route(item)
    raise ValueError(f"it returned a {type(item).__name__}, which is {NOTHING}")


def _call(agent: RoutedAgent, route: Route) -> ToolCall:
    called = {_name(each): tool for tool, each in agent.subagents_by_tool.items()}
    taking_over = {handoff.agent_name: tool for tool, handoff in agent.handoffs_by_tool.items()}
    name = route.agent_name
    if route.input is not None and name in called:
        return ToolCall("", called[name], {"input": route.input})
    if route.input is None and name in taking_over:
        return ToolCall("", taking_over[name], storable(dict(route.arguments)))
    targets = (
        "subagents= it may call" if route.input is not None else "handoffs= (to call a subagent, give input=)"
    )
    near = near_name(name, called if route.input is not None else taking_over)
    hint = f"; did you mean {near!r}?" if near else ""
    raise ValueError(f"it named {name!r}, which is not among the {targets}{hint}")


def _name(agent: Any) -> str:
    return agent if isinstance(agent, str) else agent.name
