"""Select the messages that an agent's model sees: all, those that pass a handoff's filters, or a window."""

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
"""Returns the messages of a conversation for a model with these tools; may raise `ModelError`."""


def select_messages(
    agents: AgentRegistry,
    state: TaskState,
    runtime: AgentRuntime,
    open_window: Callable[[Conversation], ConversationWindow],
) -> SelectMessages | None:
    """Return the selector of a task's messages for its agent's model; None if it sees all of them.

    Args:
        agents: has the filters of handoffs.
        state: the state of the task.
        runtime: the runtime of the task's present agent.
        open_window: returns the window of a conversation, if requests are bounded.
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
