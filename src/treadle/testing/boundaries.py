"""Crashing an agent at every boundary: what `kill -9` does to a task at each place it passes, and what must still hold.

    report = crash_at_every_boundary("shop:agent", "How much is tea?")
    assert not report.broken, report

The agent runs once to learn its boundaries: before, inside and after each write, around each request to its model and
around each call of a tool. Then, for each of them, a process runs it and is killed there by SIGKILL, and others resume
the task to its end. Each task is audited by this process, which none of that can harm, and has to end as the first did.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.events import END_STATES
from treadle.core.tools import Happened, NotHappened
from treadle.errors import MissingExtra, TaskNotFound
from treadle.llm.scripted import ScriptedModel, call, text
from treadle.ports import JournalStore
from treadle.runner.results import RunResult
from treadle.runner.runner import TaskRunner
from treadle.testing.audit import Acknowledged, Evidence, LedgerEntry, Stream, audit_store
from treadle.testing.crash import Crash, CrashingStore, places_in
from treadle.testing.forks import KILLED, ForkServer, output_of
from treadle.testing.ledger import Ledger
from treadle.testing.watched import ILL_FORMED, watched
from treadle.wiring import Runner, open_store

PATIENCE: Final = 30
"""How many processes one task may take."""

TRIES: Final = 3
"""How many tasks are to come to one boundary: which calls had begun when another was killed may differ."""

SHOWN: Final = "shown"
"""The name of the note that a process was shown an event."""

Script: TypeAlias = Callable[[TaskRunner, Agent[Any], str], Coroutine[Any, Any, RunResult]]
"""What is done to a task, as `(runner, agent, task_id)`; entered anew after each kill, it has to look where it is."""


@mutable
class CrashReport:
    """What was tried and what was found.

    Args:
        answer: state and text the task ended with when nothing was killed.
        places: the boundaries, in the order they were first passed.
        hits: how often a process was killed at each.
        tasks: how many tasks were driven to their end.
        broken: every promise that did not hold, one line each; the task's name tells where it was killed.
    """

    answer: tuple[str, str] = ("", "")
    places: list[str] = field(default_factory=list[str])
    hits: Counter[str] = field(default_factory=Counter[str])
    tasks: int = 0
    broken: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """The boundaries where nothing was killed."""
        return [place for place in self.places if not self.hits[place]]

    def __str__(self) -> str:
        kills = sum(self.hits.values())
        head = (
            f"{kills} kills at {len(self.places)} places in {self.tasks} tasks: {len(self.broken)} violations"
        )
        return "\n".join([head, *(f"{self.hits[place]:5}  {place}" for place in self.places), *self.broken])


def crash_at_every_boundary(
    agent: str,
    input: str,
    *,
    store: str | None = None,
    script: str | None = None,
    kills_per_task: int = 1,
    recovery: bool = True,
    only: Callable[[str], bool] = lambda _: True,
    cwd: str | os.PathLike[str] | None = None,
    env: dict[str, str] | None = None,
) -> CrashReport:
    """Kill a task of an agent at each of its boundaries, resume and audit it; return what was found.

    Args:
        agent: `module:name` of an agent; its model should be a script or answer alike each time.
        input: what it is asked.
        store: path or URL of the store to use, which the tasks stay in; by default a SQLite file that is deleted.
        script: `module:function`, a `Script`, to do more with the task than to run it to its end.
        kills_per_task: how many processes of one task are killed before it may end: more of them are sooner done.
        recovery: also kill at the boundaries that only a resumed task passes.
        only: tells by its name whether a boundary is to be killed at.
        cwd: working directory of the processes, also on their import path.
        env: what is added to their environment.

    Raises:
        RuntimeError: the task does not come to an end without any kill, or a process ended in another way.
    """
    # No kill of a process takes back what the system was given, so the files need no disk to survive on.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of our own in it
    with tempfile.TemporaryDirectory(prefix="treadle-crash-", dir=memory) as folder:
        place = Path(folder)
        life = Life(agent, input, store or str(place / "journal.db"), script)
        server = ForkServer(life.module, "treadle.testing.boundaries:warm_up", cwd=cwd)
        try:
            trials = _Trials(server, place, life, env or {}, kills_per_task, recovery, only)
            return asyncio.run(trials.run())
        finally:
            server.close()


# ------------------------------------------------------------------------------------- in the killed process


@mutable
class Life:
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
    crash = Crash(at, place / "places")
    ledger = Ledger(place / "ledger", crash, durable=False)  # no crash of a process takes back what it wrote
    runner = Runner(CrashingStore(open_store(store), crash))
    work: Script = named(script) if script else ToTheEnd(input, ledger)
    result = asyncio.run(_live(runner, watched(named(agent), ledger), task_id, ledger, work))
    (place / "answer").write_text(json.dumps([result.state, result.final_text]))
    return 0


def warm_up() -> None:
    """Load and build once what each life would otherwise by itself: the codec's functions, the store's modules."""

    async def rehearse() -> None:
        async with Runner("memory:") as runner:
            await runner.run(Agent(ScriptedModel([call("none"), text("done")])), "go")

    asyncio.run(rehearse())
    for module in ("treadle.stores.sqlite", "treadle.stores.postgres"):
        with suppress(ImportError, MissingExtra):
            import_module(module)


def named(path: str) -> Any:
    """Return what `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


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
            for pending in result.pending:
                await runner.settle(task_id, pending.request_id, self._verdict(task_id, pending.request_id))
            result = await runner.resume(task_id, agent=agent)
        return result

    def _verdict(self, task_id: str, call: str) -> Happened | NotHappened:
        done = self._ledger.done(f"{task_id}/{call}")
        return NotHappened() if done is None else Happened(json.loads(done.text))


# ----------------------------------------------------------------------------------- in the process that judges


@dataclass
class _Trials:
    """Runs tasks of which processes are killed, until each boundary was hit."""

    server: ForkServer
    folder: Path
    life: Life
    env: dict[str, str]
    kills_per_task: int
    recovery: bool
    only: Callable[[str], bool]
    report: CrashReport = field(default_factory=CrashReport)
    ways: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """where the processes before have to be killed, so that one comes to a boundary"""

    tried: Counter[str] = field(default_factory=Counter[str])
    killed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    series: str = field(default_factory=lambda: f"crash-{uuid4().hex[:8]}")

    async def run(self) -> CrashReport:
        store = open_store(self.life.store)
        await store.open()
        try:
            self._rehearse()
            while missed := [place for place in self.report.missed if self.tried[place] < TRIES]:
                await self._trial(store, missed)
            await self._judge(store)
        finally:
            await store.close()
        return self.report

    def _rehearse(self) -> None:
        task = self._new_task()
        status = self._one_life(task, ())
        if status != 0:
            raise RuntimeError(f"without any kill the task ended with {status}: {_said(task)}")
        self.report.answer = _answer(task)
        self.report.places = list(filter(self.only, dict.fromkeys(places_in(task / "places")[0])))

    def _new_task(self) -> Path:
        """Make the folder of a task, which is named like it."""
        self.report.tasks += 1
        task = self.folder / f"{self.series}-{self.report.tasks:03}"
        task.mkdir()
        return task

    def _one_life(self, task: Path, at: Iterable[str]) -> int:
        (task / "places").unlink(missing_ok=True)
        life = self.life
        args = (str(task), task.name, sorted(at), life.agent, life.input, life.store, life.script or "")
        return self.server.run("treadle.testing.boundaries:live", *args, output=task / "output", env=self.env)

    async def _trial(self, store: JournalStore, missed: list[str]) -> None:
        """Drive one task to its end; its first processes are killed, the last of them where none was before."""
        goal = missed[0]
        self.tried[goal] += 1
        way = self.ways.get(goal, ())
        task, killed = self._new_task(), list[str]()
        for _ in range(PATIENCE):
            at = {*way[len(killed) : len(killed) + 1]}
            if len(killed) < len(way) + self.kills_per_task:
                at |= {goal} if self.kills_per_task == 1 else {*self.report.missed}
            status = self._one_life(task, at)
            passed, here = places_in(task / "places")
            if killed:
                self._learn(passed, tuple(killed))
            if status == 0:
                if _answer(task) != self.report.answer:
                    said = f"{_answer(task)}, not {self.report.answer}"
                    self.report.broken.append(f"{task.name}: killed at {killed} it ended with {said}")
                self.killed[task.name] = killed
                return
            if status != KILLED or not here:
                raise RuntimeError(f"killed at {killed}, then a process ended with {status}: {_said(task)}")
            self.report.hits.update(here)
            killed.append(here[0])
            await self._remember(store, task.name)
        raise RuntimeError(f"killed at {killed}, the task is not at its end after {PATIENCE} processes")

    def _learn(self, passed: list[str], way: tuple[str, ...]) -> None:
        """Take up the boundaries that only a resumed task passes, once each."""
        known = {*self.report.places}
        for place in passed if self.recovery else ():
            if place not in known and " #" not in place and self.only(place):
                known.add(place)
                self.report.places.append(place)
                self.ways[place] = way

    async def _remember(self, store: JournalStore, task_id: str) -> None:
        """Keep what a killed process left, to see that it stays."""
        try:
            row = await store.row(task_id)
            records = await store.read(task_id)
        except TaskNotFound:
            return
        self.before[task_id] = row, [(record.seq, record.digest) for record in records]

    async def _judge(self, store: JournalStore) -> None:
        """Audit all tasks together."""
        streams: list[Stream] = []
        told: list[Acknowledged] = []
        ledger: list[LedgerEntry] = []
        tasks = sorted(self.folder.glob(f"{self.series}-*"))
        for task in tasks:
            kept = Ledger(task / "ledger")
            ledger += kept.for_audit()
            for seen in shown(kept).values():
                streams.append(Stream(task.name, seen))
                told += [Acknowledged(task.name, kind, seq) for seq, kind in seen]
            self.report.broken += [
                f"I5 well_formed: {task.name}, {note.call}: {note.text}"
                for note in kept.entries()
                if note.tool == ILL_FORMED
            ]
        names = [task.name for task in tasks]
        evidence = Evidence(
            ledger=ledger, acknowledged=told, streams=streams, before=self.before, touched=names, ended=True
        )
        for one in await audit_store(store, evidence):
            if one.task in names:
                self.report.broken.append(f"{one} (killed at {self.killed.get(one.task)})")


def shown(ledger: Ledger) -> dict[str, list[tuple[int, str]]]:
    """Return the events each process was shown of its task, in order."""
    lives: dict[str, list[tuple[int, str]]] = {}
    for note in ledger.entries():
        if note.tool == SHOWN:
            seq, _, kind = note.text.partition(" ")
            lives.setdefault(note.call, []).append((int(seq), kind))
    return lives


def _answer(task: Path) -> tuple[str, str]:
    state, text = json.loads((task / "answer").read_text())
    return state, text


def _said(task: Path) -> str:
    return output_of(task / "output")
