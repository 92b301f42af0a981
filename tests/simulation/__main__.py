"""Simulate many seeds: `python -m tests.simulation [--runs N] [--seed N] [--jobs N] [--log]`.

With `--seed` alone it repeats that one run and tells what happened in it. Prints what was reached; ends with 1 if a run
broke a promise, and names its seed.
"""

from __future__ import annotations

import random
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.coverage import missing
from tests.simulation.run import Outcome, simulate


def brief(seed: int) -> Outcome:
    """Run one seed; keep its story only if it went wrong."""
    outcome = simulate(seed)
    if not outcome.violations:
        outcome.log = []
    return outcome


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument(
        "--runs", type=int, default=None, help="how many seeds, 5,000 if no seed is given, else 1"
    )
    parser.add_argument("--seed", type=int, default=None, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if arguments.seed is not None and arguments.runs is None:
        outcome = simulate(arguments.seed)
        print(*outcome.log, *outcome.violations, f"digest {outcome.digest}", sep="\n")
        return 1 if outcome.violations else 0
    first = random.randrange(2**31) if arguments.seed is None else arguments.seed
    runs = arguments.runs or 5_000
    print(f"seeds {first} to {first + runs - 1}", flush=True)
    began, fired, broken = time.monotonic(), Counter[str](), 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(brief, range(first, first + runs), chunksize=20):
            fired.update(outcome.fired)
            if outcome.violations:
                broken += 1
                print(f"seed {outcome.seed}:", *outcome.violations[:3], sep="\n  ", flush=True)
    for name, times in sorted(fired.items()):
        print(f"{times:8}  {name}")
    print(
        f"{runs} runs in {time.monotonic() - began:.0f} s, {broken} broken; not reached: {missing(fired, runs)}"
    )
    return 1 if broken or missing(fired, runs) else 0


if __name__ == "__main__":
    sys.exit(main())
