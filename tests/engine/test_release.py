"""From when on a task that is released is to be driven again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle.agents.decide.rules import Rules
from treadle.core import events as e
from treadle.core.state import TaskState, start
from treadle.engine.effect_context import DriveSpec, Goal, idle
from treadle.engine.options import RunOptions
from treadle.engine.release import Deadline, Interruption, adoption_due_at
from treadle.policy.limits import Limits
from treadle.ports import AT_ONCE

pytestmark = pytest.mark.anyio


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


# --------------------------------------- when an interruption is due, and how the limit on time is recorded


class Writer:
    """Keeps the events that are recorded."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def record(self, event: e.Event) -> None:
        self.events.append(event)


def interruption(*running: str) -> tuple[Interruption, TaskState, dict[str, None]]:
    state, effects = start("t"), dict.fromkeys(running)
    return Interruption(state, effects), state, effects


def test_an_interruption_without_a_request_is_not_due() -> None:
    interrupting, _, _ = interruption()
    assert not interrupting.is_due()


def test_an_interruption_with_a_grace_is_due_once_no_effect_runs() -> None:
    interrupting, _, effects = interruption("s1")
    interrupting.ask("runner", "closed", immediate=False)
    assert not interrupting.is_due()
    effects.clear()
    assert interrupting.is_due()


def test_an_immediate_interruption_is_due_while_effects_run() -> None:
    interrupting, _, _ = interruption("s1")
    interrupting.ask("runner", "closed", immediate=False)
    interrupting.ask("caller", "gone")
    assert (interrupting.is_due(), interrupting.request) == (True, ("runner", "closed"))


@pytest.mark.parametrize("flag", ["cancelling", "interrupting", "pausing"])
def test_a_task_that_stops_anyway_is_not_interrupted(flag: str) -> None:
    interrupting, state, _ = interruption()
    interrupting.ask("runner", "closed")
    setattr(state, flag, True)
    assert not interrupting.is_due()


def test_each_record_of_an_interruption_is_an_event_of_its_own() -> None:
    interrupting, _, _ = interruption()
    writer: Any = Writer()
    interrupting.ask("runner", "closed")
    interrupting.record(writer)
    interrupting.record(writer)
    first, second = writer.events
    assert first == second
    assert first is not second


def test_waiters_are_released_when_the_drive_is_over() -> None:
    interrupting, _, _ = interruption()
    cancelled, waiting = interrupting.wait(), interrupting.wait()
    cancelled.cancel()
    interrupting.release_waiters()
    assert waiting.done()


async def test_a_deadline_wakes_the_drive_and_is_recorded_once() -> None:
    state, woken = start("t"), asyncio.Event()
    state.driven = 2_990_000
    writer: Any = Writer()
    deadline = Deadline(state, 3.0, None)
    deadline.start(woken.set)
    async with asyncio.timeout(5):
        await woken.wait()
    assert deadline.is_reached
    deadline.record(writer)
    assert writer.events == [e.LimitReached("seconds", 3.0, 3.0)]
    state.limit = "seconds"
    deadline.record(writer)
    assert (len(writer.events), deadline.is_reached) == (1, False)


async def test_a_cancelled_deadline_is_not_reached() -> None:
    deadline = Deadline(start("t"), 0.0, None)
    deadline.start(lambda: None)
    deadline.cancel()
    await asyncio.sleep(0.01)
    assert not deadline.is_reached
