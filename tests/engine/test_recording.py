"""Pauses at breakpoints, recorded after an event."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.state import start
from treadle.engine.options import Breakpoint
from treadle.engine.recording import BreakpointRecorder

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


def test_an_event_that_no_breakpoint_names_is_recorded_alone() -> None:
    assert reasons(e.InputReceived((Text("go"),)), Breakpoint(event="tool_ended")) == []


def test_a_breakpoint_on_an_event_pauses_after_it() -> None:
    event = e.InputReceived((Text("go"),))
    assert reasons(event, Breakpoint(event="input_received")) == ["after the event input_received (number 0)"]


@pytest.mark.parametrize("tool", ["look_up", "*"])
def test_a_breakpoint_before_a_tool_pauses_when_the_model_calls_it(tool: str) -> None:
    assert reasons(LOOKS_UP, Breakpoint(before_tool=tool)) == [f"before the tool {tool}"]


def test_a_breakpoint_before_another_tool_does_not_pause() -> None:
    assert reasons(LOOKS_UP, Breakpoint(before_tool="write")) == []


def test_several_breakpoints_that_meet_pause_once() -> None:
    both = (Breakpoint(before_tool="*"), Breakpoint(event="model_returned"))
    assert reasons(LOOKS_UP, *both) == ["before the tool *"]


def test_the_answer_to_a_function_does_not_pause_before_a_tool() -> None:
    answer = e.ModelReturned("s1", LOOKS_UP.message, "tool_calls", call="s1-m1")
    assert reasons(answer, Breakpoint(before_tool="*")) == []


@pytest.mark.parametrize("pattern", ["look_*", "*_up", "look_up", "l??k_up", "*"])
def test_a_pattern_pauses_before_each_tool_whose_name_fits(pattern: str) -> None:
    assert reasons(LOOKS_UP, Breakpoint(tool=pattern)) == [f"before the tool {pattern}"]
    assert reasons(e.CallRequested("s1", "s1-c1", "k", "d", "look_up", {}), Breakpoint(tool=pattern)) == [
        f"before the tool {pattern}"
    ]


@pytest.mark.parametrize("pattern", ["write_*", "LOOK_*", "look", "?"])
def test_a_pattern_that_does_not_fit_does_not_pause(pattern: str) -> None:
    assert reasons(LOOKS_UP, Breakpoint(tool=pattern)) == []


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
