"""Which timer fires, and how long to wait for the next one."""

from __future__ import annotations

from typing import Any

from treadle.core import events as e
from treadle.engine.timers import fire_timers


class Due:
    """A state whose timers are due at given times; it is also its writer and its timer."""

    step, call = "s1", None

    def __init__(self, *times: int, now: int = 0) -> None:
        self.times = times
        self.now = now
        self.due = times[0] if times else 0

    def timers(self) -> list[Due]:
        return [Due(time) for time in self.times]

    def clock(self) -> int:
        return self.now


def fire(*times: int, now: int) -> tuple[float | None, list[e.Event]]:
    recorded: list[e.Event] = []
    state: Any = Due(*times, now=now)

    def record(event: e.Event, inbox: str | None = None) -> None:
        recorded.append(event)

    return fire_timers(state, state, record), recorded


def test_without_a_timer_there_is_nothing_to_wait_for() -> None:
    assert fire(now=5) == (None, [])


def test_the_wait_is_that_for_the_next_timer() -> None:
    assert fire(9_000_000, 4_000_000, now=1_000_000) == (3.0, [])


def test_all_timers_that_are_due_are_recorded_before_the_task_rests() -> None:
    seconds, recorded = fire(9_000_000, 1_000_000, 500_000, now=1_000_000)
    assert (seconds, recorded) == (0.0, [e.TimerFired("s1", None), e.TimerFired("s1", None)])
