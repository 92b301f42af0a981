"""The state of a task: its calls that are open, in flight, or due for another attempt."""

import pytest

from tests.agents.stories import answered, state_after, step
from treadle.core import events as e
from treadle.core.state import start

LOOKS = answered("look", "look")


def test_a_task_starts_after_the_messages_of_its_thread() -> None:
    before = state_after(step(), answered(text="4")).messages
    state = start("u", before)
    assert (list(state.view), state.own_from, state.origin.messages) == (before, len(before), len(before))
    assert state.messages is not before


def test_calls_are_found_while_their_step_is_under_way_and_after_it() -> None:
    state = state_after(step(), LOOKS)
    assert state.open_call("s1-1") is state.find_call("s1-1")
    assert (state.open_call("s1-9"), state.find_call("s1-9")) == (None, None)
    ends = [e.ToolEnded("s1", f"s1-{number}") for number in (0, 1)]
    ended = state_after(step(), answered("look", "look"), *ends, e.StepCompleted("s1"))
    assert ended.open_call("s1-1") is None
    assert ended.find_call("s1-1") is not None


@pytest.mark.parametrize(
    ("events", "flying"),
    [
        ((), False),
        ((e.StepStarted("s1", 1), e.ModelStarted("s1", "m")), True),
        ((step(), LOOKS), False),
        ((step(), LOOKS, e.ToolStarted("s1", "s1-0")), True),
    ],
)
def test_a_task_is_in_flight_while_a_model_call_or_a_tool_call_is_begun(
    events: tuple[object, ...], flying: bool
) -> None:
    assert state_after(*events).in_flight() is flying


def test_the_first_timer_is_the_next_to_fire() -> None:
    down = e.Failure("model", "server", "down")
    waiting = [e.StepStarted("s1", 1), e.ModelStarted("s1", "m"), e.ModelFailed("s1", down, retry_at=90)]
    state = state_after(*waiting)
    assert (state.next_due(), [timer.step for timer in state.timers()]) == (90, ["s1"])
    assert state_after(*waiting, e.UndoRequested(0, ())).next_due() is None, (
        "an undo ends before anything is asked"
    )
    assert state_after().next_due() is None
