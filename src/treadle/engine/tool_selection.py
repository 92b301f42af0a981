"""Choosing the tools of a request: once, before its begin is recorded, and journalled with it.

A request that is sent again (after a crash, after a failure, in a fork) has the same tools: the agent's selection
function is not called again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.agents.context import RequestContext, read_only
from treadle.agents.tool_selection import selected_names
from treadle.core import events as e
from treadle.core.effects import CallModel
from treadle.core.observation import READ_OUTPUT
from treadle.core.unknown_names import near_name
from treadle.engine.effect_context import EffectContext
from treadle.engine.model_requests import function_messages
from treadle.errors import ConfigurationError


def choose(context: EffectContext, effect: CallModel) -> tuple[tuple[str, ...] | None, e.Failure | None]:
    """Return the names of the tools that a request offers, in the agent's order; None for all.

    If the selection fails, so does the request, and it is not sent.
    """
    agent, call = context.runtime.agent, effect.call
    if agent.offer is None or effect.final or (call.request is not None and call.request.tools is not None):
        return None, None
    if call.offered is not None:
        return call.offered, None
    state, tools = context.state, context.runtime.tools
    try:
        names = selected_names(agent.offer, _request_context(context, effect))
        if names - tools.keys():
            raise _no_tool(min(names - tools.keys()), tools)
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  an offer is code of the user, and fails its request alone
        from treadle.engine.user_errors import kept

        why = f"the tools to offer could not be chosen: {context.vault.error_text(error)}"
        function = f"tools_for= of {agent.name}"
        traceback = kept(error, state, context.vault, function=function, step=effect.step.id)
        return None, e.Failure("agent", "offer", why, traceback=traceback)
    if state.cut and context.runtime.reads_cut_outputs:
        names.add(READ_OUTPUT)
    choice = context.runtime.settings.tool_choice
    if choice in tools and state.turn == 0 and call.request is None:
        names.add(choice)
    return tuple([name for name in tools if name in names]), None


def _request_context(context: EffectContext, effect: CallModel) -> RequestContext[Any]:
    state = context.state
    return RequestContext(
        state.task_id,
        state.thread,
        state.task_input,
        context.user_context,
        effect.step.index,
        state.view if effect.call.request is None else function_messages(context, effect.call),
        context.runtime.agent.tools,
        state=read_only(state),
    )


def _no_tool(name: str, tools: Iterable[str]) -> ConfigurationError:
    near = near_name(name, tools)
    hint = f", did you mean {near!r}?" if near else ""
    return ConfigurationError(f"{name!r} is no tool of the agent{hint}")
