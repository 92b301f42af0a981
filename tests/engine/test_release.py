"""From when on a task that is released is to be driven again."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.agents.decide.rules import Rules
from treadle.core.state import TaskState, start
from treadle.engine.effect_context import DriveSpec, Goal, idle
from treadle.engine.options import RunOptions
from treadle.engine.release import adoption_due_at
from treadle.policy.limits import Limits
from treadle.ports import AT_ONCE

DUE = 7_000_000


class Waiting(TaskState):
    """The state of a task that waits for a timer."""

    def next_due(self) -> int | None:
        return DUE


class Clock:
    """The clock of a writer, five microseconds behind that of the system."""

    def to_system_time(self, time: int) -> int:
        return time + 5


def wanted_time(
    state: TaskState, goal: Goal = "end", *, was_wanted: bool = False, goes_on: bool = False
) -> int:
    spec = DriveSpec(goal, Rules(limits=Limits()), RunOptions(), idle)
    writer: Any = Clock()
    return adoption_due_at(state, writer, spec, was_wanted=was_wanted, goes_on=goes_on)


def waiting(**flags: Any) -> TaskState:
    state = Waiting("t", ())
    for name, value in flags.items():
        setattr(state, name, value)
    return state


@pytest.mark.parametrize(
    ("state", "how", "wanted"),
    [
        (waiting(), {}, DUE + 5),
        (start("t"), {}, 0),
        (waiting(ended="completed"), {}, 0),
        (waiting(pausing=True), {}, 0),
        (waiting(interrupting=True), {}, 0),
        (waiting(interrupting=True, shutdown=True), {}, AT_ONCE),
        (waiting(), {"goal": "step"}, 0),
        (waiting(), {"goal": "step", "was_wanted": True}, DUE + 5),
        (waiting(), {"goal": "attend"}, 0),
        (waiting(), {"goal": "attend", "was_wanted": True}, DUE + 5),
        (start("t"), {"goal": "attend", "goes_on": True}, AT_ONCE),
        (start("t"), {"goal": "end", "goes_on": True}, 0),
    ],
    ids=[
        *("its timer, by the system clock", "no timer", "ended", "paused", "interrupted", "by a shutdown"),
        *("stepped", "stepped, wanted before", "attended", "attended, wanted before"),
        *("something arrived", "something arrived at its end"),
    ],
)
def test_when_a_released_task_is_wanted(state: TaskState, how: dict[str, Any], wanted: int) -> None:
    assert wanted_time(state, **how) == wanted
