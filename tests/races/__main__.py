"""Races of two callers on one task: `make races`.

    python -m tests.races [--pairs 2000] [--store memory|sqlite|postgres|URL] [--processes 1|2] [--seed N]
                          [--only VERB ...]

Without `--store` and `--processes`: all of them, so many pairs each.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.races import rules
from tests.races.acts import AGENTS
from tests.races.pairs import Races, Report
from tests.races.rules import RULES
from treadle import Runner
from treadle.stores.memory import MemoryStore
from treadle.testing.postgres import PostgresServer


async def race(store: str, processes: int, pairs: int, seed: int, only: list[str]) -> Report:
    """Race on a store that is given by its URL, or is `memory`."""
    at = MemoryStore() if store == "memory" else store
    async with Runner(at, agents=list(AGENTS.values())) as runner:
        return await Races(runner, seed, store if processes == 2 else None, only=only).run(pairs)


async def race_by_rules(store: str, processes: int, times: int, seed: int) -> list[str]:
    """Race verbs of which a rule lets only one win; see `tests/races/rules.py`."""
    at = MemoryStore() if store == "memory" else store
    async with Runner(at, agents=list(AGENTS.values())) as runner:
        return await rules.race(runner, times, seed, store if processes == 2 else None)


def places(wanted: str | None, processes: int | None, stack: ExitStack) -> Iterator[tuple[str, str, int]]:
    """Yield the name of each store to race on, its URL, and in how many processes."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server: PostgresServer | None = None
    for name in ("memory", "sqlite", "postgres") if wanted is None else (wanted,):
        for number in (1, 2) if processes is None else (processes,):
            url = name
            if name == "memory" and number == 2:
                continue
            if name == "sqlite":
                url = f"sqlite:///{folder}/{number}.db"
            elif name == "postgres":
                server = server or stack.enter_context(PostgresServer())
                url = server.in_schema(f"races{number}")
            yield name, url, number


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.races")
    parser.add_argument("--pairs", type=int, default=2_000, help="of verbs, on each store")
    parser.add_argument("--store", help="memory, sqlite, postgres, or a URL; by default all three")
    parser.add_argument("--processes", type=int, choices=(1, 2), help="by default both")
    parser.add_argument("--only", nargs="+", default=[], metavar="VERB", help="such as: cancel run_step")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    good = True
    with ExitStack() as stack:
        for name, url, processes in places(arguments.store, arguments.processes, stack):
            print(f"{name}, processes: {processes}, seed {arguments.seed}", flush=True)
            began = time.monotonic()
            report = asyncio.run(race(url, processes, arguments.pairs, arguments.seed, arguments.only))
            print(f"{report}\n{time.monotonic() - began:.0f} s\n", flush=True)
            good = good and report.good
            if not arguments.only:
                times = max(1, arguments.pairs // 100)
                wrong = asyncio.run(race_by_rules(url, processes, times, arguments.seed))
                print(
                    f"{times} of each of {len(RULES)} rules, {len(wrong)} broken", *wrong[:12], "", sep="\n"
                )
                good = good and not wrong
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
