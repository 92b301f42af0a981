"""Check and record the version and the instructions of the agent that a task goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from treadle.engine.user_errors import kept
from treadle.engine.vault import Vault
from treadle.errors import VersionRefused


def check_version(state: TaskState, agent: Agent[Any], options: RunOptions) -> bool:
    """Return whether an agent's version differs from the task's; nothing is recorded.

    Args:
        state: the state of the task.
        agent: the agent for the task.
        options: the task's options.

    Raises:
        VersionRefused: the options refuse another version, or its worker cannot continue the task's steps.
    """
    if not state.fingerprint or state.fingerprint == agent.fingerprint:
        return False
    if options.on_version_change == "refuse":
        message = (
            f"task {state.task_id} began with version {state.fingerprint} of agent {agent.name!r} and this is "
            f"version {agent.fingerprint}; its options have on_version_change='refuse'"
        )
        raise VersionRefused(message, task_id=state.task_id)
    _check_kind_of_worker(state, agent)
    return True


async def record_agent(
    owned: OwnedTask, agent: Agent[Any], context: Any, options: RunOptions, vault: Vault
) -> e.Failure | None:
    """Record the agent's version and instructions if they differ from those of the task.

    Returns the failure of the instructions function, if any. Then nothing is recorded, and it is called again later.
    """
    state, record = owned.state, owned.writer.record
    changed = check_version(state, agent, options)
    instructions = agent.instructions
    event: e.InstructionsSet | None = None
    if state.instructions is None or changed:
        if not isinstance(instructions, str):
            called = await _instructions_of(instructions, state, agent, context, vault)
            if isinstance(called, e.Failure):
                return called
            event = called
        elif (instructions or state.instructions is not None) and instructions != state.instructions:
            event = e.InstructionsSet(str(instructions))
    if changed:
        record(e.VersionChanged(agent.fingerprint, state.fingerprint))
    if event is not None:
        record(event)
    return None


async def _instructions_of(
    function: Callable[[RunContext[Any]], Any],
    state: TaskState,
    agent: Agent[Any],
    context: Any,
    vault: Vault,
) -> e.InstructionsSet | e.Failure | None:
    """Return the instructions of a task, or their failure; None if they have not changed."""
    access = StateAccess(state, state.seq, f"the instructions of agent {agent.name!r}")
    ctx: RunContext[Any] = RunContext(
        state.task_id, state.thread, state.task_input, context, state=StateView(access)
    )
    try:
        text = function(ctx)
        if not isinstance(text, str) and isawaitable(text):
            text = await text
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _no_instructions(agent, "failed: it cancelled itself")
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001  an error of the user's code is the failure of the task
        trace = kept(error, state, vault, function=f"instructions= of {agent.name}")
        return _no_instructions(agent, f"failed: {vault.error_text(error)}", trace)
    changes = access.close()
    if not isinstance(text, str):
        return _no_instructions(agent, f"must return text, and returned {type(text).__name__!r}")
    if (flaw_text := flaw(text)) is not None:
        return _no_instructions(agent, f"returned a value that cannot be stored: {flaw_text}")
    return e.InstructionsSet(text, changes) if text != state.instructions or changes is not None else None


def _no_instructions(agent: Agent[Any], problem: str, traceback: str = "") -> e.Failure:
    return e.Failure(
        "agent", "instructions", f"the instructions function of {agent.name} {problem}", traceback=traceback
    )


def _check_kind_of_worker(state: TaskState, agent: Agent[Any]) -> None:
    """Raise `VersionRefused` if a task has steps that this agent's worker cannot continue."""
    runs_functions = agent.function_worker is not None
    has_functions = state.graph is not None
    if runs_functions != has_functions and (has_functions or state.steps or state.step is not None):
        are, runs = ("are", "does not run") if has_functions else ("are not", "runs")
        message = (
            f"task {state.task_id}: its steps {are} functions, and the worker of agent {agent.name!r} {runs} "
            "functions; use the agent that it began with, or begin a new task in its thread"
        )
        raise VersionRefused(message, task_id=state.task_id)
