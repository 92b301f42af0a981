"""Which events count as progress of a task under its drivers, as `apply` notes it."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, ended, lost, state_after, step
from treadle.core import events as e
from treadle.core.messages import Text
from treadle.core.rules import fold as fold_module
from treadle.core.rules.fold import apply
from treadle.core.state import TaskState


def under(state: TaskState, epoch: int, *events: Any) -> TaskState:
    for event in events:
        event.seq, event.time = state.seq + 1, state.time + 1
        apply(state, event, epoch)
    return state


def test_drivers_that_only_begin_what_the_last_one_began_get_nowhere() -> None:
    state = state_after()
    state.progress = 1
    begins: list[Any] = [
        e.VersionChanged("v2", "v1"),
        e.InstructionsSet("Be precise."),
        e.ThreadAwaited(("a",)),
    ]
    under(state, 2, *begins, e.ThreadEntered(), e.StepStarted("s1", 1), e.ModelStarted("s1", "m", 1))
    under(state, 3, e.ModelStopped("s1", "crash"), e.ModelStarted("s1", "m", 2))
    assert (state.epoch, state.progress) == (3, 1)
    under(state, 3, answered("save", "pay"))
    assert state.progress == 3
    under(state, 4, began(0), began(1, name="pay"))
    under(state, 5, *[e.ToolStopped("s1", f"s1-{place}", "crash") for place in (0, 1)])
    under(state, 6, e.OutcomeUnresolved("s1", "s1-1"))
    assert (state.epoch, state.progress) == (6, 3)


LOST: list[Any] = [step(), answered("save", "look"), lost()]


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([], e.InputReceived((Text("hi"),))),
        ([], e.PauseRequested()),
        ([], e.InterruptRequested()),
        ([], e.CancelRequested()),
        ([], e.Resumed()),
        ([], e.DriverSurvived(1)),
        ([], e.OptionsChanged(None)),
        ([], e.LimitReached("steps", 1, 1)),
        ([], e.TaskEnded("failed")),
        ([step()[0], e.ModelStarted("s1", "m", 1)], e.ModelFailed("s1", e.Failure("model", "x", "y"))),
        (LOST, e.OutcomeSettled("s1", "s1-0", "happened")),
        (LOST, e.CallEdited("s1", "s1-1", {}, {})),
        ([*LOST, began(1, name="look")], ended(1)),
        ([step(), answered(text="4")], e.StepCompleted("s1", True, "4")),
        (
            [step(), answered(text="4"), e.StepCompleted("s1", True, "4")],
            e.UndoRequested(0, ("s1",), (), False),
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_ends_and_messages_are_progress(events: list[Any], last: e.Event) -> None:
    state = state_after(*events)
    state.progress = 1
    assert under(state, 9, last).progress == 9


def test_every_event_has_a_rule() -> None:
    assert set(fold_module._RULES) == {*e.EVENTS.values(), e.UnknownEvent}


@pytest.mark.parametrize(
    "event",
    [
        e.ModelRequested("s1", "s1-m1", "k", "d"),
        e.CallRequested("s1", "s1-c1", "k", "d", "look", {}),
        e.ValueKept("s1", "k", 1),
    ],
    ids=lambda event: event.kind,
)
def test_a_request_of_a_function_cannot_follow_in_a_task_without_functions(event: e.Event) -> None:
    with pytest.raises(e.IllegalEvent, match="not functions"):
        state_after(step(), event)


def test_an_undo_to_an_accepted_answer_restores_that_no_answer_was_rejected_since() -> None:
    """The answer ends the count, and the undo goes back to after the answer."""
    wrong, right = e.TypedAnswer(problem="x: missing"), e.TypedAnswer({"x": 1})
    state = state_after(
        *[step(1), answered(text="?", typed=wrong), e.StepCompleted("s1", False)],
        *[step(2), answered(index=2, text="!", typed=right), e.StepCompleted("s2", True, {"x": 1})],
        e.InputReceived((Text("and?"),)),
        *[step(3), answered(index=3, text="?", typed=wrong), e.StepCompleted("s3", False)],
        *[e.UndoRequested(2, ("s3",), ()), e.Rewound(2, 1, ())],
    )
    assert (len(state.steps), state.rejected) == (2, 0)


@pytest.mark.parametrize("before", [e.RouteChosen("s1"), e.ModelStarted("s1", "m"), answered(text="4")])
def test_a_route_is_chosen_once_and_before_the_model_is_asked(before: e.Event) -> None:
    with pytest.raises(e.IllegalEvent, match=r"names s1|for step s1"):
        state_after(step(), before, e.RouteChosen("s1"))


def test_a_task_that_goes_on_after_a_tolerated_wrong_answer_asks_the_model_again() -> None:
    wrong = answered(text="?", typed=e.TypedAnswer(problem="x: missing"))
    ended = state_after(step(), wrong, e.TaskEnded("degraded"))
    assert ended.step is not None
    assert (ended.step.model_call.status, ended.rejected) == ("answered", 1)
    state = state_after(step(), wrong, e.TaskEnded("degraded"), e.TaskReopened(2, "resume"))
    assert state.step is not None
    assert (state.step.model_call.status, state.step.typed, state.rejected) == ("proposed", None, 0)
