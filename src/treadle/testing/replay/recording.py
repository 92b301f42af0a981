"""Recordings: a task as it stands in its journal, with what its agent was then, as one file.

{"treadle_recording":1,"task":"...","declaration":{...}}      what the agent was: null if it had changed since
{"treadle_export":1,...}                                      and from here on, an export of the task
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.events import Event
from treadle.core.messages import Json, Message
from treadle.errors import ImportRefused
from treadle.runner.runner import TaskRunner
from treadle.testing.replay.journals import journal_of
from treadle.wiring import Runner

FORMAT: Final = 1


@frozen
class Recording:
    """A task to replay.

    Args:
        task_id: which task it was.
        events: all its events.
        history: the words its thread held before it.
        declaration: what its agent was, as `declaration` returns it; None if that is not known.
    """

    task_id: str
    events: tuple[Event, ...]
    history: tuple[Message, ...] = ()
    declaration: dict[str, Any] | None = None


def declaration(agent: Agent[Any]) -> dict[str, Any]:
    """Return what of an agent is in its requests or decides what follows from answers, as JSON data."""
    spoken = agent.dialect or agent.custom_worker
    settings = agent.model_settings
    return {
        "fingerprint": agent.fingerprint,
        "model": agent.model_name,
        "instructions": agent.instructions if isinstance(agent.instructions, str) else None,
        "worker": _plain(str(agent.worker) if spoken is None else spoken.facts()),
        "output": None if agent.typed is None else _plain(agent.typed.schema),
        "settings": {
            name: _plain(value)
            for name in ("temperature", "max_tokens", "tool_choice", "parallel_tool_calls", "extra")
            if (value := getattr(settings, name))
        },
        "tools": {
            tool.spec.name: {
                "description": tool.spec.description,
                "parameters": _plain(tool.spec.parameters),
                "effect": tool.spec.effect,
                "return_direct": tool.spec.return_direct,
            }
            for tool in agent.tools
        },
    }


def _plain(value: Json) -> Json:
    return json.loads(json.dumps(value))


async def record(runner: TaskRunner, task_id: str, agent: Agent[Any] | None = None) -> Recording:
    """Return a task of a runner's store as a recording.

    Args:
        runner: where the task is.
        task_id: which.
        agent: its agent; kept with it if it is still the version that the task ran with, so that a replay can tell
            what of it changed.

    Raises:
        TaskNotFound: there is no such task.
        JournalCorrupt: its journal was changed, lost or cut.
    """
    events = await journal_of(runner.store, task_id)
    state = (await runner.driver.cache.load(task_id)).state
    known = agent is not None and agent.fingerprint == state.fingerprint
    return Recording(
        task_id,
        tuple(events),
        tuple(state.history),
        declaration(agent) if agent is not None and known else None,
    )


async def save(runner: TaskRunner, recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write a recording of a task of this runner as a file, for its owner only."""
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="treadle-record-") as folder:
        exported = Path(folder) / "task.jsonl"
        await runner.export_tasks(exported, recording.task_id)
        head = {"treadle_recording": FORMAT, "task": recording.task_id, "declaration": recording.declaration}
        with os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
            out.write(json.dumps(head, sort_keys=True).encode() + b"\n" + exported.read_bytes())


async def load(path: str | os.PathLike[str]) -> Recording:
    """Return the recording in a file; nothing in it is run.

    Raises:
        ImportRefused: it is no recording, or was cut or changed.
    """
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123  a file of a test, read once
        head, exported = file.readline(), file.read()
    try:
        known: Any = json.loads(head)
        task_id, declared = known["task"], known["declaration"]
        version = known["treadle_recording"]
    except (ValueError, TypeError, KeyError):
        told = f"{path} is no recording: `treadle replay TASK --out FOLDER` makes one"
        raise ImportRefused(told, line=1) from None
    if version != FORMAT:
        told = f"{path}: this version reads recordings of format {FORMAT}, not {version!r}"
        raise ImportRefused(told, line=1)
    with tempfile.TemporaryDirectory(prefix="treadle-replay-") as folder:
        file = Path(folder) / "task.jsonl"
        file.write_bytes(exported)
        async with Runner("memory:") as runner:
            await runner.import_tasks(file)
            found = await record(runner, task_id)
    return Recording(task_id, found.events, found.history, declared)
