"""Ways of stepping, readers of journals, and waits that tests of running tasks share."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from treadle import Agent, Message, Runner, RunResult, Task, TaskStepOutput
from treadle.core.events import Event
from treadle.core.messages import ToolCall, ToolResult
from treadle.llm.scripted import turn
from treadle.runner.views import driver_of


def both(*calls: Any) -> Any:
    """Return a turn that calls several tools at once."""
    return turn(calls=list(calls))


async def step_to_answer(runner: Runner, task: Task | str, **how: Any) -> list[TaskStepOutput]:
    """Run the steps of a task until the last, as the guide does."""
    outputs: list[TaskStepOutput] = []
    while True:
        outputs.append(await runner.run_step(task, **how))
        assert len(outputs) < 20, "the task does not come to an end"
        if outputs[-1].is_last:
            return outputs


async def stepped(runner: Runner, agent: Agent[Any], input: Any, **how: Any) -> RunResult:
    task = await runner.create_task(agent, input, **how)
    await step_to_answer(runner, task)
    return await runner.finalize(task)


async def journal(runner: Runner, task: Task | str) -> list[Event]:
    """Return all durable events of a task."""
    return [event async for event in runner.handle(task).events(deltas=False) if isinstance(event, Event)]


async def kinds(runner: Runner, task: Task | str) -> list[str]:
    return [event.kind for event in await journal(runner, task)]


async def only(runner: Runner, task: Task | str, kind: str) -> list[Any]:
    """Return the events of one kind."""
    return [event for event in await journal(runner, task) if event.kind == kind]


def verdicts(report: Any) -> list[tuple[str, str]]:
    """Return each call that an undo took back, with its verdict."""
    return [(undone.call, undone.verdict) for undone in report.calls]


def roles_and_texts(messages: Any) -> list[tuple[str, str]]:
    """Return messages as (role, text); calls as the names of tools, results as their texts."""
    lines: list[tuple[str, str]] = []
    for message in messages:
        parts = [
            part.name if isinstance(part, ToolCall) else part.text
            for part in message.parts
            if hasattr(part, "text") or isinstance(part, (ToolCall, ToolResult))
        ]
        lines.append((message.role, " ".join(parts)))
    return lines


def results_seen(messages: Any) -> list[str]:
    """Return the results of calls that a model sees, in their order."""
    return [part.text for message in messages for part in message.parts if isinstance(part, ToolResult)]


def assert_well_formed(messages: Any) -> None:
    """Assert that each call has exactly one result, right after it, and that all ids are unique."""
    seen: set[str] = set()
    called: list[str] = []
    for message in messages:
        assert isinstance(message, Message)
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        assert results == called, f"{message.role} answers {results} where {called} was asked"
        called = [part.id for part in message.tool_calls]
        assert not seen & set(called), f"ids used twice: {seen & set(called)}"
        assert len(set(called)) == len(called)
        seen |= set(called)
    assert not called, f"never answered: {called}"


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


async def to_pause(runner: Runner, task_id: str) -> None:
    """Return once the driver of a task has read that it is to pause."""
    async with asyncio.timeout(10):
        while not (await driver_of(runner).cache.load(task_id)).state.pausing:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
