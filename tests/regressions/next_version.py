"""The next version of Treadle, in a separate process: it knows one more kind of event than this version.

    python -m tests.regressions.next_version leave|leave_child|drive STORE FOLDER

`leave` asks a person before it pays, and crashes; `leave_child` does so in a task below; `drive` goes on with the task.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from treadle import Agent, Breakpoint, Runner, RunOptions, ScriptedModel, tool
from treadle.core import events
from treadle.core.data import mutable
from treadle.core.rules import fold
from treadle.drivers.continuing import lift_stop
from treadle.drivers.owned_tasks import OwnedTask
from treadle.models import call, text, turn
from treadle.ports import ToolContext
from treadle.testing.ledger import Ledger

TASK = "order"
KNOWN = getattr(events, "JOURNAL_FORMAT", 1)


def agent(folder: Path, thinks: float = 0.0) -> Agent[Any]:
    """An agent whose one tool writes, and notes in a ledger that it ran."""
    ledger = Ledger(folder / "ledger.jsonl")

    @tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay once."""
        with ledger.call("pay", ctx):
            pass
        return "paid"

    return Agent(
        ScriptedModel([turn(calls=call("pay"), delay=thinks), text("All paid.")]), name="payer", tools=[pay]
    )


def parent(folder: Path, thinks: float = 0.0) -> Agent[Any]:
    """An agent whose one tool is the agent that pays."""
    model = ScriptedModel([call("payer", input="Pay."), text("Bought.")])
    return Agent(model, name="buyer", subagents=[agent(folder, thinks)])


@mutable
class ApprovalAsked(events.Event):
    """A person is to approve a call before it starts: what an older driver must not overlook."""

    since: ClassVar[int] = KNOWN + 1
    call: str


def learn() -> None:
    """Make this process one of the next version."""
    vars(events)["JOURNAL_FORMAT"] = KNOWN + 1
    events.EVENTS[ApprovalAsked.kind] = ApprovalAsked
    fold._RULES[ApprovalAsked] = lambda state, event: None


async def child_at_work(runner: Runner) -> OwnedTask:
    """Return the child of the task, once it is driven."""
    while True:
        await asyncio.sleep(0.01)
        for owned in runner._driver.owned.tasks.values():
            if owned.state.parent is not None and owned.drive is not None:
                return owned


async def leave(owned: OwnedTask) -> None:
    """Ask for an approval, and die."""
    owned.writer.record(ApprovalAsked("s1-0"))
    await owned.writer.durable()
    os._exit(0)


async def main(mode: str, store: str, folder: Path) -> None:
    learn()
    payer, buyer = agent(folder), parent(folder)
    async with Runner(store, agents=[payer, buyer]) as runner:
        if mode == "leave":
            options = RunOptions(break_on=[Breakpoint(before_tool="pay")])
            await runner.run(payer, "Pay.", task_id=TASK, options=options)
            owned = await runner._driver.ownership.claim(TASK)
            lift_stop(owned)
            await leave(owned)
        if mode == "leave_child":
            await runner.start(parent(folder, thinks=60.0), "Pay.", task_id=TASK)
            async with asyncio.timeout(30):
                await leave(await child_at_work(runner))
        result = await runner.resume(TASK, options=RunOptions(break_on=[]))
        print(result.state, result.final_text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
