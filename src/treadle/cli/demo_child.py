"""The process that drives a demonstration's task, for its parent to start, watch and see die."""

from __future__ import annotations

import asyncio
import sys

from treadle import Runner
from treadle.cli.demo_agent import demo_agent


async def drive(store: str, task_id: str, pace: str, model: str = "", context: str = "") -> int:
    """Resume one task to its next stop; return 0 if it then has its answer.

    Args:
        store: the store's URL.
        task_id: which task.
        pace: seconds before each answer of the scripted model.
        model: `provider:model`; empty for the scripted one.
        context: `SABOTAGE` for a process that is to die, else empty.
    """
    async with Runner(store, agents=[demo_agent(model or None, pace=float(pace))]) as runner:
        result = await runner.resume(task_id, context=context or None)
        return 0 if result.state in ("completed", "degraded") else 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(drive(*sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(130)
