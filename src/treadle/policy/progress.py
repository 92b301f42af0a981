"""Whether a task makes progress, or goes in circles: the same calls, each time with the same result.

Calls go in circles once one of them has had the same result so many times, and all calls since then have been made
before with the same result too. So polling beside other work, or running the tests after each change, is no circle; one
call over and over is a circle, and so are several in turn. The check stores nothing: it reads the newest calls of the
present branch, back to the last input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from json import dumps
from operator import attrgetter
from typing import Final

from treadle.core import events as e
from treadle.core.state import TaskState
from treadle.core.steps import CallState, StepState

LONGEST: Final = 8
"""The longest circle, in calls, that is detected."""

_NEAR: Final = 2 * LONGEST
"""The newest call is among those of so many steps before, if it is part of a circle; some steps may have no calls."""

_SHOWN: Final = 200


def in_circles(most: int, newest_first: Iterable[CallState]) -> e.LimitReached | None:
    """Return that the limit on repeats is reached, if the newest call is part of a circle that was repeated so often.

    Args:
        most: how many times a call may have the same result.
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
    return e.LimitReached("repeats", most, most, _description(newest, most, len(circle) + 1))


def was_made_before(state: TaskState, step: StepState) -> bool:
    """Whether the newest call of a step was made shortly before, so that a check for circles is worth its time.

    Every step asks this: no Python runs for the calls of the steps before, unless one has the same arguments.
    """
    if not step.calls or step.calls[-1].answers:
        return bool(step.calls)
    *beside, newest = step.calls
    if newest.arguments not in map(_ARGUMENTS, chain(beside, _before(state))):
        return False
    before = chain(beside, _before(state))
    return any(call.name == newest.name and call.arguments == newest.arguments for call in before)


def _before(state: TaskState) -> Iterator[CallState]:
    """Return the calls of the newest steps that have ended."""
    return chain.from_iterable(map(_CALLS, islice(reversed(state.steps), _NEAR)))


_CALLS: Final = attrgetter("calls")
_ARGUMENTS: Final = attrgetter("arguments")


def same(first: CallState, second: CallState) -> bool:
    """Whether two calls are equal, have equal results and changed the state alike; any two failures are equal."""
    if first.name != second.name or first.arguments != second.arguments:
        return False
    if _failed(first) or _failed(second):
        return _failed(first) and _failed(second)
    if not first.outcome == second.outcome == "ok":
        return False
    mine = (first.output, first.observation, first.changes)
    return mine == (second.output, second.observation, second.changes)


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


def _description(call: CallState, times: int, calls: int) -> str:
    """Return a text about the calls that were repeated."""
    arguments = dumps(call.arguments, ensure_ascii=False)
    shown = arguments if len(arguments) <= _SHOWN else f"{arguments[:_SHOWN]}..."
    came = "with the same result" if call.outcome == "ok" else f"and failed ({call.outcome})"
    between = f", and the {calls - times} other calls in between brought nothing new either" * (calls > times)
    return f"no progress: {call.name} {shown} was called {times} times {came} each time{between}"
