"""Divide long computations into slices, so that other work of an event loop runs between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_SECONDS: Final = 0.002
"""Seconds for which a read may hold the event loop before other work runs."""


class TimeSlice:
    """Measures whether a computation has held the event loop for too long."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether other work should run now."""
        return perf_counter() > self._until

    async def pause(self) -> None:
        """Let other work of the event loop run, and begin the next slice."""
        await asyncio.sleep(0)
        self._until = perf_counter() + SLICE_SECONDS


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return the items of a lazy iterable, and pause between slices."""
    made, time_slice = list[T](), TimeSlice()
    for item in items:
        made.append(item)
        if time_slice.is_over:
            await time_slice.pause()
    return made
