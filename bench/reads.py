"""`python -m bench.reads`: how long reads hold the event loop of a store that has many tasks.

    python -m bench.reads [--store sqlite] [--tasks 20000] [--limit 5] [--times 20]

A few tasks are run for real: completed, failed, waiting for an approval, paused, between steps. The store is then
filled with copies of them under other ids, times and labels, and with one task of 3,000 steps. Of each read two figures
are taken: the time the thread of the event loop computes for one call, and the longest time for which the loop did no
other work during the calls, seen by a coroutine that always wants its turn. The latter is at the mercy of the machine:
a thread that has to wait for its processor holds the loop too. The limit is on the median of the former, and the exit
code says whether all reads kept it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from statistics import median
from typing import Any

from bench.load import lent
from treadle import Agent, Limits, Runner, RunOptions, ScriptedModel, tool
from treadle.models import call, fail, text

LABELS = ("red", "green", "blue", "grey")
DAY = 86_400_000_000
LONG = 3_000


@tool(read_only=True)
async def look(what: str) -> str:
    """Look something up."""
    return f"{what}: " + "seen " * 20


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def agent(*script: Any, name: str) -> Agent:
    """Return an agent that follows a script."""
    return Agent(ScriptedModel(list(script)), name=name, tools=[look, pay])


async def templates(runner: Runner) -> list[str]:
    """Run one task of each kind and return their ids."""
    looks = [call("look", what=f"part {number}") for number in range(4)]
    completed = await runner.run(
        agent(*looks, text("All seen."), name="clerk"), "Look at everything, please."
    )
    failed = await runner.run(agent(fail(400), name="broken"), "Fail.", task_id="template-failed")
    waiting = await runner.run(agent(*looks[:2], call("pay", amount=7), name="cashier"), "Pay the bill.")
    resting = await runner.create_task(agent(*looks, text("All seen."), name="stepper"), "Look slowly.")
    await runner.run_step(resting)
    return [completed.task_id, failed.task_id, waiting.task_id, resting.task_id]


async def fill(runner: Runner, tasks: int) -> None:
    """Fill a store with copies of a few tasks."""
    ids = await templates(runner)
    sources = [(await runner.store.row(task_id), await runner.store.read(task_id)) for task_id in ids]
    # Nine of ten are completed; of the rest each kind has its share.
    kinds = [sources[0]] * 27 + sources[1:]
    now = sources[0][0].created
    for begin in range(0, tasks, 2_000):
        copies = []
        for number in range(begin, min(begin + 2_000, tasks)):
            row, records = kinds[number % len(kinds)]
            created = now - number * DAY // 400
            copy = replace(
                row,
                task_id=f"task-{number:06}",
                thread_id=f"thread-{number % 5_000}",
                created=created,
                labels={"team": LABELS[number % 4], "n": str(number)},
                parent=f"task-{number - 1:06}" if number % 10 == 1 else None,
            )
            if row.figures is not None:
                copy.figures = replace(
                    row.figures, updated=created, text=f"{row.figures.text} number {number}."
                )
            copies.append(runner.store.restore(copy, records))
        await asyncio.gather(*copies)


async def gap_during(calls: Callable[[], Awaitable[Any]]) -> float:
    """Return the longest time, in seconds, for which the loop did nothing else during some calls."""
    longest, last, ended = 0.0, time.perf_counter(), False

    async def always() -> None:
        nonlocal longest, last
        while True:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            if ended:
                return
            await asyncio.sleep(0)

    other = asyncio.ensure_future(always())
    await asyncio.sleep(0)
    await calls()
    ended = True
    await other
    return longest


async def measure(read: Callable[[], Awaitable[Any]], times: int) -> tuple[float, float, float]:
    """Return of a read, in milliseconds: wall time, time of the loop's thread, and the longest hold."""
    await read()
    walls, loops = list[float](), list[float]()
    for _ in range(times):
        gc.collect()
        began, computed = time.perf_counter(), time.thread_time()
        await read()
        loops.append(time.thread_time() - computed)
        walls.append(time.perf_counter() - began)

    async def again() -> None:
        for _ in range(3):
            await read()

    return median(walls) * 1e3, median(loops) * 1e3, await gap_during(again) * 1e3


async def reads_of(runner: Runner, tasks: int) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return the reads by how they are written."""
    newest = (await runner.get_task("task-000000")).created
    middle = (await runner.get_task(f"task-{tasks // 2:06}")).created
    cursor = (await runner.list_tasks(until=middle, limit=1)).cursor
    return {
        "list_tasks()": runner.list_tasks,
        "list_tasks(limit=200)": lambda: runner.list_tasks(limit=200),
        "list_tasks(cursor=...)": lambda: runner.list_tasks(cursor=cursor),
        "list_tasks(state='completed')": lambda: runner.list_tasks(state="completed"),
        "list_tasks(state=[4 states])": lambda: runner.list_tasks(
            state=["completed", "failed", "waiting", "running"]
        ),
        "list_tasks(agent='clerk')": lambda: runner.list_tasks(agent="clerk"),
        "list_tasks(labels={'team': 'red'})": lambda: runner.list_tasks(labels={"team": "red"}),
        "list_tasks(search='number 77')": lambda: runner.list_tasks(search="number 77"),
        "list_tasks(search='nowhere')": lambda: runner.list_tasks(search="nowhere"),
        "list_tasks(roots=True)": lambda: runner.list_tasks(roots=True),
        "list_tasks(updated_since=an hour ago)": lambda: runner.list_tasks(
            updated_since=newest - 3_600_000_000
        ),
        "list_tasks(parent='task-000010')": lambda: runner.list_tasks(parent="task-000010"),
        "count_tasks()": runner.count_tasks,
        "count_tasks(search='number 77')": lambda: runner.count_tasks(search="number 77"),
        "usage(by='agent')": runner.usage,
        "usage(by='day')": lambda: runner.usage(by="day"),
        "usage(by='label:team')": lambda: runner.usage(by="label:team"),
        "list_threads(limit=100)": lambda: runner.list_threads(limit=100),
        "get_task(task)": lambda: runner.get_task("task-000005"),
        "get_lineage(task)": lambda: runner.get_lineage("task-000010"),
        "get_events(task)": lambda: runner.get_events("task-000005"),
        "get_steps(task)": lambda: runner.get_steps("task-000005"),
    }


async def long_reads_of(runner: Runner, task_id: str) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return reads of a long task, or of many waiting ones, by how they are written: these are made in slices."""
    head = (await runner.get_task(task_id)).head

    async def anew() -> None:
        runner._cache.forget(task_id)
        await runner.get_task(task_id)

    return {
        "list_pending()": runner.list_pending,
        "get_task(long), not cached": anew,
        "get_task(long, at=middle)": lambda: runner.get_task(task_id, at=head // 2),
        "result(long)": lambda: runner.result(task_id),
        "get_events(long, after=middle)": lambda: runner.get_events(task_id, after=head // 2),
        "get_events(long, kinds='task_ended')": lambda: runner.get_events(task_id, kinds="task_ended"),
        "get_steps(long, after=middle)": lambda: runner.get_steps(task_id, after=LONG // 2),
        "get_completed_steps(long)": lambda: runner.get_completed_steps(task_id),
        "get_request(long, middle)": lambda: runner.get_request(task_id, LONG // 2),
    }


async def main_async(store: str, tasks: int, limit: float, times: int) -> bool:
    kept = True
    async with Runner(store) as runner:
        began = time.perf_counter()
        await fill(runner, tasks)
        turns = [call("look", what=f"part {number}") for number in range(LONG)]
        options = RunOptions(limits=Limits(steps=LONG + 1))
        long = await runner.create_task(agent(*turns, name="long"), "Look at all.", options=options)
        for _ in range(LONG):  # one by one, so that each has a record of its own
            await runner.run_step(long)
        print(f"{tasks:,} tasks and a task of {LONG:,} steps made in {time.perf_counter() - began:.0f} s")
        print(f"{'read':<42}{'wall ms':>10}{'loop ms':>10}{'hold ms':>10}")
        for name, read in (await reads_of(runner, tasks)).items():
            wall, loop, hold = await measure(read, times)
            kept = kept and loop <= limit
            print(f"{name:<42}{wall:>10.2f}{loop:>10.2f}{hold:>10.2f}{'' if loop <= limit else '   over'}")
        for name, read in (await long_reads_of(runner, long.task_id)).items():
            wall, loop, hold = await measure(read, 3)
            print(f"{name:<42}{wall:>10.2f}{loop:>10.2f}{hold:>10.2f}")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reads")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgresql, memory:, or a URL")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument(
        "--limit", type=float, default=5.0, help="of the loop's time for a read, in milliseconds"
    )
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    with lent(arguments.store) as store:
        kept = asyncio.run(main_async(store, arguments.tasks, arguments.limit, arguments.times))
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
