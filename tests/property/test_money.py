"""The cost of a task is the sum of the costs in its journal, to the pico-dollar, after any interruption."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Agent, Message, ModelAnswer, Runner, Text, ToolCall, tool
from treadle.core import events as e
from treadle.core.model import SideCall, Usage
from treadle.core.spending import as_dollars
from treadle.errors import ModelError
from treadle.stores.memory import MemoryStore

tokens = st.integers(0, 10**6)
usages = st.builds(Usage, tokens, tokens)
requests = st.lists(
    st.tuples(
        usages,
        st.sampled_from(["a:1", "b:2", "nobody:knows"]),
        st.lists(st.builds(SideCall, st.sampled_from(["a:1", "b:2"]), usages, st.just("lost")), max_size=2),
        st.sampled_from(["answers", "answers", "fails", "is asked again"]),
    ),
    min_size=1,
    max_size=6,
)
PRICES = {"a:1": Decimal("0.0000000375"), "b:2": Decimal("0.000015")}


@tool(read_only=True)
async def look() -> str:
    return "seen"


class Told:
    """A model that follows a script, request by request, and then answers at no cost."""

    name = "a:1"

    def __init__(self, script: list[Any]) -> None:
        self.script = list(script)

    async def stream(self, request: Any) -> AsyncIterator[ModelAnswer]:
        if not self.script:
            yield ModelAnswer(Message("assistant", (Text("Done."),)), usage=Usage(0, 0))
            return
        usage, model, also, outcome = self.script.pop(0)
        if outcome != "answers":
            again_in = 0 if outcome == "is asked again" else None
            raise ModelError(
                "no", kind="server", again_in=again_in, model=model, also=tuple(also), usage=usage
            )
        message = Message("assistant", (ToolCall("", "look", {}),))
        yield ModelAnswer(message, "tool_calls", usage, model, tuple(also))


def price(model: str, usage: Usage) -> Decimal | None:
    return usage.total_tokens * PRICES[model] if model in PRICES else None


async def run_script(script: list[Any], undo: bool) -> None:
    async with Runner(MemoryStore(), prices=price) as runner:
        agent = Agent(Told(script), name="told", tools=[look])
        result = await runner.run(agent, "go")
        for _ in script:
            if result.state != "failed":
                break
            if undo and result.steps:
                await runner.undo_step(result.task_id)
            result = await runner.resume(result.task_id)
        events = [event async for event in runner.handle(result.task_id).events(deltas=False)]
        ends = [event for event in events if isinstance(event, (e.ModelReturned, e.ModelFailed))]
        paid = [(end.usage, end.cost) for end in ends]
        paid += [(side.usage, side.cost) for end in ends for side in end.also]
        known = [cost for usage, cost in paid if usage.total_tokens]
        assert result.usage.total_tokens == sum(usage.total_tokens for usage, _ in paid)
        assert result.cost == (None if None in known else as_dollars(sum(cost or 0 for cost in known)))
        assert (result.cost is None) == bool(result.usage.unpriced)
        if not undo:
            steps = await runner.get_completed_steps(result.task_id)
            costs = [step.cost for step in steps]
            assert result.cost == (None if None in costs else sum(cost or 0 for cost in costs))


@settings(max_examples=40, deadline=None)
@given(requests, st.booleans())
def test_the_cost_of_a_task_is_the_sum_in_its_journal(script: list[Any], undo: bool) -> None:
    asyncio.run(run_script(script, undo))
