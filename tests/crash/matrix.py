"""The whole crash matrix: each store, each host of tools, each boundary in a task of its own (`make crash`).

    python -m tests.crash.matrix [--store URL]... [--host HOST]... [--brief]

Without `--store`: a SQLite file for each host of tools, and a schema for each on a PostgreSQL server of our own. Two
cells of the matrix are tried at a time. Prints trials and hits of each boundary; ends with 1 if a promise was broken or
a boundary never hit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tests.crash.hosts import AGENTS, KILLS_PER_TASK, repeated
from treadle.testing.boundaries import CrashReport, crash_at_every_boundary
from treadle.testing.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
AT_ONCE = 2


@dataclass
class Cell:
    """One store with one host of tools, and the result."""

    store: str
    host: str
    url: str | None
    report: CrashReport = field(default_factory=CrashReport)
    seconds: float = 0.0

    def tried(self) -> Cell:
        """Kill the golden task at each of its boundaries."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            effects = Path(folder) / "effects"
            self.report = crash_at_every_boundary(
                AGENTS[self.host],
                "go",
                kills_per_task=KILLS_PER_TASK.get(self.host, 1),
                store=self.url,
                script="tests.crash.hosts:script",
                cwd=ROOT,
                env={"EFFECTS": str(effects)},
            )
            self.report.broken += [f"happened twice: {line}" for line in repeated(effects)]
        self.seconds = time.monotonic() - began
        return self

    def __str__(self) -> str:
        return f"{self.store}, tools {self.host}: {self.report.head}, {self.seconds:.0f} s"


@contextmanager
def cells(arguments: Namespace) -> Iterator[list[Cell]]:
    """Lend the cells to try, those that take longest first."""
    hosts = list(reversed(arguments.host or AGENTS))
    if arguments.store:
        yield [Cell(url.partition(":")[0], host, url) for url in arguments.store for host in hosts]
        return
    # Processes are killed here and the server is not: what it was given, it has, and no disk has to hurry.
    with PostgresServer(fsync="off") as server:
        on_server = [Cell("postgresql", host, server.in_schema(f"crash_{host}")) for host in hosts]
        yield on_server + [Cell("sqlite", host, None) for host in hosts]


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.crash.matrix")
    parser.add_argument("--store", action="append", default=[])
    parser.add_argument("--host", action="append", choices=list(AGENTS), default=[])
    parser.add_argument("--brief", action="store_true", help="one line for each cell")
    arguments = parser.parse_args()
    began, reports = time.monotonic(), list[CrashReport]()
    with cells(arguments) as all_cells, ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as workers:
        for done in as_completed([workers.submit(Cell.tried, cell) for cell in all_cells]):
            cell = done.result()
            reports.append(cell.report)
            print(f"\n== {cell}")
            if cell.report.broken or not arguments.brief:
                print(cell.report, flush=True)
    points, missed, broken = (
        sum(len(listed) for listed in lists)
        for lists in zip(*((r.places, r.missed, r.broken) for r in reports), strict=True)
    )
    tasks, kills = sum(report.tasks for report in reports), sum(report.kills for report in reports)
    print(
        f"\n{len(reports)} cells, {tasks} tasks, {kills} kills at {points} places, {missed} never hit, "
        f"{broken} violations, {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}"
    )
    return 1 if broken or missed else 0


if __name__ == "__main__":
    sys.exit(main())
