"""`python -m bench.watched_elsewhere`: how late events of tasks come that another process drives, and what that takes.

    python -m bench.watched_elsewhere [--store sqlite] [--tasks 100] [--watchers 1000] [--steps 8] [--pause 1]

One process drives the tasks, each of so many steps whose model takes `--pause` seconds. This process watches them
through handles, the same number of watchers for each task. The lag of an event is the time from when it happened to
when a watcher has it. Both processes run on the same cores; the one unwatched run before tells how long the tasks take.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import time
from statistics import quantiles
from subprocess import PIPE

from bench.load import lent
from bench.subjects import Fake, agent
from treadle import Runner
from treadle.core.events import Event


async def drive(url: str, tasks: int, steps: int, pause: float, name: str) -> None:
    """Make the tasks, say so, and once a line is read drive them all to their ends; print the seconds it took."""
    async with Runner(url) as runner:
        subject = agent(Fake(steps, delay=pause))
        ids = [f"{name}{number}" for number in range(tasks)]
        for task_id in ids:
            await runner.create_task(subject, "Go", task_id=task_id)
        print("made", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.perf_counter()
        results = await asyncio.gather(*(runner.resume(task_id, agent=subject) for task_id in ids))
        assert all(result.state == "completed" for result in results)
        print(time.perf_counter() - began, flush=True)


async def watch(runner: Runner, task_id: str, lags: list[float]) -> int:
    """Follow a task to its end; return how many events came, and note how late."""
    seen = 0
    async for event in runner.handle(task_id).events(follow=True, deltas=False):
        if isinstance(event, Event):
            assert event.seq == seen + 1
            seen = event.seq
            if seen > 1:  # the first one happened before there were watchers
                lags.append(time.time() - event.time / 1e6)
            if event.kind == "task_ended":
                break
    return seen


async def measure(url: str, tasks: int, watchers: int, steps: int, pause: float) -> None:
    """Run the tasks unwatched, then watched, and print what was measured."""
    seconds: list[float] = []
    for number in (0, watchers):
        name = f"w{number}-"
        command = [sys.executable, "-m", "bench.watched_elsewhere", "--drive", name, "--store", url]
        command += ["--tasks", str(tasks), "--steps", str(steps), "--pause", str(pause)]
        driver = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)  # noqa: ASYNC220
        assert driver.stdin is not None
        assert driver.stdout is not None
        assert await asyncio.to_thread(driver.stdout.readline) == "made\n"
        lags: list[float] = []
        async with Runner(url) as runner:
            watching = [asyncio.create_task(watch(runner, f"{name}{n % tasks}", lags)) for n in range(number)]
            await asyncio.sleep(1.0)
            gc.collect()
            spent, began = time.process_time(), time.perf_counter()
            driver.stdin.write("\n")
            driver.stdin.flush()
            took = float(await asyncio.to_thread(driver.stdout.readline))
            seen = await asyncio.gather(*watching)
            spent, wall = time.process_time() - spent, time.perf_counter() - began
        driver.wait()
        assert len(set(seen)) <= 1, set(seen)
        seconds.append(took)
        if lags:
            cuts = quantiles(lags, n=1000)
            p50, p99 = cuts[499], cuts[989]
            print(f"{number} watchers of {tasks} tasks: {len(lags):,} events delivered in {wall:.1f} s")
            print(f"lag: p50 {p50:.3f} s, p99 {p99:.3f} s, most {max(lags):.3f} s")
            print(
                f"processor of the watching process: {spent:.1f} s, {spent / len(lags) * 1e6:.0f} us a delivery"
            )
    print(f"the tasks took {seconds[0]:.1f} s unwatched and {seconds[1] / seconds[0]:.2f} times that watched")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.watched_elsewhere")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--watchers", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    tasks, steps, pause = arguments.tasks, arguments.steps, arguments.pause
    if arguments.drive is not None:
        asyncio.run(drive(arguments.store, tasks, steps, pause, arguments.drive))
        return 0
    with lent(arguments.store) as url:
        asyncio.run(measure(url, tasks, arguments.watchers, steps, pause))
    return 0


if __name__ == "__main__":
    sys.exit(main())
