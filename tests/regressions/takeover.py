"""A driver in a process of its own that can be stopped and continued, for scenarios with two writers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.forked import Forked
from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call, text
from treadle.ports import ToolContext
from treadle.testing.ledger import Ledger

LEASE = 0.5


def agent(folder: Path, seconds: float) -> Agent[Any]:
    """An agent of two steps; its tools note in a ledger what they do, and the first takes some seconds."""
    ledger = Ledger(folder / "ledger.jsonl")

    @tool(idempotent=True)
    async def slow(ctx: ToolContext[Any]) -> str:
        """Take a while."""
        with ledger.call("slow", ctx):
            await asyncio.sleep(seconds)
        return "done"

    @tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay once."""
        with ledger.call("pay", ctx):
            pass
        return "paid"

    model = ScriptedModel([call("slow"), call("pay"), text("All done.")])
    return Agent(model, name="worker", tools=[slow, pay])


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/journal.db?lease={LEASE}"


async def main(folder: Path, seconds: float, verb: str, task_id: str) -> None:
    """Drive a task; print as JSON the outcome that the caller saw, the refused commits and the events seen."""
    worker = agent(folder, seconds)
    async with Runner(store_url(folder), agents=[worker]) as runner:
        seen: list[int] = []

        async def watch() -> None:
            seen.extend([event.seq async for event in runner.handle(task_id).events(deltas=False)])

        if verb == "run":
            driving = await runner.start(worker, "Work", task_id=task_id)
            watching = asyncio.ensure_future(watch())
            outcome = (await driving.result()).state
            await watching
        elif verb == "resume":
            outcome = (await runner.resume(task_id)).state
        else:
            try:
                outcome = (await runner.run_step(task_id)).state
            except Exception as error:  # noqa: BLE001  the error that the caller gets is tested
                outcome = f"{type(error).__name__}: {error}"
        print(json.dumps({"outcome": outcome, "fenced": runner.store.fenced, "seen": seen}), flush=True)


@contextmanager
def driver(folder: Path, verb: str, seconds: float, task_id: str = "t") -> Iterator[subprocess.Popen[str]]:
    """Start a process that drives the task; it is killed at the end of the block, stopped or not."""
    command = [sys.executable, "-m", "tests.regressions.takeover", str(folder), str(seconds), verb, task_id]
    process = Forked(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def outcome_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a driver printed at its end."""
    output, _ = await asyncio.wait_for(asyncio.to_thread(process.communicate), 20)
    return json.loads(output)


async def tool_entered(folder: Path, tool_name: str, times: int = 1) -> None:
    """Return once a tool was tool_entered so many times."""
    ledger = Ledger(folder / "ledger.jsonl")
    async with asyncio.timeout(20):
        while sum(e.kind == "start" and e.tool == tool_name for e in ledger.entries()) < times:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def stop_past_the_lease(runner: Runner, process: subprocess.Popen[str], task_id: str = "t") -> None:
    """Stop a driver and return once its lease has passed."""
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(10):
        while not await runner.store.orphans(10):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def effects(folder: Path) -> list[tuple[str, str]]:
    """Return the lines of the ledger, in order."""
    return [(e.kind, e.tool) for e in Ledger(folder / "ledger.jsonl").entries()]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:5]))
