"""`python -m bench.driven_rows`: what the rows of driven tasks, and the changes that a page reads, cost the driver.

    python -m bench.driven_rows [--store sqlite] [--tasks 200] [--steps 8] [--pause 1] [--rounds 3]

The same tasks are driven without updates of their rows, with them, and with a reader of all changes too. Each step
waits `--pause` seconds for its model, as steps of real tasks do. Printed are the CPU time of the process, as a share
of one core, and the numbers of steps, of updated rows and of changes. The limit is 2 % of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from statistics import median
from typing import NamedTuple

from bench.load import lent
from bench.subjects import Fake, agent
from treadle import Runner
from treadle.engine import journal_writer

LIMIT = 2.0
"""Percent of a core that rows and changes may cost together."""

WAYS = ("neither", "rows", "rows and changes")


class Driven(NamedTuple):
    """What a drive took: the share of a core in percent, seconds, updated rows, and changes that were read."""

    share: float
    seconds: float
    rows: int
    changes: int


async def drive(url: str, tasks: int, steps: int, pause: float, way: str) -> Driven:
    """Drive the tasks in one of the ways."""
    written, changed, update = 0, 0, journal_writer.JournalWriter.update_figures
    usual = journal_writer.UPDATE_SECONDS
    journal_writer.UPDATE_SECONDS = usual if "rows" in way else 1e9  # type: ignore[misc]

    def counted(writer: journal_writer.JournalWriter, on_updated: object) -> None:
        nonlocal written
        written += 1
        update(writer, on_updated)  # type: ignore[arg-type]

    journal_writer.JournalWriter.update_figures = counted  # type: ignore[method-assign]
    subject = agent(Fake(steps, delay=pause))
    async with Runner(url) as runner:
        ids = [(await runner.create_task(subject, "Go")).task_id for _ in range(tasks)]

        async def read() -> None:
            nonlocal changed
            async for _ in runner.changes():
                changed += 1

        reading = asyncio.create_task(read()) if "changes" in way else None
        await asyncio.sleep(0.5)
        gc.collect()
        spent, began = time.process_time(), time.perf_counter()
        results = await asyncio.gather(*(runner.resume(task_id, agent=subject) for task_id in ids))
        spent, wall = time.process_time() - spent, time.perf_counter() - began
        assert all(result.state == "completed" for result in results)
        if reading is not None:
            reading.cancel()
    journal_writer.JournalWriter.update_figures = update  # type: ignore[method-assign]
    journal_writer.UPDATE_SECONDS = usual  # type: ignore[misc]
    return Driven(100 * spent / wall, wall, written, changed)


async def measure(store: str, tasks: int, steps: int, pause: float, rounds: int) -> bool:
    """Print what was measured; return whether it is within the limit."""
    shares: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            with lent(store) as url:
                driven = await drive(url, tasks, steps, pause, way)
            shares[way].append(driven.share)
            counts = f"{tasks * steps} steps, {driven.rows} rows, {driven.changes} changes"
            print(f"{way:18} {driven.share:5.2f} % of a core, {counts}, {driven.seconds:.1f} s", flush=True)
    alone, *others = (median(shares[way]) for way in WAYS)
    for way, share in zip(WAYS[1:], others, strict=True):
        print(f"{way}: {share - alone:.2f} % of a core more than {alone:.2f} %")
    return others[-1] - alone <= LIMIT


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    work = measure(given.store, given.tasks, given.steps, given.pause, given.rounds)
    raise SystemExit(0 if asyncio.run(work) else 1)
