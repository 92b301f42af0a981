"""Offering: which tools a request holds is chosen before its begin is recorded, and kept with it.

A request that has to be made again (after a crash, a failure, in a fork) holds the same tools: nobody is asked twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from treadle.agents.offer import RequestContext, chosen
from treadle.core import events as e
from treadle.core.effects import CallModel
from treadle.core.observation import error_text, near_name
from treadle.errors import ConfigurationError
from treadle.runner.perform import Stage


def choose(stage: Stage, effect: CallModel) -> tuple[str, ...] | e.Failure | None:
    """Return the names of the tools that a request offers, in the agent's order; None for all it has.

    A choice that fails is the failure of the request: none is sent.
    """
    agent, step = stage.kit.agent, effect.step
    if agent.offer is None or effect.final:
        return None
    if step.offered is not None:
        return step.offered
    state, tools = stage.state, stage.kit.tools
    ctx = RequestContext(
        state.task_id, state.thread, state.input, stage.context, step.index, state.view, agent.tools
    )
    try:
        names = chosen(agent.offer, ctx)
        if names - tools.keys():
            raise _no_tool(min(names - tools.keys()), tools)
    except (Exception, SystemExit) as error:  # noqa: BLE001  an offer is anybody's code, and harms only its request
        return e.Failure("agent", "offer", f"the tools to offer could not be chosen: {error_text(error)}")
    if agent.model_settings.tool_choice in tools and state.turn == 0:
        names.add(agent.model_settings.tool_choice)
    return tuple([name for name in tools if name in names])


def _no_tool(name: str, tools: Iterable[str]) -> ConfigurationError:
    near = near_name(name, tools)
    hint = f", did you mean {near!r}?" if near else ""
    return ConfigurationError(f"{name!r} is no tool of the agent{hint}")


async def failed(effect: CallModel, failure: e.Failure) -> list[e.Event]:
    """Return the end of a request that was not sent, since it was not known what to offer."""
    return [e.ModelFailed(effect.step.id, failure)]
