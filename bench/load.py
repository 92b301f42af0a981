"""`python -m bench.load`: many tasks at once on one store: steps a second, time a step waits for the store, errors.

    python -m bench.load --store postgresql --tasks 1000
    python -m bench.load --store sqlite
    python -m bench.load --store postgresql://app@db.example/bench

Without a URL PostgreSQL is a server in a temporary folder, made for the run. The model answers at once, so what is
measured is the runner and the store; a commit of each step waits for its disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from bench.footprint import peak
from bench.subjects import Fake, agent
from treadle import Runner


@contextmanager
def lent(store: str) -> Iterator[str]:
    """Lend the URL of a store of this kind."""
    if store == "postgresql":
        from treadle.testing.postgres import PostgresServer

        with PostgresServer() as server:
            yield server.url
    elif store == "sqlite":
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
            yield f"{folder}/journal.db"
    else:
        yield store


async def load(url: str, tasks: int, steps: int) -> int:
    """Run tasks at once and print what was measured; return how many did not complete."""
    models = [Fake(steps) for _ in range(tasks)]
    async with Runner(url) as runner:
        await runner.run(agent(Fake(2)), "warm up")
        baseline = perf_counter()
        for _ in range(20):
            await runner.run(agent(Fake(steps)), "alone")
        baseline = (perf_counter() - baseline) / 20 / steps
        before = peak(anew=True)
        begin = perf_counter()
        results = await asyncio.gather(
            *(runner.run(agent(model), "go") for model in models), return_exceptions=True
        )
        spent = perf_counter() - begin
        grown = peak() - before
    failed = [r for r in results if isinstance(r, BaseException) or r.state != "completed"]
    gaps = sorted(b - a for model in models for a, b in zip(model.at, model.at[1:], strict=False))
    p50, p99 = (gaps[int(len(gaps) * share)] for share in (0.5, 0.99))
    print(
        f"{url.partition(':')[0]}: a step alone {baseline * 1000:.2f} ms; "
        f"{tasks} tasks of {steps} steps, {spent:.2f} s, "
        f"{tasks * steps / spent:,.0f} steps/s, from step to step p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, "
        f"{grown / tasks:.0f} kB a task, {len(failed)} errors"
    )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for failure in failed[:3]:
        print(f"  {failure!r}")
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    with lent(arguments.store) as url:
        return 1 if asyncio.run(load(url, arguments.tasks, arguments.steps)) else 0


if __name__ == "__main__":
    sys.exit(main())
