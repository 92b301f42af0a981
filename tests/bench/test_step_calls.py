"""What a step in memory costs, counted: how many functions of this package it calls."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

import treadle
from bench import subjects
from treadle import Runner

pytestmark = pytest.mark.anyio

SOURCE: Final = str(Path(treadle.__file__).parent)

MOST_CALLS: Final = {4: 186.0, 100: 152.0}
"""Calls a step, for runs of so many turns: a few more than it takes on Python 3.11, which counts comprehensions too."""

EXPLAIN: Final = (
    "{turns}-turn runs call {calls:.1f} functions a step, and {most:g} are allowed. Find out what the step path does "
    "more than before, and whether each step has to; the functions called most often:\n{listed}"
)


def name_of(code: CodeType) -> str:
    """Return where a function is defined; the generated constructors and codecs of data classes have no file."""
    return f"{code.co_filename.removeprefix(SOURCE)}:{code.co_firstlineno} {code.co_qualname}"


async def counted(turns: int, runs: int) -> Counter[str]:
    """Return how often each function of this package is called, or resumed, in so many runs after a first one."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and (code.co_filename.startswith(SOURCE) or code.co_filename == "<string>"):
            calls[code] += 1

    agent = subjects.agent(subjects.Fake(turns))
    async with Runner("memory:") as runner:
        await subjects.run(runner, agent)
        sys.setprofile(note)
        try:
            for _ in range(runs):
                await subjects.run(runner, agent)
        finally:
            sys.setprofile(None)
    return Counter({name_of(code): times for code, times in calls.items()})


@pytest.mark.parametrize(("turns", "runs"), [(4, 10), (100, 1)])
async def test_a_step_in_memory_calls_no_more_functions_than_it_did(turns: int, runs: int) -> None:
    steps = turns * runs
    calls = await counted(turns, runs)
    listed = "\n".join(f"{times / steps:6.2f} {name}" for name, times in calls.most_common(25))
    each, most = calls.total() / steps, MOST_CALLS[turns]
    assert each <= most, EXPLAIN.format(turns=turns, calls=each, most=most, listed=listed)
    assert each > most / 2, f"only {each:.1f} calls were counted: lower the ceiling, or count what was missed"
