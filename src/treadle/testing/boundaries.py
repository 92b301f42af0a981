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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

from treadle.core.data import mutable
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.ports import JournalStore
from treadle.testing.audit import Acknowledged, Evidence, LedgerEntry, Stream, audit_store
from treadle.testing.crash import places_in
from treadle.testing.crash.child import NOT_THERE, PATIENCE, SHOWN, CrashChild
from treadle.testing.crash.fork_server import KILLED, ForkServer, output_of
from treadle.testing.crash.instrumented import ILL_FORMED
from treadle.testing.ledger import Ledger
from treadle.wiring import open_store

TRIES: Final = 8
"""How many tasks may come to no new boundary on the way to one: what had begun when another was killed may differ."""

Way: TypeAlias = tuple[str, ...]
"""Where the processes of a task were killed, one after the other."""


@mutable
class CrashReport:
    """What was tried and what was found.

    Args:
        answer: state and text the task ended with when nothing was killed.
        places: the boundaries, in the order they were first passed.
        hits: how often a process was killed at each; what one transaction writes has its boundaries together.
        kills: how many processes were killed.
        tasks: how many tasks were driven to their end.
        broken: every promise that did not hold, one line each; the task's name tells where it was killed.
    """

    answer: tuple[str, str] = ("", "")
    places: list[str] = field(default_factory=list[str])
    hits: Counter[str] = field(default_factory=Counter[str])
    kills: int = 0
    tasks: int = 0
    broken: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """The boundaries where nothing was killed."""
        return [place for place in self.places if not self.hits[place]]

    def __str__(self) -> str:
        return "\n".join(
            [self.head, *(f"{self.hits[place]:5}  {place}" for place in self.places), *self.broken]
        )

    @property
    def head(self) -> str:
        """All counts in one line."""
        at = f"{self.tasks} tasks, {self.kills} kills at {len(self.places)} places"
        return f"{at}, {len(self.missed)} never hit, {len(self.broken)} violations"


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
        ConfigurationError: what `agent` or `script` names is not there, or is something else.
        RuntimeError: the task does not come to an end without any kill, or a process ended in another way.
    """
    for place in filter(None, (agent, script)):
        if not all(place.partition(":")):
            raise ConfigurationError(f"{place!r} does not say where it is: write module:name")
    # No kill of a process takes back what the system was given, so the files need no disk to survive on.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of our own in it
    with tempfile.TemporaryDirectory(prefix="treadle-crash-", dir=memory) as folder:
        place = Path(folder)
        life = CrashChild(agent, input, store or str(place / "journal.db"), script)
        on_server = open_store(life.store).url.startswith("postgresql")
        driver = "treadle.testing.crash.postgres" if on_server else "treadle.stores.sqlite.store"
        server = ForkServer(life.module, driver, "treadle.testing.crash.child:warm_up", cwd=cwd)
        try:
            trials = _Trials(server, place, life, env or {}, kills_per_task, recovery, only)
            return asyncio.run(trials.run())
        finally:
            server.close()


# ----------------------------------------------------------------------------------- in the process that judges


@dataclass
class _Trials:
    """Runs tasks of which processes are killed, until each boundary was hit."""

    server: ForkServer
    folder: Path
    life: CrashChild
    env: dict[str, str]
    kills_per_task: int
    recovery: bool
    only: Callable[[str], bool]
    report: CrashReport = field(default_factory=CrashReport)
    ways: dict[str, Counter[Way]] = field(default_factory=dict[str, Counter[Way]])
    """how often a process came to a boundary that only a resumed task passes, by the kills before"""

    tried: Counter[str] = field(default_factory=Counter[str])
    """how often nothing was killed anew on the way to a boundary"""

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
        if status == NOT_THERE:
            raise ConfigurationError(_said(task))
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
        return self.server.run(
            "treadle.testing.crash.child:live", *args, output=task / "output", env=self.env
        )

    async def _trial(self, store: JournalStore, missed: list[str]) -> None:
        """Drive one task to its end; its first processes are killed, the last of them where none was before."""
        goal = missed[0]
        way = self._way(goal)
        task, killed = self._new_task(), list[str]()
        for _ in range(PATIENCE):
            at = {*way[len(killed) : len(killed) + 1]}
            if len(killed) < len(way) + self.kills_per_task:
                at |= self._wanted(goal)
            status = self._one_life(task, at)
            passed, here = places_in(task / "places")
            if killed:
                self._learn(passed, tuple(killed))
            if status == 0:
                if _answer(task) != self.report.answer:
                    said = f"{_answer(task)}, not {self.report.answer}"
                    self.report.broken.append(f"{task.name}: killed at {killed} it ended with {said}")
                self.killed[task.name] = killed
                if {*self.report.missed} >= {*missed}:
                    self.tried[goal] += 1
                return
            if status != KILLED or not here:
                raise RuntimeError(f"killed at {killed}, then a process ended with {status}: {_said(task)}")
            self.report.hits.update(here)
            self.report.kills += 1
            killed.append(here[0])
            await self._remember(store, task.name)
        raise RuntimeError(f"killed at {killed}, the task is not at its end after {PATIENCE} processes")

    def _way(self, goal: str) -> Way:
        """Return where the processes before have to be killed, so that one comes to a boundary; try them in turn."""
        ways = [way for way, _ in self.ways.get(goal, Counter()).most_common()]
        return ways[self.tried[goal] % len(ways)] if ways else ()

    def _wanted(self, goal: str) -> set[str]:
        """Return where a process is to be killed that may be killed anywhere new."""
        if self.kills_per_task > 1:
            return {*self.report.missed}
        # Which boundary a resumed task comes to may differ from time to time: any new one will do.
        return {place for place in self.report.missed if place in self.ways} if goal in self.ways else {goal}

    def _learn(self, passed: list[str], way: Way) -> None:
        """Take up the boundaries that only a resumed task passes, once each, and how to come to them."""
        known = {*self.report.places}
        for place in passed if self.recovery else ():
            if place not in known and " #" not in place and self.only(place):
                known.add(place)
                self.report.places.append(place)
                self.ways[place] = Counter()
            if place in self.ways:
                self.ways[place][way] += 1

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
            if one.task in names or one.task.startswith(tuple(f"{name}." for name in names)):
                self.report.broken.append(f"{one} (killed at {self.killed.get(one.task.partition('.')[0])})")


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
