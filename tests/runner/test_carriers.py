"""The task of asyncio in which a drive awaits its tools: kept for what follows unless a tool left something."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from treadle import Agent, Runner, ScriptedModel, tool
from treadle.models import call

pytestmark = pytest.mark.anyio

kept: list[Any] = []
noted: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()


def here() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def nothing() -> None:
    pass


async def nothing_after_a_wait() -> None:
    async with asyncio.timeout(5):
        await asyncio.sleep(0.001)


async def a_timer() -> None:
    asyncio.get_running_loop().call_later(0.03, here().cancel)


async def a_timer_after_a_wait() -> None:
    await asyncio.sleep(0.001)
    await a_timer()
    await asyncio.sleep(0.001)


async def a_cancellation_that_was_taken_back() -> None:
    here().cancel()
    here().uncancel()


async def a_callback() -> None:
    here().add_done_callback(kept.append)


async def a_note() -> None:
    noted[here()] = "a tool was here"


def of(leaves: Callable[[], Awaitable[None]], seen: list[str]) -> Any:
    @tool
    async def leave() -> str:
        """Leave something behind."""
        seen.append(here().get_name())
        await leaves()
        return "left"

    @tool
    async def rest() -> str:
        """Rest for longer than what was left behind takes."""
        seen.append(here().get_name())
        await asyncio.sleep(0.06)
        return "rested"

    return [leave, rest]


@pytest.mark.parametrize(
    "leaves", [a_timer, a_timer_after_a_wait, a_cancellation_that_was_taken_back, a_callback, a_note]
)
async def test_what_a_tool_leaves_behind_is_not_in_the_task_of_what_comes_after(leaves: Any) -> None:
    seen = list[str]()
    model = ScriptedModel([call("leave"), call("rest"), "done"])
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, tools=of(leaves, seen)), "Go.")
    assert result.state == "completed"
    assert [execution.outcome for execution in result.tool_executions] == ["ok", "ok"]
    assert len(set(seen)) == 2


@pytest.mark.parametrize("leaves", [nothing, nothing_after_a_wait])
async def test_a_tool_that_leaves_nothing_behind_costs_no_task_of_its_own(leaves: Any) -> None:
    seen = list[str]()
    model = ScriptedModel([call("leave"), call("rest"), call("leave"), "done"])
    async with Runner("memory:") as runner:
        result = await runner.run(Agent(model, tools=of(leaves, seen)), "Go.")
    assert result.state == "completed"
    assert len(set(seen)) == 1
