"""When an interruption is due, and how the limit on time is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from treadle.core import events as e
from treadle.core.state import TaskState, start
from treadle.engine.release import Deadline, Interruption

pytestmark = pytest.mark.anyio


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
