"""What events add up to of sleeps; those of calls are in the tables of `test_state_tables` too."""

from typing import Any

import pytest

from tests.agents.stories import answered, decided, recorded, state_after, step
from treadle.core import events as e
from treadle.core.effects import CallTool, Wait
from treadle.core.messages import Text
from treadle.core.state import TaskState
from treadle.core.steps import CallState


def starts(effect: Any = "idempotent", attempt: int = 1) -> e.ToolStarted:
    return e.ToolStarted("s1", "s1-0", effect, attempt)


def sleeps(until: int = 6, place: int = 1) -> e.SleepStarted:
    return e.SleepStarted("s1", "s1-0", until, place)


def slept(place: int = 1) -> e.SleepEnded:
    return e.SleepEnded("s1", "s1-0", place)


def call_of(state: TaskState) -> CallState:
    call = state.find_call("s1-0")
    assert call is not None
    return call


SLEEPING = (step(), answered("put"), starts())


def test_a_sleep_is_a_timer_of_its_task() -> None:
    state = state_after(*SLEEPING, sleeps(until=90))
    assert [(timer.call, timer.due) for timer in state.timers()] == [("s1-0", 90)]
    wait = decided(state)
    assert isinstance(wait, Wait)
    assert (wait.reason, [call.id for call in wait.calls]) == ("timer", ["s1-0"])
    with pytest.raises(e.IllegalEvent, match="is not over"):
        state_after(*SLEEPING, sleeps(until=90), slept())


def test_a_call_that_slept_begins_again() -> None:
    state = state_after(*SLEEPING, sleeps(), slept())
    assert (call_of(state).status, call_of(state).slept, state.sleeps) == ("proposed", 1, {})
    decision = decided(state)
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallTool)
    again = state_after(*SLEEPING, sleeps(), slept(), starts(attempt=2), sleeps(until=90, place=2))
    assert (call_of(again).status, call_of(again).attempts_that_asked) == ("sleeping", 2)
    with pytest.raises(e.IllegalEvent):
        state_after(*SLEEPING, sleeps(), slept(), starts(attempt=2), sleeps(until=90, place=1))


@pytest.mark.parametrize(("effect", "outcome"), [("read", "cancelled"), ("idempotent", "unknown")])
def test_a_sleeping_call_of_a_cancelled_task_ends_by_what_it_may_have_done(effect: Any, outcome: str) -> None:
    state = state_after(step(), answered("put"), starts(effect), sleeps(until=90), e.CancelRequested())
    assert recorded(state).outcome == outcome
    ended = state_after(
        step(), answered("put"), starts(effect), sleeps(until=90), e.ToolEnded("s1", "s1-0", "cancelled")
    )
    assert ended.sleeps == {}


UNENTERED = (
    e.ToolStopped("s1", "s1-0", "interrupted"),
    e.OutcomeSettled("s1", "s1-0", "not_happened", by="runner"),
)


def test_a_call_that_acted_and_slept_may_have_acted_though_its_second_start_did_not_reach_the_tool() -> None:
    story = (*SLEEPING, sleeps(), slept(), starts(attempt=2), *UNENTERED)
    assert (call_of(state_after(*story)).in_doubt, call_of(state_after(*story)).is_halfway) == (False, True)
    assert recorded(state_after(*story, e.CancelRequested())).outcome == "unknown"


def test_a_call_that_slept_and_then_asks_its_first_question_may_have_acted_before_it_slept() -> None:
    question = e.QuestionAsked("s1", "s1-0", 1, "Go?", {}, "digest", 1)
    state = state_after(*SLEEPING, sleeps(), slept(), starts(attempt=2), question, e.CancelRequested())
    assert recorded(state).outcome == "unknown"


def test_a_call_that_slept_and_failed_ends_as_it_failed() -> None:
    failed = e.ToolStopped("s1", "s1-0", "error", e.Failure("tool", "error", "no", "s1-0"))
    story = (*SLEEPING, sleeps(), slept(), starts(attempt=2), failed)
    assert recorded(state_after(*story, e.CancelRequested())).outcome == "error"
    again = (*story, starts(attempt=3), *UNENTERED, e.CancelRequested())
    assert recorded(state_after(*again)).outcome == "error"


def test_a_fork_sleeps_anew() -> None:
    state = state_after(
        step(), answered("look"), starts("read"), sleeps(until=90), e.TaskForked("p", "math", "x")
    )
    assert (state.sleeps, call_of(state).status, call_of(state).slept) == ({}, "proposed", 0)


FUNCTION = (e.StepsPlanned((e.NextStep("a"),)), e.StepStarted("s1", 1))


def of_function(until: int, place: int = 1) -> e.SleepStarted:
    return e.SleepStarted("s1", "", until, place)


def test_a_step_function_may_sleep_several_times_at_once() -> None:
    state = state_after(*FUNCTION, of_function(90), of_function(5, 2), e.SleepEnded("s1", "", 2))
    assert state.graph is not None
    node = state.graph.nodes["s1"]
    assert (list(node.sleeps), node.slept, list(state.sleeps)) == ([1], {2}, ["s1-sleep1"])
    with pytest.raises(e.IllegalEvent):
        state_after(*FUNCTION, of_function(90), of_function(90))


@pytest.mark.parametrize(
    "over",
    [
        e.StepCompleted("s1", True, "so"),
        e.StepFailed("s1", e.Failure("worker", "error", "no")),
        e.Rewound(0, 1, (), ("s1",)),
    ],
)
def test_the_sleeps_of_a_step_that_does_not_run_any_more_are_dropped(over: e.Event) -> None:
    undo = [e.UndoRequested(0, ("s1",))] if isinstance(over, e.Rewound) else []
    state = state_after(*FUNCTION, of_function(90), *undo, over)
    assert (state.sleeps, state.next_due()) == ({}, None)


def test_a_step_that_is_not_running_does_not_sleep() -> None:
    with pytest.raises(e.IllegalEvent):
        state_after(e.InputReceived((Text("so"),)), of_function(90))
