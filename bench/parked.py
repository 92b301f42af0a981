"""`python -m bench.parked`: what a store full of parked tasks costs a process that does nothing.

    python -m bench.parked [--store sqlite | postgresql | URL] [--tasks 10000] [--seconds 20] [--limit 2]

Half of the tasks are paused, a quarter waits for a person, a quarter is paused in threads that hold words. Then a
process has the store open and drives one task whose tool waits, without and with `adopt=True`, and nothing happens.
Wake-ups are the voluntary context switches of all its threads, counted by the kernel. The share of a PostgreSQL server
made for the run is told beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.load import lent
from treadle import Agent, Breakpoint, Runner, RunOptions, ScriptedModel, tool
from treadle.models import call, text

AT_ONCE = 500
THREADS = 125  # each task of a batch finds its thread free
TICKS = os.sysconf("SC_CLK_TCK")


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


@tool(timeout=1.0)
async def post() -> str:
    """Post a letter, and never hear whether it was."""
    await asyncio.sleep(3_600)
    return ""


@tool(read_only=True)
async def wait() -> str:
    """Wait."""
    await asyncio.sleep(3_600)
    return ""


looker = Agent(ScriptedModel(lambda _: call("look")), name="looker", tools=[look])
sender = Agent(ScriptedModel(lambda _: call("post")), name="sender", tools=[post])
waiter = Agent(ScriptedModel(lambda _: call("wait")), name="waiter", tools=[wait])
talker = Agent(ScriptedModel(lambda _: text("Hello.")), name="talker")
AGENTS = [looker, sender, waiter, talker]
PAUSE = RunOptions(break_on=[Breakpoint(after_step=1)])


@dataclass(frozen=True)
class Rest:
    """What a while without work cost: shares of one processor in percent, wake-ups a second."""

    share: float
    wakeups: float
    server: float | None


async def park(url: str, tasks: int) -> dict[str, int]:
    """Fill a store; return how many tasks are in which state."""
    states: dict[str, int] = {}

    async def one(runner: Runner, number: int) -> None:
        if number % 4 == 0:
            result = await runner.run(sender, "Post it")
        elif number % 4 == 1:
            result = await runner.run(
                looker, "Look", thread_id=f"thread-{number // 4 % THREADS}", options=PAUSE
            )
        else:
            result = await runner.run(looker, "Look", options=PAUSE)
        states[result.state] = states.get(result.state, 0) + 1

    async with Runner(url) as runner:
        for number in range(THREADS):
            await runner.run(talker, "Hello", thread_id=f"thread-{number}")
        for first in range(0, tasks, AT_ONCE):
            await asyncio.gather(*(one(runner, n) for n in range(first, min(first + AT_ONCE, tasks))))
    return states


async def rest(url: str, seconds: float, *, adopt: bool) -> Rest:
    """Have the store open, drive a task that waits, and count while nothing happens."""
    async with Runner(url, agents=AGENTS, adopt=adopt) as runner:
        handle = await runner.start(waiter, "Wait")
        await asyncio.sleep(2.0)
        woken, spent, served, began = _switches(), time.process_time(), _served(url), time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        share, wakeups = (time.process_time() - spent) / took * 100, (_switches() - woken) / took
        after = _served(url)
        server = None if served is None or after is None else (after - served) / took * 100
        await handle.cancel()
    return Rest(share, wakeups, server)


def _switches() -> int:
    return sum(
        int(line.split()[1])
        for status in Path("/proc/self/task").glob("*/status")
        for line in status.read_text().splitlines()
        if line.startswith("voluntary")
    )


def _served(url: str) -> float | None:
    """Return how many processor seconds a local server and its sessions have spent, if its folder is known."""
    folder = parse_qs(urlsplit(url).query).get("host", [""])[0]
    lock = Path(folder, "postmaster.pid")
    if not folder or not lock.exists():
        return None
    server = lock.read_text().splitlines()[0]
    spent = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, unit = status.read_text().partition(" ")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        fields = unit.rpartition(")")[2].split()
        if server in (number, fields[1]):
            # The children's are those of sessions that have ended.
            spent += sum(int(ticks) for ticks in fields[11 : 15 if number == server else 13])
    return spent / TICKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.parked")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=2.0, help="share of one processor, in percent")
    arguments = parser.parse_args()
    met = True
    with lent(arguments.store) as url:
        began = time.monotonic()
        states = asyncio.run(park(url, arguments.tasks))
        counts = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        seconds = time.monotonic() - began
        print(f"{arguments.store.partition(':')[0]}: {counts}; parked in {seconds:.0f} s", flush=True)
        for adopt in (False, True):
            outcome = asyncio.run(rest(url, arguments.seconds, adopt=adopt))
            server = "" if outcome.server is None else f", the server {outcome.server:.2f} %"
            print(
                f"{'adopting' if adopt else 'open'}: {outcome.share:.2f} % of a processor{server}, "
                f"{outcome.wakeups:.1f} wake-ups a second",
                flush=True,
            )
            met = met and outcome.share + (outcome.server or 0.0) < arguments.limit
    print(f"limit {arguments.limit:g} %: {'met' if met else 'NOT MET'}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
