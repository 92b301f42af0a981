"""Real drivers on one store, stopped, woken and killed at random while they drive: `make chaos`.

    python -m tests.chaos.storm --seconds 60 --tasks 200 --drivers 3 [--store URL] [--seed N]

Each driver is a `treadle drive`. What they did is judged from outside: by another process that audits the journals
against a ledger of effects, by how long orphans stayed orphans, and by the commits that drivers which were woken after
their succession tried and were refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import apsw
import psycopg

from treadle import Runner, RunOptions
from treadle.core.events import END_STATES
from treadle.errors import StoreUnavailable
from treadle.ports import TaskFilter

SCAN = 1.0
"""How often an adopter looks when it hears nothing, in seconds."""


HELD = 0.3
"""How many seconds a driver that is not stopped holds a lock at most."""


@dataclass(slots=True)
class Plan:
    """How much of a storm. `restart`, if given, restarts the server of the store and returns."""

    folder: Path
    store: str
    seconds: float
    tasks: int
    drivers: int
    lease: float = 1.0
    steps: int = 10
    work: float = 3.0
    seed: int = 0
    patience: float = 120.0
    restart: Callable[[], None] | None = None


@dataclass(slots=True)
class Driver:
    """One `treadle drive` and its output."""

    process: subprocess.Popen[str]
    started: float = field(default_factory=time.monotonic)
    born: float | None = None
    """the time of its first output"""

    died: float = math.inf
    stopped: float | None = None
    succeeded: bool = False
    """continued after having been stopped for longer than its lease"""

    stops: list[tuple[float, float]] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """of what it adopted: from when it saw that it had no driver, to when it owned it"""

    lost: list[tuple[str, int]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def awake(self) -> list[tuple[float, float]]:
        """The times in which it could have taken an orphan up."""
        if self.born is None:
            return []
        stops = [*self.stops, (self.stopped or self.died, self.died)]
        starts = [self.born, *(end for _, end in self.stops)]
        return [(start, min(begin, self.died)) for start, (begin, _) in zip(starts, stops, strict=True)]

    def listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                entry = json.loads(line)
                if "kind" not in entry:
                    continue  # the error that ends the driver: its exit status is judged
                self.entries.append(entry)
                self.born = self.born or time.monotonic()
                if entry["kind"] == "adopted":
                    self.waits.append((time.monotonic() - entry["waited"], time.monotonic()))
                if entry["kind"] == "lost" and self.succeeded:
                    self.lost.append((entry["task_id"], entry["epoch"]))


@dataclass(slots=True)
class Report:
    """The results of a storm."""

    refused: int = 0
    unwarranted: int = 0
    """commits refused by drivers that had not been stopped, or of tasks that were not taken over"""

    unheard: list[float] = field(default_factory=list)
    """of each orphan, the seconds from its driver's last heartbeat until another owned it: lease and scan, at most"""

    taken_up: list[float] = field(default_factory=list)
    """the part of that from when the store listed it as an orphan"""

    suspects: list[float] = field(default_factory=list)
    """of those that waited as suspected poison tasks"""

    left: list[float] = field(default_factory=list)
    """of the others, the longest time that one driver was awake, and its store could be written, all along: one scan"""

    waited: list[float] = field(default_factory=list)
    """the part of that from when the adopter that took it saw it first: what is the engine's own"""

    paused: int = 0
    """tasks paused as poison tasks: there is none here"""

    load: float = 0.0
    unended: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    failed_starts: int = 0
    """drivers that could not start because the server was restarting, and were started again"""

    stops: int = 0
    kills: int = 0
    restarts: int = 0
    epochs: int = 0
    down: float = 0.0
    locked: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        blows = (
            f"{self.stops} stops beyond the lease, {self.kills} kills, {self.restarts} restarts of the server "
            f"({self.down:.1f} s), locks of stopped drivers for {self.locked:.1f} s"
        )
        return "\n".join(
            [
                f"{self.seconds:.0f} s at load {self.load:.1f}: {blows}",
                f"{self.epochs} ownerships; {len(self.taken_up)} orphans taken up",
                f"  after the last heartbeat of their drivers  {spread(self.unheard)}",
                f"  after the store listed them                {spread(self.taken_up)}",
                f"  while one driver was awake all the time    {spread(self.left)}",
                f"  {len(self.suspects)} suspects, in their turn               {spread(self.suspects)}",
                f"  after their adopter saw them               {spread(self.waited)}",
                f"{self.refused} stale commits refused (drivers woken after their succession)",
                f"{len(self.violations)} violations, {self.paused} innocents given up",
                f"{len(self.unended)} tasks not ended, exits {self.exits}, {self.failed_starts} failed starts",
                *self.violations[:20],
            ]
        )


def share(values: list[float], part: float) -> float:
    """Return the value that so large a part of them do not exceed."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else 0.0


def spread(values: list[float]) -> str:
    """Say how values are spread."""
    return (
        f"p50 {share(values, 0.5):.2f} s, p99 {share(values, 0.99):.2f} s, at most {share(values, 1):.2f} s"
    )


def without(part: tuple[float, float], hole: tuple[float, float]) -> list[tuple[float, float]]:
    """Return what is left of a time when another is taken out of it."""
    (begin, end), (since, to) = part, hole
    if to <= begin or end <= since:
        return [part]
    return [remainder for remainder in ((begin, since), (to, end)) if remainder[0] < remainder[1]]


def file_lock(url: str) -> Callable[[], bool]:
    """Return a function that tells whether any process holds the lock of an SQLite file."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))

    def is_locked() -> bool:
        try:
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            return True
        return False

    return is_locked


def server_locks(url: str) -> Callable[[], bool]:
    """Return a function that tells whether a session is idle in an open transaction, in a pipeline or not."""
    connections: list[psycopg.Connection[Any]] = []
    quiet = "xact_start < now() - interval '50 ms' AND wait_event = 'ClientRead'"
    question = f"SELECT count(*) FROM pg_stat_activity WHERE {quiet}"

    def is_locked() -> bool:
        try:
            if not connections:
                connections.append(psycopg.connect(url, autocommit=True, connect_timeout=2))
            row = connections[0].execute(question).fetchone()
        except psycopg.OperationalError:
            connections.clear()
            return False
        return row is not None and row[0] > 0

    return is_locked


class Storm:
    """One storm, from the first task to the audit."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed)
        self.drivers: list[Driver] = []
        self.dead: list[Driver] = []
        self.listeners: list[Thread] = []
        self.report = Report()
        self.orphaned: dict[tuple[str, int], tuple[float, float]] = {}
        """from when to when a task was an orphan, by task and epoch"""

        self.down: list[tuple[float, float]] = []
        """from when to when the server was away"""

        self.locked: list[tuple[float, float]] = []
        """from when to when a stopped driver kept others from writing: SQLite's file, a row of PostgreSQL"""

        self.ledger = plan.folder / "ledger.jsonl"
        self.environment = {
            **os.environ,
            "CHAOS_LEDGER": str(self.ledger),
            "CHAOS_STEPS": str(plan.steps),
            "CHAOS_SECONDS": str(plan.work),
        }

    async def run(self) -> Report:
        began = time.monotonic()
        try:
            async with Runner(self.plan.store) as runner:
                await self._begin_tasks(runner)
                for _ in range(self.plan.drivers):
                    self.drivers.append(self._driver())
                watching = asyncio.gather(self._watch_orphans(runner), self._watch_locks())
                await self._blow()
                await self._calm(runner)
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
                await self._judge(runner)
        finally:
            for driver in self.drivers:
                driver.process.kill()
                driver.process.wait()
            for listener in self.listeners:
                listener.join(10)
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _begin_tasks(self, runner: Runner) -> None:
        """Make tasks that wait for a driver: begun, and given back at once."""
        os.environ.update(self.environment)
        from tests.chaos.agent import agent

        options = RunOptions(on_unknown_outcome="tell_model")
        for number in range(self.plan.tasks):
            await runner.start(agent, "Work", task_id=f"t{number:03}", options=options)
        await runner.drain()

    def _driver(self) -> Driver:
        command = [sys.executable, "-m", "treadle", "drive", "--agent", "tests.chaos.agent:agent", "--json"]
        command += ["--store", self.plan.store, "--lease", str(self.plan.lease), "--grace", "0"]
        command += ["--at-most", str(self.plan.tasks)]
        log = (self.plan.folder / "drivers.log").open("a")
        with log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment
            )
        driver = Driver(process)
        listener = Thread(target=driver.listen, daemon=True)
        listener.start()
        self.listeners.append(listener)
        return driver

    # ------------------------------------------------------------------------------------------ the storm

    async def _blow(self) -> None:
        end = time.monotonic() + self.plan.seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(0.2, 0.8))
            self._wake()
            self._start_again()
            # A driver that was just started does not drive yet, and one driver always has to.
            awake = [driver for driver in self.drivers if driver.stopped is None and driver.entries]
            if len(awake) < 2:
                continue
            victim, blow = self.chance.choice(awake), self.chance.random()
            if blow < 0.65:
                victim.process.send_signal(signal.SIGSTOP)
                victim.stopped = time.monotonic()
            elif blow < 0.9:
                self._kill(victim)
            elif self.plan.restart is not None:
                began = time.monotonic()
                await asyncio.to_thread(self.plan.restart)
                self.down.append((began, time.monotonic()))
                self.report.restarts += 1

    def _wake(self, *, all_of_them: bool = False) -> None:
        for driver in self.drivers:
            if driver.stopped is None:
                continue
            slept = time.monotonic() - driver.stopped
            if all_of_them or slept > self.plan.lease * self.chance.uniform(1.5, 3.0):
                # A heartbeat may have been written just before it was stopped.
                driver.succeeded = driver.succeeded or slept > self.plan.lease
                self.report.stops += slept > self.plan.lease
                driver.stops.append((driver.stopped, time.monotonic()))
                driver.stopped = None
                driver.process.send_signal(signal.SIGCONT)

    def _start_again(self) -> None:
        """Replace the drivers that ended because the server restarted while they started, as a supervisor would."""
        for driver in list(self.drivers):
            was_down = any(end > driver.started for _, end in self.down)
            if was_down and driver.born is None and driver.process.poll():
                driver.died = time.monotonic()
                self.report.failed_starts += 1
                self.drivers.remove(driver)
                self.drivers.append(self._driver())

    def _kill(self, driver: Driver) -> None:
        driver.process.kill()
        driver.process.wait()
        driver.died = time.monotonic()
        self.report.kills += 1
        self.drivers.remove(driver)
        self.dead.append(driver)
        self.drivers.append(self._driver())

    async def _calm(self, runner: Runner) -> None:
        """Wake all, and wait until every task has ended."""
        await asyncio.sleep(self.plan.lease * 1.5)
        self._wake(all_of_them=True)
        end = time.monotonic() + self.plan.patience
        while time.monotonic() < end:
            self._start_again()
            rows = await runner.store.rows(TaskFilter(limit=self.plan.tasks))
            self.report.unended = [row.task_id for row in rows if row.state not in END_STATES]
            self.report.epochs = sum(row.epoch for row in rows)
            if not self.report.unended:
                break
            await asyncio.sleep(0.3)
        self.report.load = max(os.getloadavg()[:2])

    # ----------------------------------------------------------------------------------------- judging

    async def _watch_orphans(self, runner: Runner) -> None:
        """Note how long each task stays an orphan; the first tasks wait for the first driver and do not count."""
        since: dict[tuple[str, int], tuple[float, float]] = {}
        first = {(row.task_id, row.epoch) for row in await runner.store.orphans(1_000)}
        while True:
            with suppress(StoreUnavailable):  # its server is being restarted
                rows = await runner.store.orphans(1_000)
                now = time.time()
                orphans = {(row.task_id, row.epoch): row.driver for row in rows}
                for task_id in since.keys() - orphans.keys():
                    listed, first_heard = since.pop(task_id)
                    self.report.taken_up.append(now - listed)
                    self.orphaned[task_id] = (time.monotonic() - (now - listed), time.monotonic())
                    self.report.unheard.append(now - first_heard)
                for orphan, driver in orphans.items():
                    if orphan not in first:
                        ends = (
                            now
                            if driver is None or not driver.lease
                            else driver.lease / 1e6 - self.plan.lease
                        )
                        since.setdefault(orphan, (now, ends))
            await asyncio.sleep(0.1)

    async def _watch_locks(self) -> None:
        """Note when other processes could not write: a process that is stopped in mid-write keeps its locks."""
        is_locked = (
            file_lock(self.plan.store) if "sqlite" in self.plan.store else server_locks(self.plan.store)
        )
        since = None
        while True:
            if await asyncio.to_thread(is_locked):
                since = since or time.monotonic()
            else:
                if since is not None and time.monotonic() - since > HELD:
                    self.locked.append((since, time.monotonic()))
                since = None
            await asyncio.sleep(0.05)

    async def _judge(self, runner: Runner) -> None:
        for driver in self.drivers:
            while driver.born is None and driver.process.poll() is None:  # noqa: ASYNC110  it does not hear signals yet
                await asyncio.sleep(0.05)
            driver.process.terminate()
        for driver in self.drivers:
            self.report.exits.append(await asyncio.to_thread(driver.process.wait, 30))
        newest = {
            row.task_id: row.epoch for row in await runner.store.rows(TaskFilter(limit=self.plan.tasks))
        }
        for driver in [*self.drivers, *self.dead]:
            warranted = sum(newest[task] > epoch for task, epoch in driver.lost)
            self.report.refused += warranted
            lost = sum(entry["kind"] == "lost" for entry in driver.entries)
            self.report.paused += sum(entry["kind"] == "given_up" for entry in driver.entries)
            self.report.waited += [
                to - since for since, to in driver.waits if all(e < since or b > to for b, e in driver.stops)
            ]
            self.report.unwarranted += lost - warranted
        self._judge_orphans()
        command = [sys.executable, "-m", "treadle.testing.auditor", self.plan.store, "--ended"]
        command += ["--ledger", str(self.ledger)]
        audit = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        self.report.violations = (audit.stdout + audit.stderr).splitlines()

    def _judge_orphans(self) -> None:
        drivers = [*self.drivers, *self.dead]
        suspects = {
            (entry["task_id"], entry["epoch"])
            for driver in drivers
            for entry in driver.entries
            if entry["kind"] == "suspect"
        }
        up = [part for driver in drivers for part in driver.awake()]
        self.report.down = sum(to - since for since, to in self.down)
        self.report.locked = sum(to - since for since, to in self.locked)
        # A server ends the transactions of those who are stopped before their tasks are orphans; a file waits for them.
        for down in self.locked if "sqlite" in self.plan.store else self.down:
            up = [remainder for part in up for remainder in without(part, down)]
        for orphan, (since, to) in self.orphaned.items():
            if orphan in suspects:
                self.report.suspects.append(to - since)
            else:
                shared = [min(to, end) - max(since, begin) for begin, end in up]
                self.report.left.append(max(0.0, max(shared, default=0.0)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storm")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--work", type=float, default=3.0, help="seconds that a call takes, about")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--no-restarts", action="store_true", help="do not restart the server")
    parser.add_argument("--store", help="URL; by default a fresh SQLite file; `postgres` starts a server")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            Path(folder),
            arguments.store or f"sqlite:///{folder}/journal.db",
            arguments.seconds,
            arguments.tasks,
            arguments.drivers,
        )
        plan.work, plan.seed = arguments.work, arguments.seed
        if arguments.store == "postgres":
            from treadle.testing.postgres import PostgresServer

            with PostgresServer() as server:

                def restart() -> None:
                    server.stop(immediate=True)
                    server.start()

                plan.store, plan.restart = server.url, None if arguments.no_restarts else restart
                report = asyncio.run(Storm(plan).run())
        else:
            report = asyncio.run(Storm(plan).run())
        print(report)
        if report.violations or report.unended:
            print((Path(folder) / "drivers.log").read_text()[-3_000:])
    good = not report.violations and not report.unended and not any(report.exits)
    good = good and share(report.left, 0.99) <= SCAN
    return 0 if good and (report.refused >= 50 or arguments.seconds < 60) else 1


if __name__ == "__main__":
    sys.exit(main())
