"""`python -m bench.control`: how soon a command in one process takes effect in another, and what listening costs.

    python -m bench.control [--store URL] [--commands 100] [--limit 250] [--wakeups 20]

A process drives tasks whose tools wait; this one cancels them, one after the other. A command's delay runs from the
call of the verb to the moment its tool hears of it, by the clock both processes share. Wake-ups are the voluntary
context switches of the store's thread in a process that has a store open, watches it and drives a task, counted by
the kernel while nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

from bench.load import lent
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text

QUIET_SECONDS = 5.0


@tool(read_only=True)
async def wait() -> str:
    """Wait until cancelled, and say when that was."""
    print("waits", flush=True)
    try:
        await asyncio.sleep(3_600)
    finally:
        print(f"cut {time.time_ns()}", flush=True)
    return ""


agent = Agent(ScriptedModel([call("wait"), text("Done.")]), name="waiter", tools=[wait])


def switches() -> dict[str, int]:
    """Return how often each thread of this process that serves a store gave up the processor by itself."""
    switches_found: dict[str, int] = {}
    for thread in threading.enumerate():
        if thread.name.startswith("treadle") and thread.native_id is not None:
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("voluntary"))
            switches_found[thread.name] = int(line.split()[1])
    return switches_found


async def drive(store: str, tasks: int) -> None:
    """Drive tasks that wait; count wake-ups while nothing happens; then say so and wait for commands."""
    async with Runner(store, agents=[agent]) as runner:
        await runner.start(agent, "Wait", task_id="quiet")
        runner._driver.owned.watch_store()
        await asyncio.sleep(1.0)
        before, began = switches(), time.monotonic()
        await asyncio.sleep(QUIET_SECONDS)
        seconds = time.monotonic() - began
        rates = [(count - before.get(name, 0)) / seconds for name, count in switches().items()]
        for number in range(tasks):
            await runner.start(agent, "Wait", task_id=f"t{number}")
        print(f"wakeups {sum(rates):.1f}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(store: str, commands: int) -> tuple[list[float], float]:
    """Return the delays of commands in milliseconds, and the wake-ups a second of the other process."""
    command = [sys.executable, "-m", "bench.control", "--drive", store, "--commands", str(commands)]
    driver = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert driver.stdout is not None

    async def said(word: str) -> str:
        assert driver.stdout is not None
        while not (line := (await driver.stdout.readline()).decode()).startswith(word):
            if not line:
                raise RuntimeError("the driver ended")
        return line.split()[1] if " " in line else ""

    delays: list[float] = []
    try:
        wakeups = float(await said("wakeups"))
        async with Runner(store) as runner:
            for number in range(commands):
                await asyncio.sleep(0.013)  # so that commands meet every phase of a look
                sent = time.time_ns()
                cancelling = asyncio.ensure_future(runner.cancel(f"t{number}"))
                delays.append((int(await said("cut")) - sent) / 1e6)
                await cancelling
    finally:
        driver.kill()
        await driver.wait()
    return delays, wakeups


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.control")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgresql, or a URL")
    parser.add_argument("--commands", type=int, default=100)
    parser.add_argument("--limit", type=float, default=250.0, help="of the 99th percentile, in milliseconds")
    parser.add_argument("--wakeups", type=float, default=20.0, help="limit a second")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        asyncio.run(drive(arguments.drive, arguments.commands))
        return 0
    with lent(arguments.store) as store:
        delays, wakeups = asyncio.run(measure(store, arguments.commands))
    delays.sort()
    p99 = delays[int(len(delays) * 0.99) - 1]
    print(
        f"from a command to its effect: median {median(delays):.0f} ms, p99 {p99:.0f} ms, n = {len(delays)}"
    )
    print(f"wake-ups of an open, watched store: {wakeups:.1f} a second")
    return 0 if p99 <= arguments.limit and wakeups <= arguments.wakeups else 1


if __name__ == "__main__":
    sys.exit(main())
