"""Helpers for tests of running tasks: tools that wait until a gate opens, and readers of journals."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from treadle import Agent, Message, Runner, ScriptedModel, ToolContext, ToolResult, tool
from treadle.core.events import Event
from treadle.llm.scripted import call


class Gate:
    """A tool that notes when it was entered and returns when the gate opens."""

    def __init__(self, name: str = "work", result: Any = "done", **declared: Any) -> None:
        self.name = name
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = 0
        self.contexts: list[ToolContext[Any]] = []

        async def work(ctx: ToolContext[Any]) -> Any:
            """Work until the gate opens."""
            self.contexts.append(ctx)
            self.entered.set()
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return result

        self.tool = tool(work, name=name, **declared)

    @property
    def starts(self) -> int:
        return len(self.contexts)


def gate_agent(gate: Gate, *script: Any) -> Agent[Any]:
    """Return an agent whose model calls the gate and then answers, unless the script is another."""
    turns = script or (call(gate.name), "The end.")
    return Agent(ScriptedModel(list(turns)), name="worker", tools=[gate.tool])


async def journal(runner: Runner, task_id: str) -> list[Event]:
    """All durable events of a task at rest."""
    return [event async for event in runner.handle(task_id).events(deltas=False) if isinstance(event, Event)]


async def kinds(runner: Runner, task_id: str) -> list[str]:
    return [event.kind for event in await journal(runner, task_id)]


async def only(runner: Runner, task_id: str, kind: str) -> list[Any]:
    return [event for event in await journal(runner, task_id) if event.kind == kind]


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return once the condition holds; it is checked every few milliseconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what is waited for may happen in a thread
            await asyncio.sleep(0.002)


async def happened(handle: Any, kind: str, times: int = 1) -> Any:
    """Return the event of this kind once it is durable."""
    async for event in handle.events(deltas=False):
        if event.kind == kind:
            times -= 1
            if not times:
                return event
    raise AssertionError(f"the task stopped without {kind}")


def results_seen(messages: Any) -> list[str]:
    """Return the results of calls that a model sees, in their order."""
    return [part.text for message in messages for part in message.parts if isinstance(part, ToolResult)]


def assert_well_formed(messages: Any) -> None:
    """Assert that each call has exactly one result, right after it, and that ids are unique."""
    seen: Counter[str] = Counter()
    called: list[str] = []
    for message in messages:
        assert isinstance(message, Message)
        answered = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        assert answered == called
        called = [part.id for part in message.tool_calls]
        seen.update(called)
    assert not called
    assert all(times == 1 for times in seen.values())


async def assert_journal_makes_sense(runner: Runner, task_id: str) -> list[Event]:
    """Assert numbers without gaps, one end per call and per attempt, and an intact chain."""
    events = await journal(runner, task_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ends = Counter(event.call for event in events if event.kind == "tool_ended")  # type: ignore[attr-defined]
    assert all(times == 1 for times in ends.values()), ends
    attempts = 1 + sum(event.kind == "task_reopened" for event in events)
    assert sum(event.kind == "task_ended" for event in events) in (attempts, attempts - 1)
    assert (await runner.verify(task_id)).events == len(events)
    return events
