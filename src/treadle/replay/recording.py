"""Recordings: a task's journal with the declaration of its agent, as one file.

{"treadle_recording":1,"task":"...","declaration":{...}}      the agent; null if it has changed since the task ran
{"treadle_export":1,...}                                      the lines of an export of the task
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.events import Event
from treadle.core.messages import Json, Message
from treadle.errors import ImportRefused
from treadle.replay.journals import journal_of
from treadle.runner.runner import TaskRunner
from treadle.runner.verbs import awaited
from treadle.runner.views import driver_of
from treadle.wiring import Runner

FORMAT: Final = 1


@frozen
class Recording:
    """A task to replay.

    Args:
        task_id: the id of the task.
        events: all its events.
        history: the messages of its thread before it.
        declaration: its agent as `declaration` describes it; None if unknown.
    """

    task_id: str
    events: tuple[Event, ...]
    history: tuple[Message, ...] = ()
    declaration: dict[str, Any] | None = None


def declaration(agent: Agent[Any]) -> dict[str, Any]:
    """Return the parts of an agent that shape its requests or its decisions after an answer, as JSON data."""
    declared = agent.dialect or agent.custom_worker
    settings = agent.model_settings
    return {
        "fingerprint": agent.fingerprint,
        "model": agent.model_name,
        "instructions": agent.instructions if isinstance(agent.instructions, str) else None,
        "worker": _plain(str(agent.worker) if declared is None else declared.facts()),
        "output": None if agent.typed is None else _plain(agent.typed.schema),
        "settings": {
            name: _plain(value)
            for name in ("temperature", "max_tokens", "tool_choice", "parallel_tool_calls", "cache", "extra")
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


@awaited
async def record(runner: TaskRunner, task_id: str, agent: Agent[Any] | None = None) -> Recording:
    """Return a task of a runner's store as a recording.

    Args:
        runner: a runner on the task's store.
        task_id: the task.
        agent: its agent; described in the recording if it is still the version that the task ran with, so that a replay
            can report changes.

    Raises:
        TaskNotFound: there is no such task.
        JournalCorrupt: its journal was changed, lost or cut.
    """
    events = await journal_of(runner.store, task_id)
    state = (await driver_of(runner).cache.load(task_id)).state
    first = state.versions.get(state.created_for)
    version = state.fingerprint if first is None or state.agent == state.created_for else first.fingerprint
    is_same = agent is not None and agent.fingerprint == version
    declared = declaration(agent) if agent is not None and is_same else None
    return Recording(task_id, tuple(events), tuple(state.history), declared)


@awaited
async def save(runner: TaskRunner, recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write a recording of a task of this runner to a file that only its owner can read."""
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="treadle-record-") as folder:
        exported = Path(folder) / "task.jsonl"
        await runner.export_tasks(exported, recording.task_id)
        head = {"treadle_recording": FORMAT, "task": recording.task_id, "declaration": recording.declaration}
        with os.fdopen(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as out:
            out.write(json.dumps(head, sort_keys=True).encode() + b"\n" + exported.read_bytes())


@awaited
async def load(path: str | os.PathLike[str]) -> Recording:
    """Return the recording in a file, without running any of it.

    Raises:
        ImportRefused: the file is not a recording, or was cut or changed.
    """
    with open(path, "rb") as file:  # noqa: ASYNC230, PTH123  a file of a test, read once
        head, exported = file.readline(), file.read()
    try:
        fields: Any = json.loads(head)
        task_id, declared = fields["task"], fields["declaration"]
        version = fields["treadle_recording"]
    except (ValueError, TypeError, KeyError):
        message = f"{path} is no recording: `treadle replay TASK --out FOLDER` makes one"
        raise ImportRefused(message, line=1) from None
    if version != FORMAT:
        message = f"{path}: this version reads recordings of format {FORMAT}, not {version!r}"
        raise ImportRefused(message, line=1)
    with tempfile.TemporaryDirectory(prefix="treadle-replay-") as folder:
        file = Path(folder) / "task.jsonl"
        file.write_bytes(exported)
        async with Runner("memory:") as runner:
            await runner.import_tasks(file)
            recording = await record(runner, task_id)
    return replace(recording, declaration=declared)
