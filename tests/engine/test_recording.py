"""Pauses at breakpoints, recorded after an event."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.state import start
from treadle.engine.options import Breakpoint
from treadle.engine.recording import BreakpointRecorder, fire_timers

LOOKS_UP = e.ModelReturned("s1", Message("assistant", (ToolCall("s1-0", "look_up", {}),)), "tool_calls")


class Writer:
    """Keeps the events that are recorded."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def record(self, event: e.Event, inbox: str | None = None) -> None:
        self.events.append(event)


def reasons(event: e.Event, *breakpoints: Breakpoint) -> list[str | None]:
    """Return why the task is paused after an event."""
    writer: Any = Writer()
    BreakpointRecorder(writer, start("t"), breakpoints)(event)
    assert writer.events[0] is event
    return [pause.reason for pause in writer.events[1:] if isinstance(pause, e.PauseRequested)]


INPUT = e.InputReceived((Text("go"),))
TO_A_FUNCTION = e.ModelReturned("s1", LOOKS_UP.message, "tool_calls", call="s1-m1")
OF_A_FUNCTION = e.CallRequested("s1", "s1-c1", "k", "d", "look_up", {})


@pytest.mark.parametrize(
    ("event", "breakpoints", "paused"),
    [
        (INPUT, [Breakpoint(event="tool_ended")], []),
        (INPUT, [Breakpoint(event="input_received")], ["after the event input_received (number 0)"]),
        (LOOKS_UP, [Breakpoint(before_tool="look_up")], ["before the tool look_up"]),
        (LOOKS_UP, [Breakpoint(before_tool="*")], ["before the tool *"]),
        (LOOKS_UP, [Breakpoint(before_tool="write")], []),
        (LOOKS_UP, [Breakpoint(before_tool="*"), Breakpoint(event="model_returned")], ["before the tool *"]),
        (TO_A_FUNCTION, [Breakpoint(before_tool="*")], []),
    ],
)
def test_a_breakpoint_pauses_once_after_the_event_that_it_names(
    event: e.Event, breakpoints: list[Breakpoint], paused: list[str]
) -> None:
    assert reasons(event, *breakpoints) == paused


@pytest.mark.parametrize("event", [LOOKS_UP, OF_A_FUNCTION], ids=lambda event: event.kind)
@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        *[(pattern, True) for pattern in ("look_*", "*_up", "look_up", "l??k_up", "*")],
        *[(pattern, False) for pattern in ("write_*", "LOOK_*", "look", "?")],
    ],
)
def test_a_pattern_pauses_before_each_tool_whose_name_fits(event: e.Event, pattern: str, fits: bool) -> None:
    assert reasons(event, Breakpoint(tool=pattern)) == [f"before the tool {pattern}"] * fits


def test_a_breakpoint_on_cost_pauses_once_when_the_amount_is_reached() -> None:
    state = start("t")
    writer: Any = Writer()
    record = writer.record

    def spend(event: e.Event, inbox: str | None = None) -> None:
        record(event, inbox)
        if isinstance(event, e.ModelReturned):
            state.cost += event.cost or 0

    writer.record = spend
    recorder = BreakpointRecorder(writer, state, (Breakpoint(cost=0.5),))
    for cost in (2 * 10**11, 2 * 10**11, 10**11, 10**12):
        recorder(e.ModelReturned("s1", Message("assistant", (Text("hi"),)), cost=cost))
    kinds = [event.kind for event in writer.events]
    assert kinds == ["model_returned"] * 3 + ["pause_requested", "model_returned"]
    assert writer.events[3].reason == "$0.5 spent"


# ------------------------------------------------- which timer fires, and how long to wait for the next one


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
