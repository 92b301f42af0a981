"""One life of a task whose agent is crashed: a process that drives it to its end, or to the place to die at."""

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
from treadle.engine.results import RunResult
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.llm.scripted import ScriptedModel, call, text
from treadle.runner.runner import TaskRunner
from treadle.testing.crash.fault_points import Crash, CrashingStore
from treadle.testing.crash.instrumented import watched
from treadle.testing.ledger import Ledger
from treadle.wiring import Runner, open_store

PATIENCE: Final = 30
"""How many processes one task may take."""

NOT_THERE: Final = 78
"""The exit status of a process that was not told what to do."""

SHOWN: Final = "shown"
"""The name of the note that a process was shown an event."""

Script: TypeAlias = Callable[[TaskRunner, Agent[Any], str], Coroutine[Any, Any, RunResult]]
"""What is done to a task, as `(runner, agent, task_id)`; entered anew after each kill, it has to look where it is."""


@mutable
class CrashChild:
    """What a process is to do with a task."""

    agent: str
    input: str
    store: str
    script: str | None = None

    @property
    def module(self) -> str:
        """The module that holds the agent."""
        return self.agent.partition(":")[0]


def live(
    folder: str, task_id: str, at: Sequence[str], agent: str, input: str, store: str, script: str
) -> int:
    """Be one life of a task: drive it from where it stands to its end, or to the place to die at."""
    place = Path(folder)
    try:
        subject = _agent(agent)
        doing: Script | None = _named(script) if script else None
    except ConfigurationError as error:
        sys.stderr.write(str(error))
        return NOT_THERE
    crash = Crash(at, place / "places")
    ledger = Ledger(place / "ledger", crash, durable=False)  # no crash of a process takes back what it wrote
    runner = Runner(CrashingStore(open_store(store), crash))
    work = doing or ToTheEnd(input, ledger)
    result = asyncio.run(_live(runner, watched(subject, ledger), task_id, ledger, work))
    (place / "answer").write_text(json.dumps([result.state, result.final_text]))
    return 0


def warm_up() -> None:
    """Build once what each life would otherwise by itself: the codec's functions."""

    async def rehearse() -> None:
        async with Runner("memory:") as runner:
            await runner.run(Agent(ScriptedModel([call("none"), text("done")])), "go")

    asyncio.run(rehearse())


def _agent(path: str) -> Agent[Any]:
    named = _named(path)
    if not isinstance(named, Agent):
        raise ConfigurationError(f"{path} is no Agent, but {named!r}")
    return cast("Agent[Any]", named)


def _named(path: str) -> Any:
    """Return what `module:name` names."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{path} is not there: {error}") from error


async def _live(runner: Runner, agent: Agent[Any], task_id: str, ledger: Ledger, work: Script) -> RunResult:
    async with runner:
        told = asyncio.create_task(_take_down(runner, task_id, ledger))
        try:
            return await work(runner, agent, task_id)
        finally:
            await asyncio.sleep(0)
            told.cancel()
            await asyncio.wait([told])


async def _take_down(runner: Runner, task_id: str, ledger: Ledger) -> None:
    """Write down every event this process is shown, as soon as it is."""
    life, seen = str(os.getpid()), 0
    while True:
        with suppress(TaskNotFound):
            async for event in runner.handle(task_id).events(after=seen, deltas=False):
                if isinstance(event, e.Event):
                    ledger.note(SHOWN, f"{event.seq} {event.kind}", call=life)
                    seen = event.seq
        await asyncio.sleep(0.005)


class ToTheEnd:
    """Runs a task to its end, settling what a kill left open as the ledger says."""

    def __init__(self, input: str, ledger: Ledger) -> None:
        self._input = input
        self._ledger = ledger

    async def __call__(self, runner: TaskRunner, agent: Agent[Any], task_id: str) -> RunResult:
        result = await runner.run(agent, self._input, task_id=task_id, thread_id=f"thread of {task_id}")
        for _ in range(PATIENCE):
            if result.state in END_STATES:
                break
            await self._settle(runner, result)
            result = await runner.resume(task_id, agent=agent)
        return result

    async def _settle(self, runner: TaskRunner, result: RunResult) -> None:
        """Settle what a task waits for, or what a child of it does."""
        for pending in result.pending:
            if pending.kind == "subagent":
                await self._settle(runner, await runner.result(pending.request_id))
            elif pending.kind == "settlement":
                verdict = self._verdict(pending.idempotency_key)
                await runner.settle(result.task_id, pending.request_id, verdict)

    def _verdict(self, key: str | None) -> Happened | NotHappened:
        done = self._ledger.done(key) if key is not None else None
        return NotHappened() if done is None else Happened(json.loads(done.text))
