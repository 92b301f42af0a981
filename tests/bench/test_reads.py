"""What a read makes the event loop compute does not grow with the number of tasks; `bench.reads` has times."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bench.reads import fill, reads_of
from treadle import Runner

pytestmark = pytest.mark.anyio

FEW, MANY = 500, 2_000


async def calls_in_the_loop(runner: Runner, tasks: int) -> dict[str, int]:
    """Return for each read how many functions the thread of the event loop calls for it."""
    counts = dict[str, int]()
    for name, read in (await reads_of(runner, tasks)).items():
        await read()
        calls = 0

        def note(frame: FrameType, event: str, _: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(note)  # of this thread alone
        try:
            await read()
        finally:
            sys.setprofile(None)
        counts[name] = calls
    return counts


async def test_a_read_computes_as_much_in_the_loop_for_many_tasks_as_for_few(tmp_path: Path) -> None:
    counted = list[dict[str, int]]()
    for tasks in (FEW, MANY):
        async with Runner(tmp_path / f"{tasks}.db") as runner:
            await fill(runner, tasks)
            counted.append(await calls_in_the_loop(runner, tasks))
    few, many = counted
    assert few.keys() == many.keys()
    assert len(few) > 15
    assert {name: (few[name], many[name]) for name in few if many[name] > 1.3 * few[name] + 60} == {}
