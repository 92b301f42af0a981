"""One failing call lost the results of its siblings."""

import asyncio

from treadle import Agent, ScriptedModel, tool
from treadle.llm.scripted import call, text
from treadle.testing import clock
from treadle.testing.orders import every_order


@tool
async def fine() -> str:
    return "fine"


@tool
async def raises() -> str:
    raise RuntimeError("broken")


@tool(read_only=True)
async def slow() -> str:
    await asyncio.sleep(10)
    return "slow"


def test_a_failing_call_leaves_its_siblings_their_results_in_every_order() -> None:
    model = ScriptedModel([call("fine") + call("raises") + call("slow"), text("so")])
    orders = clock.run(every_order(Agent(model, tools=[fine, raises, slow]), "go"))
    assert len(orders) == 6
    assert [execution.outcome for execution in orders.result.tool_executions] == ["ok", "error", "ok"]
