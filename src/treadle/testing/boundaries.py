"""Kill an agent's process at every boundary, resume the task, and audit it.

    report = crash_at_every_boundary("shop:agent", "How much is tea?")
    assert not report.broken, report

The agent runs once to learn its boundaries: before, inside and after each write, and around each model request and
tool call. Then, for each boundary, SIGKILL kills a process that runs the agent, and new processes resume the task to
its end. This process is never killed. It audits each task, and compares its result with that of the first task.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import uuid4

from treadle.core.data import mutable
from treadle.errors import ConfigurationError, TaskNotFound
from treadle.ports import JournalStore
from treadle.testing.audit import Acknowledged, Evidence, LedgerEntry, Stream, audit_store
from treadle.testing.audit.store import kept_of
from treadle.testing.crash import places_in
from treadle.testing.crash.child import MAX_PROCESSES, NOT_FOUND, CrashChild, shown_events
from treadle.testing.crash.fork_server import KILLED, ForkServer, output_of
from treadle.testing.crash.instrumented import ILL_FORMED
from treadle.testing.ledger import Ledger
from treadle.wiring import open_store

TRIES: Final = 8
"""Number of tasks after which a boundary counts as missed, since the order of parallel calls may differ."""

Kills: TypeAlias = tuple[str, ...]
"""The places at which the processes of a task were killed, in order."""


@mutable
class CrashReport:
    """The boundaries that were hit, and the promises that were broken.

    Args:
        answer: the task's state and text without a kill.
        places: the boundaries, in the order they were first passed.
        hits: the number of kills at each boundary; the writes of one transaction share their boundaries.
        kills: the number of killed processes.
        tasks: the number of tasks that were driven to their end.
        broken: each broken promise in one line, with the places at which its processes were killed.
    """

    answer: tuple[str, str] = ("", "")
    places: list[str] = field(default_factory=list[str])
    hits: Counter[str] = field(default_factory=Counter[str])
    kills: int = 0
    tasks: int = 0
    broken: list[str] = field(default_factory=list[str])

    @property
    def missed(self) -> list[str]:
        """The boundaries where no process was killed."""
        return [point for point in self.places if not self.hits[point]]

    def __str__(self) -> str:
        return "\n".join(
            [self.head, *(f"{self.hits[point]:5}  {point}" for point in self.places), *self.broken]
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
    """Kill a task of an agent at each of its boundaries, resume and audit it; return a report.

    Args:
        agent: `module:name` of an agent; its model should be a script, or answer equal requests equally.
        input: the message that each task begins with.
        store: path or URL of the store to use, in which the tasks stay; by default a SQLite file that is deleted.
        script: `module:function`, a `Script`, that does more with the task than to run it to its end.
        kills_per_task: the number of processes of one task that are killed before it may end; a higher number takes
            less time.
        recovery: also kill at the boundaries that only a resumed task passes.
        only: returns whether to kill at the boundary of a name.
        cwd: the working directory of the processes, also on their import path.
        env: variables added to their environment.

    Raises:
        ConfigurationError: `agent` or `script` cannot be imported, or is of another type.
        RuntimeError: the task does not end without kills, or a process ended in another way.
    """
    for name in filter(None, (agent, script)):
        if not all(name.partition(":")):
            raise ConfigurationError(f"{name!r} names no object of a module: write module:name")
    # A kill does not lose data that a process wrote to a file, so the files can be in memory.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  a folder of our own in it
    with tempfile.TemporaryDirectory(prefix="treadle-crash-", dir=memory) as folder:
        path = Path(folder)
        child = CrashChild(agent, input, store or str(path / "journal.db"), script)
        on_server = open_store(child.store).url.startswith("postgresql")
        driver = "treadle.testing.crash.postgres" if on_server else "treadle.stores.sqlite.store"
        server = ForkServer(child.module, driver, "treadle.testing.crash.child:warm_up", cwd=cwd)
        try:
            trials = _Trials(server, path, child, env or {}, kills_per_task, recovery, only)
            return asyncio.run(trials.run())
        finally:
            server.close()


# ------------------------------------------------------------------------------- in the process that audits


@dataclass
class _Trials:
    """Runs tasks whose processes are killed, until each boundary was hit."""

    server: ForkServer
    folder: Path
    child: CrashChild
    env: dict[str, str]
    kills_per_task: int
    recovery: bool
    only: Callable[[str], bool]
    report: CrashReport = field(default_factory=CrashReport)
    kills_before: dict[str, Counter[Kills]] = field(default_factory=dict[str, Counter[Kills]])
    """the kills after which a process reached each boundary that only a resumed task passes, with their counts"""

    tried: Counter[str] = field(default_factory=Counter[str])
    """number of tasks for each boundary that hit no new boundary"""

    killed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    series: str = field(default_factory=lambda: f"crash-{uuid4().hex[:8]}")

    async def run(self) -> CrashReport:
        store = open_store(self.child.store)
        await store.open()
        try:
            self._rehearse()
            while missed := [point for point in self.report.missed if self.tried[point] < TRIES]:
                await self._trial(store, missed)
            await self._audit(store)
        finally:
            await store.close()
        return self.report

    def _rehearse(self) -> None:
        task = self._new_task()
        status = self._run_process(task, ())
        if status == NOT_FOUND:
            raise ConfigurationError(output_of(task / "output"))
        if status != 0:
            raise RuntimeError(f"without any kill the task ended with {status}: {output_of(task / 'output')}")
        self.report.answer = _answer(task)
        self.report.places = list(filter(self.only, dict.fromkeys(places_in(task / "places")[0])))

    def _new_task(self) -> Path:
        """Create the folder of a task, named after its id."""
        self.report.tasks += 1
        task = self.folder / f"{self.series}-{self.report.tasks:03}"
        task.mkdir()
        return task

    def _run_process(self, task: Path, at: Iterable[str]) -> int:
        """Run a process that drives a task and is killed at the first of some places; return its exit status."""
        (task / "places").unlink(missing_ok=True)
        child = self.child
        args = (str(task), task.name, sorted(at), child.agent, child.input, child.store, child.script or "")
        return self.server.run(
            "treadle.testing.crash.child:drive", *args, output=task / "output", env=self.env
        )

    async def _trial(self, store: JournalStore, missed: list[str]) -> None:
        """Drive one task to its end; kill its first processes, the last of them at a new boundary."""
        goal = missed[0]
        first_kills = self._kills_to_reach(goal)
        task, killed = self._new_task(), list[str]()
        for _ in range(MAX_PROCESSES):
            at = {*first_kills[len(killed) : len(killed) + 1]}
            if len(killed) < len(first_kills) + self.kills_per_task:
                at |= self._targets(goal)
            status = self._run_process(task, at)
            passed, killed_at = places_in(task / "places")
            if killed:
                self._note_recovery(passed, tuple(killed))
            if status == 0:
                if (answer := _answer(task)) != self.report.answer:
                    text = f"killed at {killed} it ended with {answer}, not {self.report.answer}"
                    self.report.broken.append(f"{task.name}: {text}")
                self.killed[task.name] = killed
                if {*self.report.missed} >= {*missed}:
                    self.tried[goal] += 1
                return
            if status != KILLED or not killed_at:
                output = output_of(task / "output")
                text = f"killed at {killed}, then a process ended with {status}: {output}"
                if not killed:
                    raise RuntimeError(text)
                self.report.broken.append(f"{task.name}: {text}")
                self.killed[task.name] = killed
                self.tried[goal] += 1
                return
            self.report.hits.update(killed_at)
            self.report.kills += 1
            killed.append(killed_at[0])
            with suppress(TaskNotFound):
                row = await store.row(task.name)
                self.before[task.name] = kept_of(row, await store.read(task.name))
        raise RuntimeError(f"killed at {killed}, the task is not at its end after {MAX_PROCESSES} processes")

    def _kills_to_reach(self, goal: str) -> Kills:
        """Return earlier kills after which a process reached a boundary; alternatives are tried in turn."""
        kills = [earlier for earlier, _ in self.kills_before.get(goal, Counter()).most_common()]
        return kills[self.tried[goal] % len(kills)] if kills else ()

    def _targets(self, goal: str) -> set[str]:
        """Return the boundaries at which the next process may be killed."""
        missed = {*self.report.missed}
        if self.kills_per_task > 1:
            return missed
        # A resumed task may reach another boundary of the recovery each time, so any new one counts.
        return missed & self.kills_before.keys() if goal in self.kills_before else {goal}

    def _note_recovery(self, passed: list[str], kills: Kills) -> None:
        """Record the boundaries that only a resumed task passes, with the kills before them."""
        passed_points = {*self.report.places}
        for point in passed if self.recovery else ():
            if point not in passed_points and " #" not in point and self.only(point):
                passed_points.add(point)
                self.report.places.append(point)
                self.kills_before[point] = Counter()
            if point in self.kills_before:
                self.kills_before[point][kills] += 1

    async def _audit(self, store: JournalStore) -> None:
        """Audit all tasks together."""
        streams: list[Stream] = []
        acknowledged: list[Acknowledged] = []
        entries: list[LedgerEntry] = []
        tasks = sorted(self.folder.glob(f"{self.series}-*"))
        for task in tasks:
            ledger = Ledger(task / "ledger")
            entries += ledger.for_audit()
            for process_events in shown_events(ledger).values():
                streams.append(Stream(task.name, process_events))
                acknowledged += [Acknowledged(task.name, kind, seq) for seq, kind in process_events]
            self.report.broken += [
                f"I5 well_formed: {task.name}, {line.call}: {line.text}"
                for line in ledger.entries()
                if line.tool == ILL_FORMED
            ]
        names = [task.name for task in tasks]
        evidence = Evidence(
            ledger=entries,
            acknowledged=acknowledged,
            streams=streams,
            before=self.before,
            touched=names,
            ended=True,
        )
        for violation in await audit_store(store, evidence):
            task_id = violation.task.partition(".")[0]
            if task_id in names:
                self.report.broken.append(f"{violation} (killed at {self.killed.get(task_id)})")


def _answer(task: Path) -> tuple[str, str]:
    state, text = json.loads((task / "answer").read_text())
    return state, text
