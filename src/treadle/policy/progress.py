"""Whether a task gets anywhere, or goes in circles: the same calls, and each time the same comes of them.

Calls go in circles once one of them has come to the same so many times, and all that was called since has been called
before with the same result too. So polling beside other work, or running the tests after each change, is no circle; one
call over and over is, and so are several in turn. Nothing is remembered for it: the newest calls are looked at, of the
present branch and since the last input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from json import dumps
from typing import Final

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.core.steps import CallState

LONGEST: Final = 8
"""Circles of so many calls are found; much longer ones are not looked for."""

_SHOWN: Final = 200


def in_circles(most: int, newest_first: Iterable[CallState]) -> e.LimitReached | None:
    """Return that the limit on repeats is reached, if the newest call is one of a circle gone through so many times.

    Args:
        most: how many times a call may come to the same.
        newest_first: calls that have ended.
    """
    calls = list(islice(newest_first, most * LONGEST))
    if len(calls) < most:
        return None
    newest = calls[0]
    positions = [position for position, call in enumerate(calls) if same(newest, call)]
    if len(positions) < most:
        return None
    circle = calls[: positions[most - 1]]
    if any(sum(same(call, other) for other in calls) < 2 for call in circle):
        return None
    return e.LimitReached("repeats", most, most, _told(newest, most, len(circle) + 1))


def same(one: CallState, other: CallState) -> bool:
    """Whether two calls are the same, and came to the same: that both failed is enough, however they say it."""
    if one.name != other.name or one.arguments != other.arguments:
        return False
    if _failed(one) or _failed(other):
        return _failed(one) and _failed(other)
    return one.outcome == other.outcome == "ok" and (one.output, one.observation) == (
        other.output,
        other.observation,
    )


def _failed(call: CallState) -> bool:
    return call.failed or call.outcome in ("invalid", "denied")


def newest_calls(state: TaskState) -> Iterator[CallState]:
    """Yield the calls of the steps on the present branch, the newest first, back to the last input."""
    steps = reversed(state.steps)
    for step in (state.step, *steps) if state.step is not None else steps:
        for call in reversed(step.calls):
            if call.status == "ended" and not call.answers:
                yield call
        if step.input:
            return


def _told(call: CallState, times: int, calls: int) -> str:
    """Return a text that says what was repeated."""
    arguments = dumps(call.arguments, ensure_ascii=False)
    shown = arguments if len(arguments) <= _SHOWN else f"{arguments[:_SHOWN]}..."
    came = "with the same result" if call.outcome == "ok" else f"and failed ({call.outcome})"
    between = f", and the {calls - times} other calls in between brought nothing new either" * (calls > times)
    return f"no progress: {call.name} {shown} was called {times} times {came} each time{between}"
