"""The process that drives a task to its end or until it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.events import END_STATES
from treadle.core.tools import Happened, NotHappened
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.llm.scripted import ScriptedModel, call, text
from treadle.results.run_result import RunResult
from treadle.runner.runner import TaskRunner
from treadle.testing.crash.fault_points import Crash, CrashingStore
from treadle.testing.crash.instrumented import TICKET, watched
from treadle.testing.ledger import Ledger
from treadle.wiring import Runner, open_store

MAX_PROCESSES: Final = 30
"""Maximum number of processes that may drive one task before it must have ended."""

NOT_FOUND: Final = 78
"""The exit status of a process whose agent or script cannot be imported."""

SHOWN: Final = "shown"
"""The name of the note that a process received an event."""

Script: TypeAlias = Callable[[TaskRunner, Agent[Any], str], Coroutine[Any, Any, RunResult]]
"""A function of `(runner, agent, task_id)` that drives a task; it runs again after each kill and reads the state."""


@mutable
class CrashChild:
    """The work of a process on a task.

    Args:
        agent: `module:name` of the agent.
        input: the first message of the task.
        store: URL of the store.
        script: `module:function` of a `Script`; None to run the task to its end.
    """

    agent: str
    input: str
    store: str
    script: str | None = None

    @property
    def module(self) -> str:
        """The module of the agent."""
        return self.agent.partition(":")[0]


def drive(
    folder: str, task_id: str, at: Sequence[str], agent: str, input: str, store: str, script: str
) -> int:
    """Drive a task from its current state to its end, or until this process is killed.

    Args:
        folder: receives the files `places` with the passed places, `ledger`, and `answer` with the task's state and
            answer.
        task_id: the task.
        at: the places at which to be killed.
        agent: as in `CrashChild`.
        input: as in `CrashChild`.
        store: as in `CrashChild`.
        script: as in `CrashChild`; empty to run the task to its end.
    """
    path = Path(folder)
    try:
        subject = _imported(agent)
        if not isinstance(subject, Agent):
            raise ConfigurationError(f"{agent} is no Agent, but {subject!r}")
        function: Script | None = _imported(script) if script else None
    except ConfigurationError as error:
        sys.stderr.write(str(error))
        return NOT_FOUND
    crash = Crash(at, path / "places")
    ledger = Ledger(path / "ledger", crash, durable=False)  # a crash of a process does not lose its writes
    runner = Runner(CrashingStore(open_store(store), crash))
    instrumented = watched(cast("Agent[Any]", subject), ledger)
    work = function or RunToEnd(input, ledger)
    result = asyncio.run(_drive(runner, instrumented, task_id, ledger, work))
    (path / "answer").write_text(json.dumps([result.state, result.final_text]))
    return 0


def warm_up() -> None:
    """Build the codec's functions before the server forks."""

    async def rehearse() -> None:
        async with Runner("memory:") as runner:
            await runner.run(Agent(ScriptedModel([call("none"), text("done")])), "go")

    asyncio.run(rehearse())


def _imported(path: str) -> Any:
    """Return the object that `module:name` names."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{path} is not there: {error}") from error


async def _drive(runner: Runner, agent: Agent[Any], task_id: str, ledger: Ledger, work: Script) -> RunResult:
    async with runner:
        watcher = asyncio.create_task(_note_shown_events(runner, task_id, ledger))
        try:
            return await work(runner, agent, task_id)
        finally:
            await asyncio.sleep(0)
            watcher.cancel()
            await asyncio.wait([watcher])


async def _note_shown_events(runner: Runner, task_id: str, ledger: Ledger) -> None:
    """Write each event that this process receives to the ledger at once."""
    pid, last_seen = str(os.getpid()), 0
    while True:
        with suppress(TaskNotFound):
            async for event in runner.handle(task_id).events(after=last_seen, deltas=False):
                if isinstance(event, e.Event):
                    ledger.note(SHOWN, f"{event.seq} {event.kind}", call=pid)
                    last_seen = event.seq
        await asyncio.sleep(0.005)


def shown_events(ledger: Ledger) -> dict[str, list[tuple[int, str]]]:
    """Return number and kind of the events that each process received, in order, by process id."""
    events_by_process: dict[str, list[tuple[int, str]]] = {}
    for line in ledger.entries():
        if line.tool == SHOWN:
            seq, _, kind = line.text.partition(" ")
            events_by_process.setdefault(line.call, []).append((int(seq), kind))
    return events_by_process


class RunToEnd:
    """Runs a task to its end, approves its calls, and settles calls that a kill left open by the ledger.

    A question is answered with its default, or with `yes`. A background call is completed by its first ticket, as by a
    service that recognises its key.
    """

    def __init__(self, input: str, ledger: Ledger) -> None:
        self._input = input
        self._ledger = ledger

    async def __call__(self, runner: TaskRunner, agent: Agent[Any], task_id: str) -> RunResult:
        result = await runner.run(agent, self._input, task_id=task_id, thread_id=f"thread of {task_id}")
        for _ in range(MAX_PROCESSES):
            if result.state in END_STATES:
                break
            await self._settle(runner, result)
            result = await runner.resume(task_id, agent=agent)
        return result

    async def _settle(self, runner: TaskRunner, result: RunResult) -> None:
        """Settle, approve or answer the pending requests of a task and of its children."""
        for pending in result.pending:
            if pending.kind == "subagent":
                await self._settle(runner, await runner.result(pending.request_id))
            elif pending.kind == "settlement":
                verdict = self._verdict(pending.idempotency_key)
                await runner.settle(result.task_id, pending.request_id, verdict)
            elif pending.kind == "approval":
                await runner.approve(result.task_id, pending.request_id)
            elif pending.kind == "question":
                answer = pending.default if pending.has_default else "yes"
                await runner.answer(result.task_id, pending.request_id, value=answer)
            elif pending.kind == "background":
                await runner.complete(self._ticket(result.task_id, pending.request_id), "completed")

    def _ticket(self, task_id: str, call_id: str) -> str:
        lines = (line for line in self._ledger.entries() if (line.tool, line.task) == (TICKET, task_id))
        return next(line.text for line in lines if line.call == call_id)

    def _verdict(self, key: str | None) -> Happened | NotHappened:
        verdict = self._ledger.done(key) if key is not None else None
        return NotHappened() if verdict is None else Happened(json.loads(verdict.text))
