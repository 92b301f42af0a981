"""Processes that are killed at any moment, in the middle of what a tool does elsewhere too: random histories of tasks.

    python -m tests.crash.random_kills [--host HOST]... [--store postgresql | URL] [--tasks N] [--seed N]

A boundary of the journal is no moment in which a server or a process of a tool is at work. So the processes of a task
are killed here after a random time, up to three of them, and then one brings it to its end. Then the audit has to find
nothing, the answer has to be the one of a task that was not killed, and the file of effects no writing call twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.crash import hosts
from tests.crash.hosts import AGENTS, repeated
from tests.crash.witness import PAUSES, VARIABLE
from treadle import Agent, RunResult
from treadle.core import events as e
from treadle.errors import TaskNotFound
from treadle.runner.runner import TaskRunner
from treadle.testing.audit import Acknowledged, Evidence, LedgerEntry, Stream, audit_store
from treadle.testing.audit.store import journal_of, kept_of
from treadle.testing.crash.child import shown_events
from treadle.testing.crash.fork_server import KILLED, ForkServer, output_of
from treadle.testing.ledger import Ledger
from treadle.testing.postgres import PostgresServer
from treadle.wiring import open_store

ROOT = Path(__file__).parents[2]
HOSTS = ("hosted", "served")
SCRIPT = "tests.crash.random_kills:script"
KILLS = 3
"""How many processes of a task may be killed."""

REHEARSALS = 2
"""Tasks that are not killed: the first one waits for the process that trials are forked from."""

PAUSE = 0.05
"""Seconds that a tool may take before its effect, and again after it."""


@dataclass
class Figures:
    """What was tried, and what was broken."""

    tasks: int = 0
    kills: int = 0
    stopped: Counter[str] = field(default_factory=Counter[str])
    """calls that a kill cut off, by the effect of their tool"""

    settled: int = 0
    effects: int = 0
    broken: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        stopped = ", ".join(f"{count} {effect}" for effect, count in sorted(self.stopped.items()))
        return (
            f"{self.tasks} tasks, {self.kills} kills, calls cut off: {stopped or 'none'}; {self.settled} unknown "
            f"outcomes settled, {self.effects} effects, {len(self.broken)} violations"
        )


async def script(runner: TaskRunner, agent: Agent[Any], task_id: str) -> RunResult:
    """Drive the golden task, as a process that is killed after KILL_AFTER seconds."""
    if seconds := float(os.environ["KILL_AFTER"]):
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return await hosts.script(runner, agent, task_id)


class Trials:
    """Tasks of one agent on one store.

    Args:
        host: where its tools run.
        url: of the store; None for a file.
        folder: for all files.
        seed: of the moments in which processes are killed.
    """

    def __init__(self, host: str, url: str | None, folder: Path, seed: int) -> None:
        self.agent, self.url, self.folder = AGENTS[host], url or str(folder / "journal.db"), folder
        self.chance = random.Random(seed)
        self.figures = Figures()
        self.series = f"random-{uuid4().hex[:8]}"
        self.before: dict[str, Any] = {}
        self.answer: Any = None
        self.seconds = 0.0

    async def run(self, tasks: int) -> Figures:
        """Drive some tasks to their end, and audit them."""
        driver = "treadle.testing.crash.postgres" if "://" in self.url else "treadle.stores.sqlite.store"
        modules = (self.agent.partition(":")[0], driver, "treadle.testing.crash.child:warm_up")
        server = ForkServer(*modules, cwd=ROOT)
        store = open_store(self.url)
        await store.open()
        try:
            for number in range(tasks + REHEARSALS):
                await self._trial(server, store, number)
            await self._audit(store)
        finally:
            await store.close()
            server.close()
        return self.figures

    async def _trial(self, server: ForkServer, store: Any, number: int) -> None:
        """Drive one task; the first ones are not killed, and tell how long they take and how they end."""
        task = self.folder / f"{self.series}-{number:04}"
        task.mkdir()
        self.figures.tasks += 1
        for process in range(100):
            limit = self.chance.uniform(0, self.seconds) if number >= REHEARSALS and process < KILLS else 0.0
            began = time.monotonic()
            env = {VARIABLE: str(self.folder / "effects"), PAUSES: str(PAUSE), "KILL_AFTER": str(limit)}
            args = (str(task), task.name, [], self.agent, "go", self.url, SCRIPT)
            status = server.run("treadle.testing.crash.child:drive", *args, output=task / "output", env=env)
            if status == 0:
                break
            if status != KILLED:
                self.figures.broken.append(f"{task.name}: ended with {status}: {output_of(task / 'output')}")
                return
            self.figures.kills += 1
            with suppress(TaskNotFound):
                row = await store.row(task.name)
                self.before[task.name] = kept_of(row, await store.read(task.name))
        else:
            self.figures.broken.append(f"{task.name}: it does not come to its end")
            return
        answer = json.loads((task / "answer").read_text())
        if number < REHEARSALS:
            self.answer, self.seconds = answer, time.monotonic() - began
        elif answer != self.answer:
            self.figures.broken.append(f"{task.name}: it ended with {answer}, not {self.answer}")

    async def _audit(self, store: Any) -> None:
        streams, acknowledged, entries = list[Stream](), list[Acknowledged](), list[LedgerEntry]()
        tasks = sorted(self.folder.glob(f"{self.series}-*"))
        for task in tasks:
            ledger = Ledger(task / "ledger")
            entries += ledger.for_audit()
            for shown in shown_events(ledger).values():
                streams.append(Stream(task.name, shown))
                acknowledged += [Acknowledged(task.name, kind, seq) for seq, kind in shown]
        names = [task.name for task in tasks]
        evidence = Evidence(
            ledger=entries,
            acknowledged=acknowledged,
            streams=streams,
            before=self.before,
            touched=names,
            ended=True,
        )
        figures, effects = self.figures, self.folder / "effects"
        figures.broken += [str(each) for each in await audit_store(store, evidence)]
        figures.broken += [f"happened twice: {line}" for line in repeated(effects)]
        lines = effects.read_text().splitlines()
        figures.effects = len(lines)
        keys = {line.split()[1] for line in lines}
        for name in names:
            await self._compare(store, name, keys)

    async def _compare(self, store: Any, name: str, keys: set[str]) -> None:
        """Compare the journal of a task with what its tools did to the world."""
        incarnation, started, ended = "", dict[str, e.ToolStarted](), dict[str, str]()
        for event in (await journal_of(store, await store.row(name))).events:
            if isinstance(event, e.TaskCreated):
                incarnation = event.incarnation
            elif isinstance(event, e.ToolStarted):
                started[event.call] = event
            elif isinstance(event, e.ToolStopped):
                self.figures.stopped[started[event.call].effect] += 1
            elif isinstance(event, e.OutcomeSettled):
                self.figures.settled += 1
            elif isinstance(event, e.ToolEnded):
                ended[f"{name}/{incarnation}/{event.call}"] = event.outcome
        lies = [key for key, outcome in ended.items() if outcome == "ok" and key not in keys]
        self.figures.broken += [f"{key} is journalled as done and did not happen" for key in lies]


def kill_at_random(host: str, folder: Path, *, tasks: int, seed: int, url: str | None = None) -> Figures:
    """Kill tasks whose tools run at a host, each at some random moments; return what was tried and what was broken."""
    return asyncio.run(Trials(host, url, folder, seed).run(tasks))


@contextmanager
def lent(store: str | None) -> Iterator[str | None]:
    """Lend the URL of a store: that of a server made for it for `postgresql`, else what is given."""
    if store != "postgresql":
        yield store
        return
    with PostgresServer() as server:
        yield server.url


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.crash.random_kills")
    parser.add_argument("--host", action="append", choices=list(AGENTS), default=[])
    parser.add_argument("--store")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    arguments = parser.parse_args()
    broken = 0
    for host in arguments.host or HOSTS:
        with tempfile.TemporaryDirectory() as folder, lent(arguments.store) as url:
            began = time.monotonic()
            figures = kill_at_random(host, Path(folder), tasks=arguments.tasks, seed=arguments.seed, url=url)
            broken += len(figures.broken)
            print(
                f"{host}, seed {arguments.seed}: {figures}, {time.monotonic() - began:.0f} s",
                *figures.broken[:20],
                sep="\n  ",
                flush=True,
            )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
