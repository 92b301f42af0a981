"""Which timer fires, and how long to wait for the next one."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core import events as e
from treadle.engine.recording import fire_timers


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


FIRED = e.TimerFired("s1", None)


@pytest.mark.parametrize(
    ("times", "now", "seconds", "recorded"),
    [
        ((), 5, None, []),
        ((9_000_000, 4_000_000), 1_000_000, 3.0, []),
        ((9_000_000, 1_000_000, 500_000), 1_000_000, 0.0, [FIRED, FIRED]),
    ],
    ids=["no timer", "the next one", "all that are due are recorded before the task rests"],
)
def test_the_wait_is_that_for_the_next_timer_and_due_ones_are_recorded(
    times: tuple[int, ...], now: int, seconds: float | None, recorded: list[e.Event]
) -> None:
    assert fire(*times, now=now) == (seconds, recorded)
