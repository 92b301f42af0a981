"""Detection of tasks that repeat themselves: the same calls, each time with the same results.

A task goes in circles once a call has had the same result `most` times, with nothing new in between: every call there
repeats an earlier one and its result. The same call over and over is a circle, and so are several in turn. Polling
beside other work, or running the tests after each change, is not. The check stores nothing: it reads the newest calls
of the present branch, back to the last input.
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
"""How many steps before the newest `was_made_before` reads. Some steps have no calls."""

_SHOWN: Final = 200


def in_circles(most: int, newest_first: Iterable[CallState]) -> e.LimitReached | None:
    """Return `LimitReached` if the newest call is part of a circle that was repeated `most` times.

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
    between = [call for position, call in enumerate(circle) if position not in positions]
    if any(sum(same(call, other) for other in calls) < 2 for call in between):
        return None
    return e.LimitReached("repeats", most, most, _description(newest, most, len(circle) + 1))


def was_made_before(state: TaskState, step: StepState) -> bool:
    """Return whether a step's newest call was made shortly before: only then is a check for circles worth its time.

    Every step asks this, so Python code runs only if the arguments of two calls are equal.
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
    """Return whether two calls are equal, with equal results and state changes; any two failures are equal."""
    if first.name != second.name or first.arguments != second.arguments:
        return False
    if first.outcome == second.outcome == "ok":
        first_result = (first.output, first.observation, first.changes)
        return first_result == (second.output, second.observation, second.changes)
    return _failed(first) and _failed(second)


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
    arguments = dumps(call.arguments, ensure_ascii=False)
    shown_arguments = arguments if len(arguments) <= _SHOWN else f"{arguments[:_SHOWN]}..."
    came = "with the same result" if call.outcome == "ok" else f"and failed ({call.outcome})"
    between = f", and the {calls - times} other calls in between brought nothing new either" * (calls > times)
    return f"no progress: {call.name} {shown_arguments} was called {times} times {came} each time{between}"
