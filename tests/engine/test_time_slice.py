"""Slices of long computations."""

import asyncio
from time import perf_counter

import pytest

from treadle.engine.time_slice import SLICE_SECONDS, TimeSlice

pytestmark = pytest.mark.anyio


async def test_other_work_gets_its_turn_between_slices() -> None:
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(other_work())
    began, time_slice = perf_counter(), TimeSlice()
    for _ in range(5):
        while not time_slice.is_over:
            pass
        await time_slice.pause()
    other.cancel()
    assert turns == 5
    assert perf_counter() - began >= 5 * SLICE_SECONDS


async def test_a_new_slice_is_not_over() -> None:
    time_slice = TimeSlice()
    while not time_slice.is_over:
        pass
    await time_slice.pause()
    assert not time_slice.is_over
