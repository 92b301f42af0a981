"""The arguments of user functions that an agent calls outside a step: `RunContext` and `RequestContext`.

Functions of a step get a `StepContext` (`workers/step_context.py`), nodes of a pipeline a `NodeContext`
(`workers/node.py`).
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import field
from typing import Generic

from treadle.core.data import frozen
from treadle.core.messages import Content, Json, Message
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.core.unknown_names import explains_names
from treadle.ports import ContextT_co, Tool


@explains_names("RunContext")
@frozen
class RunContext(Generic[ContextT_co]):
    """A task, as an instructions function sees it; called once per task, before its first request.

    `state` is the task's `extra_state`. Instructions may change it; other functions may only read it.
    """

    task_id: str
    thread_id: str
    input: tuple[Content, ...]
    context: ContextT_co
    state: MutableMapping[str, Json] = field(default_factory=dict[str, Json], kw_only=True, compare=False)


def read_only(state: TaskState) -> StateView:
    """Return a task's current `extra_state`, for a function that may not change it."""
    refusal = "tools, steps and instructions may change it"
    return StateView(StateAccess(state, state.seq, "worker or offer=", refusal=refusal))


@frozen
class RequestContext(RunContext[ContextT_co]):
    """A request, as the function that selects its tools sees it; called once for each request.

    Args:
        step: the number of the step that makes the request, from 1.
        messages: the conversation so far with the thread's messages; shared with the task, not copied.
        tools: all tools of the agent, in its order.
    """

    step: int
    messages: Sequence[Message]
    tools: tuple[Tool, ...]
