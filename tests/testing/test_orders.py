"""All orders of completion: equal for independent calls, and different where a tool depends on its siblings."""

import time
from typing import Any

import pytest

from treadle import Agent, ScriptedModel, tool
from treadle.core.messages import ToolResult
from treadle.errors import ConfigurationError
from treadle.llm.scripted import call, text
from treadle.testing.orders import every_order

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def look(n: int) -> str:
    return f"saw {n}"


@tool
def save(n: int) -> str:
    time.sleep(0.001)
    return f"saved {n}"


@tool(idempotent=True)
async def broken(n: int) -> str:
    raise OSError("no")


def model_answer(request: Any) -> Any:
    if request.turn == 0:
        return [call("look", n=1), call("save", n=2), call("broken", n=3), call("look", n=4)]
    results = [part.text for part in request.messages[-1].parts if isinstance(part, ToolResult)]
    return text("; ".join(results))


async def test_four_parallel_calls_come_out_alike_in_all_24_orders() -> None:
    orders = await every_order(Agent(ScriptedModel(model_answer), tools=[look, save, broken]), "go")
    assert len(orders) == len(set(orders.orders)) == 24
    assert orders.orders[0] == ("s1-0", "s1-1", "s1-2", "s1-3")
    assert (orders.result.final_text or "").startswith("saw 1; saved 2; ")


async def test_the_step_with_the_most_calls_is_taken_or_the_one_that_is_named() -> None:
    script = [call("look", n=1) + call("look", n=2), call("look", n=1), call("save", n=1) + call("look", n=2)]
    agent = Agent(ScriptedModel([*script, text("so")]), tools=[look, save])
    assert (await every_order(agent, "go")).step == "s1"
    assert (await every_order(agent, "go", step="s3")).orders == [("s3-0", "s3-1"), ("s3-1", "s3-0")]
    with pytest.raises(ConfigurationError, match="s2 has 1 calls"):
        await every_order(agent, "go", step="s2")


async def test_calls_whose_results_depend_on_the_order_are_found() -> None:
    ended: list[int] = []

    @tool
    async def race(n: int) -> str:
        ended.append(n)
        return f"{n} was number {len(ended)}"

    agent = Agent(ScriptedModel([call("race", n=1) + call("race", n=2), text("so")]), tools=[race])
    with pytest.raises(AssertionError, match="request 2 is"):
        await every_order(agent, "go")
