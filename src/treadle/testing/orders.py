"""Every order in which parallel calls can end: the same task once for each, and all of them must come out alike.

    orders = await every_order(agent, "Tea and cake?")
    print(len(orders), orders.result.final_text)

Calls of one answer are independent: whichever ends first, the model has to see the same results in the same places.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import field
from itertools import permutations
from typing import Any

from treadle.agents.agent import Agent
from treadle.core import events as e
from treadle.core.data import mutable
from treadle.core.messages import Message
from treadle.engine.results import RunResult
from treadle.errors import ConfigurationError
from treadle.llm.default_layers import resolve
from treadle.ports import Tool, ToolContext, ToolOutput
from treadle.testing.audit import Evidence, audit_store
from treadle.testing.replay import journals
from treadle.testing.wrappers import WrappedModel, WrappedTool
from treadle.wiring import Runner


@mutable
class Orders:
    """What came of all orders.

    Args:
        step: the step whose calls were reordered.
        result: how the task ended, each time.
        orders: the orders in which the calls ended, by their ids.
    """

    step: str
    result: RunResult
    orders: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def __len__(self) -> int:
        return len(self.orders)


async def every_order(agent: Agent[Any], input: str, *, step: str | None = None, most: int = 4) -> Orders:
    """Run an agent once for each order in which the parallel calls of one step can end; return how all of them ended.

    Args:
        agent: its model has to answer alike to the same conversation, as a script does; its tools are really run.
        input: what it is asked.
        step: the id of the step, such as `s1`; by default that with the most calls.
        most: how many parallel calls are too many: 4 calls have 24 orders, 6 have 720.

    Raises:
        AssertionError: two orders came out differently, or a history was ill-formed; the text says where.
        ConfigurationError: there are no parallel calls, or too many.
    """
    model = _Asked(agent)
    plain, events = await _run(agent, model, input, None)
    batches = _batches(events)
    chosen = step or max(batches, key=lambda key: len(batches[key]), default="")
    calls = batches.get(chosen, [])
    if not 2 <= len(calls) <= most:
        raise ConfigurationError(
            f"every_order: step {chosen or 'none'} has {len(calls)} calls, not 2 to {most}"
        )
    found = Orders(chosen, plain)
    asked = model.asked
    for order in permutations(calls):
        model = _Asked(agent)
        result, journal = await _run(agent, model, input, order)
        ended = tuple(
            event.call for event in journal if isinstance(event, e.ToolEnded) and event.step == chosen
        )
        assert ended == order, f"the calls were to end as {order} and ended as {ended}"
        _alike(f"ends in the order {order}", (plain, events, asked), (result, journal, model.asked))
        found.orders.append(order)
    return found


def _batches(events: list[e.Event]) -> dict[str, list[str]]:
    """Return the calls of each step that began, in call order."""
    batches: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, e.ToolStarted) and event.call not in batches.setdefault(event.step, []):
            batches[event.step].append(event.call)
    return batches


def _alike(when: str, first: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    (plain, events, asked), (result, journal, asks) = first, other
    for name in ("state", "final_text", "output"):
        mine, theirs = getattr(result, name), getattr(plain, name)
        assert mine == theirs, f"when it {when}, {name} is {mine!r}, and {theirs!r} otherwise"
    for number, (mine, theirs) in enumerate(zip(asks, asked, strict=False), 1):
        assert mine == theirs, (
            f"when it {when}, the model's request {number} is {mine!r}, and {theirs!r} otherwise"
        )
    mine, theirs = Counter(map(_fact, journal)), Counter(map(_fact, events))
    assert mine == theirs, f"when it {when}, these events differ: {[*(mine - theirs)]}, {[*(theirs - mine)]}"


def _fact(event: e.Event) -> str:
    """Return what an event says, wherever it stands."""
    return f"{event.kind} { ({**journals.facts(event), 'seq': 0}) }"


async def _run(
    agent: Agent[Any], model: _Asked, input: str, order: tuple[str, ...] | None
) -> tuple[RunResult, list[e.Event]]:
    gate = _Gate(order or ())
    async with Runner("memory:") as runner:
        gated = agent.replace(model=model, tools=[_Gated(tool, gate) for tool in agent.tools])
        handle = await runner.start(gated, input, task_id="task", thread_id="thread")
        async for event in handle.events(deltas=False):
            if isinstance(event, e.ToolEnded):
                gate.ended(event.call)
        result = await handle.result()
        journal = await journals.journal_of(runner.store, "task")
        found = await audit_store(runner.store, Evidence(requests={"task": model.asked}))
    assert not found, "\n".join(map(str, found))
    return result, journal


class _Asked(WrappedModel):
    """A model whose requests are kept."""

    def __init__(self, agent: Agent[Any]) -> None:
        super().__init__(resolve(agent.model))
        self.asked: list[list[Message]] = []

    def stream(self, request: Any) -> Any:
        self.asked.append(list(request.messages))
        return super().stream(request)


class _Gate:
    """Lets calls end one by one, each once the end of the one before is in the journal."""

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
            place = self._order.index(call) + 1
            if place < len(self._order):
                self._may_end[self._order[place]].set()


class _Gated(WrappedTool):
    """A tool whose calls do what they do at once, and end when they may."""

    def __init__(self, tool: Tool, gate: _Gate) -> None:
        super().__init__(tool)
        self._gate = gate

    async def call(self, arguments: Any, ctx: ToolContext[Any]) -> ToolOutput:
        try:
            return await self._tool.call(arguments, ctx)
        finally:
            await self._gate.wait(ctx.call_id)
