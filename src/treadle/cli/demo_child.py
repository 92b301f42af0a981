"""The process that drives a demonstration's task, for its parent to start, watch and see die."""

from __future__ import annotations

import argparse
import asyncio
import sys

from treadle import Runner
from treadle.cli.demo_agent import Sabotage, demo_agent


def main() -> int:
    """Resume one task to its next stop; 0 if it then has its answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--model")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--sabotage", action="store_true")
    given = parser.parse_args()

    async def work() -> int:
        async with Runner(given.store, agents=[demo_agent(given.model, pace=given.pace)]) as runner:
            result = await runner.resume(given.task, context=Sabotage() if given.sabotage else None)
            return 0 if result.state in ("completed", "degraded") else 1

    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
