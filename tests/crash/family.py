"""A process that drives a task with twenty children on a budget, and is killed at its n-th request to a model.

python -m tests.crash.family FOLDER N
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from treadle import Agent, Happened, Limits, NotHappened, Runner, RunOptions, ScriptedModel, ToolContext, tool
from treadle.core.messages import ToolCall
from treadle.llm.scripted import call, turn

CHILDREN = 20
REQUESTS = 20


def write(file: Path, line: str) -> int:
    """Add a line to a file and return how many it has then."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
    return len(file.read_text().splitlines())


def boss(folder: Path, die_at: int = 0) -> Agent[Any]:
    """An agent that calls twenty others at once, each of which pays once and says so."""
    effects = folder / "effects"

    async def asked(request: Any) -> None:
        if write(folder / "requests", f"{request.task_id} {request.step}") == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.005)

    async def reconcile(lost: ToolCall, ctx: ToolContext) -> Happened | NotHappened:
        done = effects.exists() and ctx.idempotency_key in effects.read_text().split()
        return Happened("paid") if done else NotHappened()

    @tool(reconcile=reconcile)
    async def pay(ctx: ToolContext) -> str:
        write(effects, ctx.idempotency_key)
        return "paid"

    async def work(request: Any) -> Any:
        await asked(request)
        return turn("done") if request.turn or not request.tools else turn("", [call("pay")])

    async def spread(request: Any) -> Any:
        await asked(request)
        if request.turn or not request.tools:
            return turn("That is all.")
        return turn("", [call("worker", input=f"part {n}") for n in range(CHILDREN)])

    worker = Agent(ScriptedModel(work), name="worker", tools=[pay])
    return Agent(ScriptedModel(spread), name="boss", subagents=[worker])


def slow(folder: Path, die_at: int = 0) -> Agent[Any]:
    """An agent whose child takes a tenth of a second for each of its first turns, as many as the file `slow` says."""
    turns = int((folder / "slow").read_text())

    @tool(read_only=True)
    async def look(turn: int) -> str:
        return "nothing"

    async def work(request: Any) -> Any:
        if write(folder / "requests", request.task_id) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.turn >= turns:
            return turn("done")
        await asyncio.sleep(0.1)
        return turn("", [call("look", turn=request.turn)])

    worker = Agent(ScriptedModel(work), name="worker", tools=[look])
    calls = ScriptedModel([call("worker", input="go"), "That is all."])
    return Agent(calls, name="boss", subagents=[worker])


async def drive(folder: Path, die_at: int = 0) -> Any:
    """Run the task, or take it up, until it stops."""
    is_slow = (folder / "slow").exists()
    agent = slow(folder, die_at) if is_slow else boss(folder, die_at)
    limits = Limits(
        model_calls=1_000 if is_slow else REQUESTS
    )  # with one, a begin is durable before its request
    options = RunOptions(limits=limits, max_parallel_tools=3)
    async with Runner(folder / "journal.db", agents=[agent]) as runner:
        return await runner.run(agent, "All of it", task_id="job", options=options)


if __name__ == "__main__":
    asyncio.run(drive(Path(sys.argv[1]), int(sys.argv[2])))
