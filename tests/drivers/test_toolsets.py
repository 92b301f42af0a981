"""Toolsets in a driver process: connected once, and agents bound to what they list."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, ToolSpec, tool
from treadle.drivers.toolsets import ConnectedToolsets
from treadle.errors import ToolsetUnavailable
from treadle.models import call, text
from treadle.ports import Tool, Toolset

pytestmark = pytest.mark.anyio


@tool(name="shelf__count", read_only=True)
def count() -> int:
    """Count."""
    return 7


@tool(name="shelf__sort")
def sort() -> str:
    """Sort."""
    return "sorted"


class Shelf:
    """A toolset whose tools are what a test puts there; it counts its connections."""

    name = "shelf"

    def __init__(self, *tools: Tool) -> None:
        self.listed: Sequence[Tool] = tools
        self.connected = self.closed = 0

    def facts(self) -> Any:
        return ["shelf"]

    def known_specs(self) -> tuple[ToolSpec, ...] | None:
        return None

    def connect(self) -> "Shelf":
        self.connected += 1
        return self

    async def tools(self) -> Sequence[Tool]:
        if not self.listed:
            raise ToolsetUnavailable("the shelf is empty", toolset="shelf")
        return self.listed

    async def close(self) -> None:
        self.closed += 1


async def test_an_agent_is_bound_anew_only_when_its_toolset_lists_other_tools() -> None:
    shelf, toolsets = Shelf(count), ConnectedToolsets()
    assert isinstance(shelf, Toolset)
    agent = Agent(ScriptedModel(["ok"]), tools=[shelf])
    bound = await toolsets.bind(agent)
    assert [each.spec.name for each in bound.tools] == ["shelf__count"]
    assert await toolsets.bind(agent) is bound
    shelf.listed = (count, sort)
    again = await toolsets.bind(agent)
    assert [each.spec.name for each in again.tools] == ["shelf__count", "shelf__sort"]
    assert again.fingerprint == bound.fingerprint == agent.fingerprint
    assert shelf.connected == 1
    await toolsets.close()
    assert shelf.closed == 1


async def test_a_runner_drives_with_listed_tools_and_closes_their_connection() -> None:
    shelf = Shelf(count)
    agent = Agent(ScriptedModel([call("shelf__count"), text("ok")]), tools=[shelf, sort])
    async with Runner("memory:") as runner:
        result = await runner.run(agent, "go")
        assert result.tool_executions[0].output == 7
        kinds = [event.kind async for event in runner.handle(result.task_id).events()]
        assert "version_changed" not in kinds
    assert (shelf.connected, shelf.closed) == (1, 1)


async def test_a_task_is_left_as_it_is_when_a_toolset_cannot_be_had() -> None:
    shelf = Shelf()
    agent = Agent(ScriptedModel([call("shelf__count"), text("ok")]), name="clerk", tools=[shelf])
    async with Runner("memory:", agents=[agent]) as runner:
        with pytest.raises(ToolsetUnavailable, match="the shelf is empty"):
            await runner.run(agent, "go", task_id="t1")
        assert (await runner.get_task("t1")).state == "created"
        shelf.listed = (count,)
        assert (await runner.resume("t1")).state == "completed"


class SlowShelf(Shelf):
    """A toolset that is never ready, until a test says so."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__(*tools)
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()

    async def tools(self) -> Sequence[Tool]:
        self.asked.set()
        await self.ready.wait()
        return self.listed


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("verb", "word"), [("cancel", "cancelled"), ("pause", "paused"), ("interrupt", "interrupted")]
)
async def test_a_task_that_waits_for_its_toolset_obeys_commands(verb: str, word: str) -> None:
    shelf = SlowShelf(count)
    agent = Agent(ScriptedModel([call("shelf__count"), text("ok")]), name="clerk", tools=[shelf])
    async with Runner("memory:", agents=[agent]) as runner:
        handle = await runner.start(agent, "go")
        await shelf.asked.wait()
        await asyncio.wait_for(getattr(runner, verb)(handle.task_id), 5)
        assert (await asyncio.wait_for(handle.result(), 5)).state == word
        if verb != "cancel":
            shelf.ready.set()
            assert (await runner.resume(handle.task_id)).state == "completed"


async def test_a_task_that_waits_for_its_toolset_is_released_when_its_runner_closes(tmp_path: Path) -> None:
    shelf = SlowShelf(count)
    agent = Agent(ScriptedModel([call("shelf__count"), text("ok")]), name="clerk", tools=[shelf])
    async with Runner(tmp_path / "journal.db", agents=[agent]) as runner:
        handle = await runner.start(agent, "go")
        await shelf.asked.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert (await asyncio.wait_for(handle.result(), 5)).state == "interrupted"
    shelf.ready.set()
    async with Runner(tmp_path / "journal.db", agents=[agent], adopt=True) as runner:
        deadline = time.monotonic() + 20
        while (await runner.get_task(handle.task_id)).state != "completed":
            assert time.monotonic() < deadline, "another driver adopts it"
            await asyncio.sleep(0.05)


def handing_over(to: Agent[Any]) -> Agent[Any]:
    """Return an agent that hands its conversation over at once."""
    return Agent(ScriptedModel([call(f"transfer_to_{to.name}")]), name="desk", handoffs=[to])


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("verb", "word"), [("cancel", "cancelled"), ("pause", "paused"), ("interrupt", "interrupted")]
)
async def test_a_task_obeys_commands_while_the_agent_it_is_handed_to_waits_for_its_toolset(
    verb: str, word: str
) -> None:
    shelf = SlowShelf(count)
    clerk = Agent(ScriptedModel([call("shelf__count"), text("7")]), name="clerk", tools=[shelf])
    desk = handing_over(clerk)
    async with Runner("memory:", agents=[desk]) as runner:
        handle = await runner.start(desk, "go")
        await shelf.asked.wait()
        await asyncio.wait_for(getattr(runner, verb)(handle.task_id), 5)
        assert (await asyncio.wait_for(handle.result(), 5)).state == word
        if verb != "cancel":
            shelf.ready.set()
            result = await runner.resume(handle.task_id)
            assert (result.state, result.agent, result.output) == ("completed", "clerk", "7")


@pytest.mark.virtual_time
async def test_a_message_does_not_end_the_wait_of_a_task_that_is_handed_over() -> None:
    shelf = SlowShelf(count)
    clerk = Agent(ScriptedModel([text("done")]), name="clerk", tools=[shelf])
    desk = handing_over(clerk)
    async with Runner("memory:", agents=[desk]) as runner:
        handle = await runner.start(desk, "go")
        await shelf.asked.wait()
        await runner.send(handle.task_id, "hurry")
        shelf.asked.clear()
        await asyncio.wait_for(shelf.asked.wait(), 5)
        shelf.ready.set()
        result = await asyncio.wait_for(handle.result(), 5)
    assert (result.state, result.agent) == ("completed", "clerk")


async def test_a_task_is_handed_over_once_the_toolset_of_the_next_agent_is_to_be_had() -> None:
    shelf = Shelf()
    clerk = Agent(ScriptedModel([call("shelf__count"), text("7")]), name="clerk", tools=[shelf])
    desk = handing_over(clerk)
    async with Runner("memory:", agents=[desk]) as runner:
        with pytest.raises(ToolsetUnavailable, match="the shelf is empty"):
            await runner.run(desk, "go", task_id="t1")
        shelf.listed = (count,)
        result = await runner.resume("t1")
    assert (result.state, result.agent) == ("completed", "clerk")
