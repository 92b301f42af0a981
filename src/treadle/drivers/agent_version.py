"""Which version of its agent a task goes on with, and with which instructions."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from treadle.agents.agent import Agent
from treadle.agents.context import RunContext
from treadle.core import events as e
from treadle.core.codec import flaw
from treadle.core.state import TaskState
from treadle.core.state_view import StateAccess, StateView
from treadle.drivers.owned_tasks import OwnedTask
from treadle.engine.options import RunOptions
from treadle.errors import ConfigurationError, VersionRefused


def check_version(state: TaskState, agent: Agent[Any], options: RunOptions) -> bool:
    """Return whether an agent is another version than the one its task has; nothing is recorded.

    Args:
        state: of the task.
        agent: with which the task is to go on.
        options: those that the task goes on under.

    Raises:
        VersionRefused: the options refuse another version, or its worker could not go on from the task's steps.
    """
    if not state.fingerprint or state.fingerprint == agent.fingerprint:
        return False
    if options.on_version_change == "refuse":
        message = (
            f"task {state.task_id} began with version {state.fingerprint} of agent {agent.name!r} and this is "
            f"version {agent.fingerprint}; options say on_version_change='refuse'"
        )
        raise VersionRefused(message, task_id=state.task_id)
    _check_kind_of_worker(state, agent)
    return True


async def record_agent(owned: OwnedTask, agent: Agent[Any], context: Any, options: RunOptions) -> None:
    """Record the agent's version and instructions, where they differ from those of the task."""
    state, record = owned.state, owned.writer.record
    changed = check_version(state, agent, options)
    if changed:
        record(e.VersionChanged(agent.fingerprint, state.fingerprint))
    if state.instructions is not None and not changed:
        return
    text, changes = agent.instructions, None
    if not isinstance(text, str):
        access = StateAccess(state, state.seq, f"the instructions of agent {agent.name!r}")
        view = StateView(access)
        text = text(RunContext(state.task_id, state.thread, state.task_input, context, state=view))
        if not isinstance(text, str):
            text = await text if isawaitable(text) else text  # pyright: ignore[reportUnnecessaryIsInstance]
        changes = access.close()
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Agent {agent.name!r}: instructions must return text, got {text!r}")
    elif not text and state.instructions is None:
        return
    if (beyond := flaw(text)) is not None:
        raise ConfigurationError(f"Agent {agent.name!r}: instructions cannot be stored: they are {beyond}")
    if text != state.instructions or changes is not None:
        record(e.InstructionsSet(text, changes))


def _check_kind_of_worker(state: TaskState, agent: Agent[Any]) -> None:
    """Raise `VersionRefused` if a task has steps that this agent's worker could not go on from."""
    runs_functions = agent.function_worker is not None
    has_functions = state.graph is not None
    if runs_functions != has_functions and (has_functions or state.steps or state.step is not None):
        theirs, ours = ("are", "does not run") if has_functions else ("are not", "runs")
        message = (
            f"task {state.task_id}: its steps {theirs} functions, and the worker of agent {agent.name!r} {ours} such; "
            "go on with the agent it began with, or begin a new task in its thread"
        )
        raise VersionRefused(message, task_id=state.task_id)
