"""Run a task once for each order in which its parallel calls can end, and require the same result of all runs.

    orders = await every_order(agent, "Tea and cake?")
    print(len(orders), orders.result.final_text)

The calls of one answer are independent. So in each order the model must see the same results in the same places.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field
from itertools import permutations
from typing import Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import frozen, mutable
from treadle.core.messages import Message
from treadle.errors import ConfigurationError
from treadle.llm.default_layers import resolve
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.replay import recording
from treadle.results.run_result import RunResult
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.wrappers import WrappedModel, WrappedTool
from treadle.wiring import Runner


@mutable
class Orders:
    """The orders that ran, and their common result.

    Args:
        step: the step whose calls were reordered.
        result: the task's result.
        orders: the orders in which the calls ended, by their ids.
    """

    step: str
    result: RunResult
    orders: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def __len__(self) -> int:
        return len(self.orders)


async def every_order(agent: Agent[Any], input: str, *, step: str | None = None, most: int = 4) -> Orders:
    """Run an agent once for each order in which the parallel calls of one step can end; return the orders.

    Args:
        agent: its model must answer equal conversations equally, as a script does; its tools really run.
        input: the first message of the task.
        step: the id of the step, such as `s1`; by default the step with the most calls.
        most: maximum number of parallel calls of the step; 4 calls have 24 orders, 6 have 720.

    Raises:
        AssertionError: two orders had different results, or a conversation was ill-formed; the error names the place.
        ConfigurationError: the step has no parallel calls, or too many.
    """
    first = await _run(agent, input, ())
    calls_by_step = _calls_by_step(first.events)
    chosen = step or max(calls_by_step, key=lambda key: len(calls_by_step[key]), default="")
    calls = calls_by_step.get(chosen, [])
    if not 2 <= len(calls) <= most:
        raise ConfigurationError(
            f"every_order: step {chosen or 'none'} has {len(calls)} calls, not 2 to {most}"
        )
    orders = Orders(chosen, first.result)
    for order in permutations(calls):
        run = await _run(agent, input, order)
        ends = [event for event in run.events if isinstance(event, e.ToolEnded) and event.step == chosen]
        ended = tuple(event.call for event in ends)
        assert ended == order, f"the calls were to end as {order} and ended as {ended}"
        _assert_alike(f"ends in the order {order}", first, run)
        orders.orders.append(order)
    return orders


@frozen
class _Run:
    """One run of the task: its result, its journal, and the conversations sent to its model."""

    result: RunResult
    events: list[e.Event]
    requests: list[list[Message]]


def _calls_by_step(events: list[e.Event]) -> dict[str, list[str]]:
    """Return the begun calls by step, in call order."""
    calls: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, e.ToolStarted) and event.call not in calls.setdefault(event.step, []):
            calls[event.step].append(event.call)
    return calls


def _assert_alike(moment: str, first: _Run, other: _Run) -> None:
    for name in ("state", "final_text", "output"):
        actual, expected = getattr(other.result, name), getattr(first.result, name)
        assert actual == expected, f"when it {moment}, {name} is {actual!r}, and {expected!r} otherwise"
    for number, (actual, expected) in enumerate(zip(other.requests, first.requests, strict=False), 1):
        text = f"when it {moment}, the model's request {number} is {actual!r}, and {expected!r} otherwise"
        assert actual == expected, text
    actual, expected = Counter(map(_fact, other.events)), Counter(map(_fact, first.events))
    differing = f"{[*(actual - expected)]}, {[*(expected - actual)]}"
    assert actual == expected, f"when it {moment}, these events differ: {differing}"


def _fact(event: e.Event) -> str:
    """Return an event as text, without its number."""
    return f"{event.kind} { ({**recording.facts(event), 'seq': 0}) }"


async def _run(agent: Agent[Any], input: str, order: tuple[str, ...]) -> _Run:
    """Run the task; its calls end in `order`, or in their natural order if it is empty."""
    gate, model = _Gate(order), _RecordingModel(agent)
    async with Runner("memory:") as runner:
        gated = agent.replace(model=model, tools=[_GatedTool(tool, gate) for tool in agent.tools])
        handle = await runner.start(gated, input, task_id="task", thread_id="thread")
        async for event in handle.events(deltas=False):
            if isinstance(event, e.ToolEnded):
                gate.ended(event.call)
        result = await handle.result()
        events = await recording.journal_of(runner.store, "task")
        violations = await audit_store(runner.store, Evidence(requests={"task": model.requests}))
    assert not violations, "\n".join(map(str, violations))
    return _Run(result, events, model.requests)


class _RecordingModel(WrappedModel):
    """A model that records the conversations sent to it."""

    def __init__(self, agent: Agent[Any]) -> None:
        super().__init__(resolve(agent.model))
        self.requests: list[list[Message]] = []

    def stream(self, request: Any) -> Any:
        self.requests.append(list(request.messages))
        return super().stream(request)


class _Gate:
    """Lets calls end one by one, each after the previous end is in the journal."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self._order = order
        self._ready: set[str] = set()
        self._may_end = {call: asyncio.Event() for call in order}

    async def wait(self, call: str) -> None:
        if call in self._may_end:
            self._ready.add(call)
            if len(self._ready) == len(self._order):
                self._may_end[self._order[0]].set()
            await self._may_end[call].wait()

    def ended(self, call: str) -> None:
        if call in self._may_end:
            following = self._order.index(call) + 1
            if following < len(self._order):
                self._may_end[self._order[following]].set()


class _GatedTool(WrappedTool):
    """A tool whose calls take effect at once and end when the gate opens."""

    def __init__(self, tool: Tool, gate: _Gate) -> None:
        super().__init__(tool)
        self._gate = gate

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        try:
            return await self._tool.call(arguments, ctx)
        finally:
            await self._gate.wait(ctx.call_id)
