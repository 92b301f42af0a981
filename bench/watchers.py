"""`python -m bench.watchers`: what a hundred watchers, some of them stalled, cost the run they watch.

    python -m bench.watchers [--watchers 100] [--stalled 20] [--rounds 11] [--limit 5]

The same run of six steps, watched and unwatched, in turns. Its model begins to answer after 0.05 s and writes a piece
each 0.01 s, 20 of them: as quick as the quickest provider. Each watcher reads `handle.events()`; a stalled one reads
one event and then never again. Then a run of 20,000 pieces is watched by as many that stall, and what each holds is
told.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import time
import tracemalloc
from statistics import median

from bench.load import lent
from bench.subjects import Fake, agent
from treadle import Agent, Runner

STEPS, DELAY, PIECES, PAUSE = 6, 0.05, 20, 0.01
FLOOD = 20_000
KIB_A_WATCHER = 512.0


async def follow(runner: Runner, task_id: str, *, stalls: bool) -> int:
    """Watch a task to its end; return how many events were seen."""
    seen = 0
    async for _ in runner.handle(task_id).events():
        seen += 1
        if stalls:
            await asyncio.sleep(3_600)
    return seen


async def watched(runner: Runner, agent: Agent, watchers: int, stalled: int) -> tuple[float, float]:
    """Run once under watch; return wall and processor seconds until the run's result is there."""
    gc.collect()
    spent, began = time.process_time(), time.perf_counter()
    handle = await runner.start(agent, "Go")
    stalling = [
        asyncio.ensure_future(follow(runner, handle.task_id, stalls=n < stalled)) for n in range(watchers)
    ]
    result = await handle.result()
    seconds = time.perf_counter() - began, time.process_time() - spent
    assert result.state == "completed", result
    seen = await asyncio.gather(*stalling[stalled:])
    assert all(number >= STEPS * 5 for number in seen), seen
    for work in stalling[:stalled]:
        work.cancel()
    await asyncio.gather(*stalling[:stalled], return_exceptions=True)
    return seconds


async def compare(url: str, rounds: int, watchers: int, stalled: int) -> tuple[float, float, float]:
    """Return the medians of an unwatched run's seconds, and of the ratios of wall and processor time."""
    plain: list[float] = []
    walls: list[float] = []
    processors: list[float] = []
    chance = random.Random(1)
    async with Runner(url) as runner:
        subject = agent(Fake(STEPS, delay=DELAY, words=PIECES, pause=PAUSE))
        await watched(runner, subject, watchers, stalled)
        for _ in range(rounds):
            durations: dict[int, tuple[float, float]] = {}
            for number in chance.sample([0, watchers], 2):
                subject = agent(Fake(STEPS, delay=DELAY, words=PIECES, pause=PAUSE))
                durations[number] = await watched(runner, subject, number, min(stalled, number))
            plain.append(durations[0][0])
            walls.append(durations[watchers][0] / durations[0][0])
            processors.append(durations[watchers][1] / durations[0][1])
    return median(plain), median(walls), median(processors)


async def held(url: str, stalled: int) -> float:
    """Return how many KiB each stalled watcher holds at the end of a run of many pieces."""

    async def grown(watchers: int) -> int:
        async with Runner(url) as runner:
            handle = await runner.start(agent(Fake(2, delay=DELAY, words=FLOOD // 2)), "Go")
            work = [
                asyncio.ensure_future(follow(runner, handle.task_id, stalls=True)) for _ in range(watchers)
            ]
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            await handle.result()
            peak = tracemalloc.get_traced_memory()[1] - before
            for stalling in work:
                stalling.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            return peak

    tracemalloc.start()
    try:
        await grown(1)
        baseline = await grown(0)
        return (await grown(stalled) - baseline) / 1024 / stalled
    finally:
        tracemalloc.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.watchers")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--stalled", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--limit", type=float, default=5.0, help="how much slower, in percent")
    arguments = parser.parse_args()
    with lent(arguments.store) as url:
        baseline, wall, processor = asyncio.run(
            compare(url, arguments.rounds, arguments.watchers, arguments.stalled)
        )
        kib = asyncio.run(held(url, max(arguments.stalled, 1)))
    slower = (wall - 1) * 100
    print(
        f"{STEPS} steps of {DELAY + PIECES * PAUSE:g} s: {baseline:.2f} s unwatched, n = {arguments.rounds}"
    )
    print(
        f"{arguments.watchers} watchers, {arguments.stalled} stalled: {slower:+.1f} % wall, "
        f"{processor:.1f} times the processor"
    )
    print(f"a stalled watcher holds {kib:,.0f} KiB after {FLOOD:,} pieces")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if slower < arguments.limit and kib < KIB_A_WATCHER else 1


if __name__ == "__main__":
    sys.exit(main())
