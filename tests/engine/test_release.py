"""From when on a task that is released is to be driven again."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.agents.decide.rules import Rules
from treadle.core.state import TaskState, start
from treadle.engine.drive_spec import DriveSpec, Goal, idle
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


def test_a_task_that_waits_for_a_timer_is_wanted_when_it_fires_by_the_system_clock() -> None:
    assert wanted_time(waiting()) == DUE + 5


def test_a_task_that_waits_for_nothing_is_not_wanted() -> None:
    assert wanted_time(start("t")) == 0


@pytest.mark.parametrize("flags", [{"ended": "completed"}, {"pausing": True}, {"interrupting": True}])
def test_a_task_that_was_stopped_is_not_wanted(flags: dict[str, Any]) -> None:
    assert wanted_time(waiting(**flags)) == 0


def test_a_task_that_a_shutdown_interrupted_is_wanted_at_once() -> None:
    assert wanted_time(waiting(interrupting=True, shutdown=True)) == AT_ONCE


@pytest.mark.parametrize("goal", ["step", "attend"])
def test_a_stepped_task_is_not_wanted_unless_it_was_wanted_before(goal: Goal) -> None:
    assert (wanted_time(waiting(), goal), wanted_time(waiting(), goal, was_wanted=True)) == (0, DUE + 5)


def test_a_task_at_rest_for_which_something_arrived_is_wanted_at_once() -> None:
    assert (
        wanted_time(start("t"), "attend", goes_on=True),
        wanted_time(start("t"), "end", goes_on=True),
    ) == (
        AT_ONCE,
        0,
    )
