"""Subscriptions begin with the call that makes them, and leave nothing behind if they are never read."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.runner.acts import until
from treadle import Agent, Runner, ScriptedModel
from treadle.llm.scripted import text
from treadle.runner.watching import Subscription, in_event_loop

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_garbage")]


def counted(left: list[str]) -> Subscription[int]:
    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            left.append("generator")

    return Subscription(items(), lambda: left.append("subscription"))


async def test_a_subscription_that_was_read_is_left_once_by_its_generator() -> None:
    left: list[str] = []
    assert [item async for item in counted(left)] == [1, 2]
    broken_off = counted(left)
    assert await anext(broken_off) == 1
    await broken_off.aclose()
    del broken_off
    gc.collect()
    await asyncio.sleep(0)
    assert left == ["generator", "generator"]


async def test_a_subscription_that_was_never_read_is_left_when_it_is_closed_or_dropped() -> None:
    left: list[str] = []
    await counted(left).aclose()
    counted(left)
    gc.collect()
    await asyncio.sleep(0)
    assert left.count("subscription") >= 2


async def test_events_that_are_never_iterated_over_leave_no_watcher_behind(runner: Runner) -> None:
    task_id = (await runner.run(Agent(ScriptedModel([text("Hello.")])), "Hi")).task_id
    channels: Any = runner._driver.owned.channels  # pyright: ignore[reportPrivateUsage]
    closed, dropped = runner.handle(task_id).events(), runner.handle(task_id).events(follow=True)
    assert len(channels._channels[task_id].watchers) == 2
    await closed.aclose()
    assert len(channels._channels[task_id].watchers) == 1
    del dropped
    gc.collect()
    await until(lambda: task_id not in channels._channels)


async def test_changes_that_are_never_iterated_over_leave_no_subscriber_behind(runner: Runner) -> None:
    changes: Any = runner.changes()
    listening: Any = runner._driver.owned._on_changes  # pyright: ignore[reportPrivateUsage]
    assert len(listening) == 1
    del changes
    gc.collect()
    await until(lambda: not listening)


def test_a_caller_without_an_event_loop_cannot_subscribe() -> None:
    assert not in_event_loop()
