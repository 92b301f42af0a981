"""An approval was refused as expired after the machine's clock was set forward, though its task had waited no time.

The verb compared the clock with the expiry, which is a time of the task. A drive has one time, also when a person sets
the clock meanwhile, and the drive reads the inbox: it decides whether a decision came in time.
"""

import asyncio
from typing import Any

from treadle import Agent, RunOptions, ScriptedModel, tool
from treadle.llm.scripted import call
from treadle.testing import clock

PAID: list[int] = []


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return "paid"


@tool
async def work() -> str:
    """Work for ten seconds."""
    await asyncio.sleep(10)
    return "done"


def test_an_approval_holds_though_the_clock_was_set_past_its_expiry_while_the_task_is_driven() -> None:
    async def story() -> Any:
        system = clock.SystemClock()
        model = ScriptedModel([[call("pay", amount=5), call("work")], "Done."])
        agent = Agent(model, name="payer", tools=[pay, work])
        async with clock.runner(clock=system, options=RunOptions(approval_expires=3_600)) as runner:
            handle = await runner.start(agent, "Go.")
            async for event in handle.events():
                if event.kind == "approval_requested":
                    system.set_forward(7_200)
                    await handle.approve()
            return await handle.result()

    result = clock.run(story())
    assert [execution.outcome for execution in result.tool_executions] == ["ok", "ok"]
    assert PAID == [5]
