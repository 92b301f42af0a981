"""What the model of an agent sees of a conversation: all of it, what a handoff left, or what fits its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.core.messages import Message, MessageView
from treadle.core.state import TaskState
from treadle.core.tools import ToolSpec
from treadle.drivers.agent_registry import AgentRegistry
from treadle.engine.effect_context import AgentRuntime
from treadle.engine.model_requests import standing_instructions
from treadle.ports import Conversation, ConversationWindow

SelectMessages = Callable[[Sequence[ToolSpec]], Sequence[Message]]
"""Returns what a model sees of a conversation beside these tools; may raise `ModelError`."""


def select_messages(
    agents: AgentRegistry,
    state: TaskState,
    runtime: AgentRuntime,
    open_window: Callable[[Conversation], ConversationWindow],
) -> SelectMessages | None:
    """Return what selects the messages that an agent's model sees of a task; None if that is all of them.

    Args:
        agents: knows the filters of handoffs.
        state: of the task.
        runtime: of the agent that the task is with.
        open_window: returns the window on a conversation, where requests are bounded.
    """
    team, view = state.team, None
    filters = agents.filters_of(state, team, runtime.agent) if team is not None else ()
    if team is not None and filters:
        from treadle.engine.agent_view import AgentView

        view = AgentView(state, team, filters)
    most = runtime.options.context_tokens
    if most is None:
        return None if view is None else lambda specs: MessageView(view.messages)
    instructions = standing_instructions(runtime, state)
    if runtime.agent.dialect is not None:
        instructions += runtime.agent.dialect.header
    window = open_window(state if view is None else view)
    return lambda specs: window.show(most, instructions, specs)
