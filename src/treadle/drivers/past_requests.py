"""Rebuild past requests to models from a task's journal and its agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.agents.agent import Agent
from treadle.core.effects import CallModel
from treadle.core.events import ModelStarted
from treadle.core.framing import framed
from treadle.core.messages import Message
from treadle.core.model import ModelRequest, ModelSettings
from treadle.core.redaction import is_secret_name
from treadle.core.state import TaskState
from treadle.drivers.agent_registry import AgentRegistry
from treadle.drivers.seen_messages import select_messages
from treadle.engine.broadcast import Channel
from treadle.engine.effect_context import EffectContext
from treadle.engine.metering import no_price
from treadle.engine.model_requests import function_request, step_request
from treadle.engine.vault import Vault
from treadle.errors import AgentUnknown, ModelError, VersionRefused
from treadle.ports import Memory
from treadle.results.read_results import OfferedTool, PastRequest


class PastRequests:
    """Rebuilds past requests to models.

    Args:
        agents: the registered agents.
        memory: bounds long conversations for models.
        vault: hides secrets in settings.
    """

    def __init__(self, agents: AgentRegistry, memory: Memory, vault: Vault) -> None:
        self._agents = agents
        self._memory = memory
        self._vault = vault

    def made_again(self, state: TaskState, started: ModelStarted) -> PastRequest:
        """Return a request as its model saw it. It may take long, and depends on the arguments alone.

        Args:
            state: the state of the task, just after the event.
            started: the event of the request.
        """
        step, call = next(
            (step, call)
            for step, call in state.open_model_calls()
            if step.id == started.step and call.id == started.call
        )
        try:
            runtime = self._agents.runtime_for(state, self._agent_of(state))
            select = select_messages(self._agents, state, runtime, self._memory.window)
        except (AgentUnknown, VersionRefused):
            return self._without_agent(state, started)
        context = EffectContext(state, runtime, Channel(), None, _nothing, lambda: started.time, no_price)
        context.select_messages = select
        try:
            if call.request is None:
                request = step_request(context, CallModel(step.id, step, call, started.final))
            else:
                request = function_request(context, call)
        except (ModelError, KeyError):  # the present agent lacks the tool, or room for its tools
            return self._without_agent(state, started)
        agent, is_bounded = runtime.agent, runtime.options.context_tokens is not None
        # The former tools of a toolset are not known, and the tools of a request may have moved the window.
        exact = agent.fingerprint == state.fingerprint and not agent.toolsets
        exact = exact and (agent.offer is None or not is_bounded)
        offered = tuple([OfferedTool(spec.name, spec.description, spec.parameters) for spec in request.tools])
        if agent.dialect is not None:
            request = agent.dialect.ask(request)
        request = framed(request)
        return replace(
            _from_journal(state, started, request.messages, request.instructions),
            tools=offered,
            tool_choice=request.tool_choice,
            settings=self._shown(request.settings),
            output_schema=request.output_schema,
            exact=exact,
        )

    def _agent_of(self, state: TaskState) -> Agent:
        """Return the agent of a task at that time; raise `AgentUnknown`."""
        agent = self._agents.with_task(state, self._agents.of(state.created_for, None, state.task_id))
        return self._agents.with_caller_tools(state, agent)

    def _without_agent(self, state: TaskState, started: ModelStarted) -> PastRequest:
        """Return a request from the journal alone."""
        messages = ModelRequest(
            state.view, state.instructions or "", (), "auto", ModelSettings(), "", "", 0, 1
        )
        request = framed(messages)
        return _from_journal(state, started, request.messages, request.instructions)

    def _shown(self, settings: ModelSettings) -> ModelSettings:
        """Return settings without possible secrets."""
        extra = {
            name: self._vault.known.hide_data(value)
            for name, value in settings.extra.items()
            if name != "extra_headers" and not is_secret_name(name)
        }
        return replace(settings, extra=extra)


async def _nothing() -> None:
    """Do nothing; used instead of a durability barrier."""


def _from_journal(
    state: TaskState, started: ModelStarted, messages: Sequence[Message], instructions: str
) -> PastRequest:
    return PastRequest(
        state.task_id,
        started.step,
        started.call,
        started.seq,
        started.time,
        state.agent,
        started.model,
        started.attempt,
        started.final,
        instructions,
        tuple(messages),
        tuple([OfferedTool(name) for name in started.offered or ()]),
    )
