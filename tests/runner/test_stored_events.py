"""Events read from a journal, from anywhere in it: which tool, and which agents, they tell of."""

from typing import Any

import pytest

from tests.cast import calculator
from treadle import Agent, Runner, ScriptedModel
from treadle.core.events import Event
from treadle.models import call, text
from treadle.runner.stored_events import StoredEvents

pytestmark = pytest.mark.anyio


def told(event: Event) -> tuple[Any, ...]:
    return event.seq, event.kind, event.agent_path, getattr(event, "tool", None)


async def check_from_everywhere(runner: Runner, task_id: str) -> None:
    """Each event tells the same wherever the read begins, with and without the state of the task."""
    everything = [told(event) for event in await StoredEvents(runner.store, task_id).after(0)]
    state = (await runner._cache.load(task_id)).state
    assert len(everything) > 5
    for begin in range(len(everything)):
        for known in (None, state):
            stored = StoredEvents(runner.store, task_id, known)
            assert [told(event) for event in await stored.after(begin, begin + 3)] == everything[
                begin : begin + 3
            ]
            assert [told(event) for event in await stored.after(begin + 3)] == everything[begin + 3 :]


async def test_an_event_tells_of_its_tool_wherever_the_read_begins(runner: Runner) -> None:
    await check_from_everywhere(runner, (await runner.run(calculator(), "?")).task_id)


async def test_an_event_tells_of_its_tool_also_after_an_undo_and_in_a_fork(runner: Runner) -> None:
    agent = calculator(call("add", a=1, b=2), call("add", a=3, b=4), call("multiply", a=3, b=4), "12")
    task = await runner.create_task(agent, "?")
    await runner.run_step(task)
    await runner.run_step(task)
    await runner.undo_step(task)
    await runner.resume(task)
    await check_from_everywhere(runner, task.task_id)
    fork = await runner.fork(task, at="s1")
    await runner.resume(fork, agent=calculator("forked"))
    await check_from_everywhere(runner, fork.task_id)


async def test_an_event_tells_of_the_agent_that_had_the_conversation(runner: Runner) -> None:
    second = Agent(ScriptedModel([text("done")]), name="second")
    first = Agent(
        ScriptedModel([call("transfer_to_second", reason="it knows")]), name="first", handoffs=[second]
    )
    result = await runner.run(first, "?")
    assert result.agent == "second"
    await check_from_everywhere(runner, result.task_id)
    paths = {event.agent_path for event in await StoredEvents(runner.store, result.task_id).after(0)}
    assert paths == {("first",), ("second",)}


async def test_an_event_of_a_child_tells_of_the_agents_above_it(runner: Runner) -> None:
    below = Agent(ScriptedModel([call("add", a=1, b=2), text("3")]), name="below", tools=calculator().tools)
    above = Agent(ScriptedModel([call("below", input="1 + 2?"), text("3")]), name="above", subagents=[below])
    result = await runner.run(above, "?")
    (child,) = result.subagent_executions
    await check_from_everywhere(runner, child.task_id)
    events = await StoredEvents(runner.store, child.task_id).after(0)
    assert {event.agent_path for event in events} == {("above", "below")}
