"""`python -m bench.threads`: what a turn of a long thread costs beside the first turns of a new one.

    python -m bench.threads [--turns 400] [--rounds 40] [--store memory|sqlite|URL] [--limit 1.5]

In each round, in random order: three turns of a new thread, of which the last is measured; one more turn of a thread
that has `--turns` already; and, in one round of eight, such a turn as the first thing that a new runner does. Times
are of the processor, of all threads of the process, so that a busy machine does less harm. Ends with 1 when the median
turn of the long thread costs more than `--limit` times that of a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call

FRESH = 8
"""In one of so many rounds a new runner is measured."""


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer(request: Any) -> Any:
    return "It is 3." if request.messages[-1].role == "tool" else call("add", a=1, b=2)


AGENT = Agent(ScriptedModel(answer), name="adder", tools=[add])


async def turn(runner: Runner, thread: str) -> float:
    """Run one turn and return what it cost, in milliseconds."""
    gc.collect()
    began = time.process_time()
    result = await runner.run(AGENT, "What is 1 + 2?", thread_id=thread)
    spent = time.process_time() - began
    assert result.state == "completed"
    return spent * 1_000


async def measure(store: Any, turns: int, rounds: int) -> dict[str, list[float]]:
    """Return what each kind of turn cost in each round."""
    costs: dict[str, list[float]] = {"new": [], "long": [], "fresh": []}
    async with Runner(store, agents=[AGENT]) as runner:
        for _ in range(turns):
            await runner.run(AGENT, "What is 1 + 2?", thread_id="long")

        async def new(name: str) -> float:
            return [await turn(runner, name) for _ in range(3)][-1]

        async def fresh() -> float:
            async with Runner(runner.store, agents=[AGENT]) as other:
                return await turn(other, "long")

        for number in range(rounds):
            kinds = ["new", "long", *(["fresh"] if number % FRESH == 0 else [])]
            random.shuffle(kinds)
            for kind in kinds:
                if kind == "new":
                    costs[kind].append(await new(f"new {number}"))
                else:
                    costs[kind].append(await (turn(runner, "long") if kind == "long" else fresh()))
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.threads", description=__doc__)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--store", default=None, help="memory, sqlite or an address; default both")
    parser.add_argument("--limit", type=float, default=1.5)
    arguments = parser.parse_args()
    worst = 0.0
    for kind in [arguments.store] if arguments.store is not None else ["memory", "sqlite"]:
        with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
            urls = {"memory": "memory:", "sqlite": Path(folder) / "journal.db"}
            costs = asyncio.run(measure(urls.get(kind, kind), arguments.turns, arguments.rounds))
        new, long, fresh = (median(costs[name]) for name in ("new", "long", "fresh"))
        worst = max(worst, long / new)
        print(
            f"{kind.partition(':')[0]:<12} third turn {new:6.2f} ms · turn {arguments.turns} {long:6.2f} ms"
            f" ({long / new:.2f}x) · the same, first of a process {fresh:7.2f} ms"
        )
    if worst > arguments.limit:
        print(
            f"a turn of a long thread costs {worst:.2f} times one of a new thread, more than {arguments.limit}"
        )
    return 1 if worst > arguments.limit else 0


if __name__ == "__main__":
    sys.exit(main())
