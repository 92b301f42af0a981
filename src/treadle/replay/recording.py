"""Recordings: the journal of a task with the declaration of its agent, as one file.

{"treadle_recording":1,"task":"...","declaration":{...}}      the agent; null if it has changed since the task ran
{"treadle_export":1,...}                                      the lines of an export of the task

The comparison of two journals ignores fields that differ between any two tasks.

The events are the same for a stepped or a free run, with or without a crash and resume, on any store. The fields that
may differ are listed here, and all others are compared. Epochs, digests and record boundaries are not part of an event,
so they are never compared.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from treadle.agents.agent import Agent
from treadle.core.data import frozen
from treadle.core.events import Event
from treadle.core.journal import events_with_epochs
from treadle.core.messages import Json, Message
from treadle.errors import ImportRefused
from treadle.ports import JournalStore
from treadle.runner.runner import TaskRunner
from treadle.runner.verbs import awaited
from treadle.runner.views import driver_of
from treadle.wiring import Runner

IGNORED: Final[dict[str, str]] = {
    "time": "when an event happened",
    "thread": "the id of the thread",
    "parent": "the id of the task that another was forked from, or is a child of",
    "incarnation": "distinguishes successive tasks of one id",
    "frame_key": "the key of the nonces of frames around untrusted content",
    "inbox": "the id that the sender of a command chose",
}
"""The fields that are not compared, with descriptions."""


async def journal_of(store: JournalStore, task_id: str) -> list[Event]:
    """Return all events of a task, verified.

    Args:
        store: the store of the task's journal, such as `runner.store`.
        task_id: the task.

    Raises:
        TaskNotFound: there is no such task.
        JournalCorrupt: a record was changed, lost or cut.
    """
    await store.open()
    records = await store.read(task_id)
    return [event for _, event in events_with_epochs(task_id, records)]


def first_difference(a: Sequence[Event], b: Sequence[Event]) -> str | None:
    """Return the first difference of two journals, or None if they are equal.

    Args:
        a: the events of one task, in order.
        b: the events of another task.
    """
    for number, (event, other) in enumerate(zip(a, b, strict=False), 1):
        if event.kind != other.kind:
            return f"event {number}: {event.kind} in one, {other.kind} in the other"
        other_facts = facts(other)
        for name, value in facts(event).items():
            if value != other_facts[name]:
                difference = f"{name} is {value!r} in one, {other_facts[name]!r} in the other"
                return f"event {number} ({event.kind}): {difference}"
    if len(a) != len(b):
        longer = a if len(a) > len(b) else b
        number = min(len(a), len(b)) + 1
        return f"event {number}: {longer[number - 1].kind} in one, nothing in the other"
    return None


def assert_same_journal(a: Sequence[Event], b: Sequence[Event]) -> None:
    """Raise `AssertionError` with the first difference, unless two journals are equal."""
    difference = first_difference(a, b)
    if difference is not None:
        raise AssertionError(difference)


def facts(event: Event) -> dict[str, Any]:
    """Return the compared fields of an event: all but those in `IGNORED`."""
    return {item.name: getattr(event, item.name) for item in fields(event) if item.name not in IGNORED}


FORMAT: Final = 1


@frozen
class Recording:
    """A task to replay.

    Args:
        task_id: the id of the task.
        events: all its events.
        history: the messages of its thread before it.
        declaration: its agent as `declaration` describes it. None: unknown.
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
        agent: its agent. The recording describes it if its version is still that of the task, so that a replay can
            report changes.

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
