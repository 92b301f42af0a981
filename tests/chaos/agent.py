"""The agent of the storm: its tools take a while and note in a ledger what they did."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from treadle import Agent, ScriptedModel, tool
from treadle.models import call, text
from treadle.ports import ToolContext
from treadle.testing.ledger import Ledger

STEPS = int(os.environ.get("CHAOS_STEPS", "10"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "0.1"))
LEDGER = Ledger(os.environ.get("CHAOS_LEDGER", "ledger.jsonl"), durable=False)


async def _work() -> None:
    await asyncio.sleep(SECONDS * random.uniform(0.5, 1.5))


@tool(idempotent=True)
async def put(ctx: ToolContext[Any]) -> str:
    """Put something in its place; twice is once."""
    with LEDGER.call("put", ctx, effect="idempotent"):
        await _work()
    return "put"


@tool
async def post(ctx: ToolContext[Any]) -> str:
    """Post something; twice is two."""
    with LEDGER.call("post", ctx):
        await _work()
    return "posted"


calls = [call("put" if number % 2 else "post") for number in range(STEPS - 1)]
agent = Agent(ScriptedModel([*calls, text("All done.")]), name="worker", tools=[put, post])
