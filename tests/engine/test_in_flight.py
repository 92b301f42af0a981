"""The effects of a drive that are under way: the table of their classes, and the context they are awaited in."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any, get_args

import pytest

from treadle.core.effects import Effect
from treadle.engine.effect_in_flight import EffectInFlight
from treadle.engine.in_flight import KINDS, in_own_context

pytestmark = pytest.mark.anyio

FLAVOUR: ContextVar[str] = ContextVar("flavour", default="plain")


@pytest.mark.parametrize("effect", get_args(Effect))
def test_every_effect_has_a_class_that_performs_it(effect: type) -> None:
    kind = KINDS[effect]
    assert issubclass(kind, EffectInFlight)
    assert not kind.__abstractmethods__
    assert KINDS[effect] is kind


def test_something_that_is_no_effect_has_no_class() -> None:
    with pytest.raises(KeyError):
        KINDS[str]


async def test_context_variables_set_by_an_effect_stay_in_its_context() -> None:
    seen: list[str] = []

    async def work() -> str:
        FLAVOUR.set("sharp")
        await asyncio.sleep(0)
        seen.append(FLAVOUR.get())
        return "done"

    assert await in_own_context(work(), None) == "done"
    assert (seen, FLAVOUR.get()) == (["sharp"], "plain")


async def test_the_first_wait_of_an_effect_is_reported_once() -> None:
    waits: list[int] = []

    async def work(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    await in_own_context(work(0), lambda: waits.append(0))
    await in_own_context(work(3), lambda: waits.append(3))
    assert waits == [3]


async def test_a_cancellation_reaches_the_effect_which_may_return_in_spite_of_it() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "cancelled"
        return "slept"

    async def awaits() -> Any:
        return await in_own_context(work(), None)

    task = asyncio.get_running_loop().create_task(awaits())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"
