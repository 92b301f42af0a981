"""Attempts of a model call, as they are counted; the states are in `test_state_tables`."""

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text
from treadle.core.model import SideCall, Usage
from treadle.core.rules.fold import apply, fold
from treadle.core.rules.model_calls import UNSENT
from treadle.core.state import TaskState, start


def state_with_call() -> TaskState:
    events = [e.TaskCreated("a", (Text("go"),), "talk"), e.StepStarted("s1", 1), e.ModelStarted("s1", "m")]
    for seq, event in enumerate(events, 1):
        event.seq = event.time = seq
    return fold(start("t"), events)


def then(state: TaskState, event: e.Event, epoch: int = 0) -> TaskState:
    event.seq, event.time = state.seq + 1, state.time + 100
    apply(state, event, epoch)
    return state


def test_an_answer_and_its_side_calls_are_counted_and_paid_for() -> None:
    also = (SideCall("other", Usage(1, 1), cost=5), SideCall("third"))
    answer = Message("assistant", (Text("4"),))
    state = then(state_with_call(), e.ModelReturned("s1", answer, usage=Usage(10, 2), cost=7, also=also))
    assert (state.model_calls, state.usage, state.cost, state.unpriced) == (3, Usage(11, 3), 12, ())
    assert (state.last_request_tokens, state.last_request_cost, state.turn) == (12, 7, 1)


def test_a_model_without_a_price_is_named_once() -> None:
    state = then(state_with_call(), e.ModelReturned("s1", Message("assistant", ()), usage=Usage(1, 1)))
    assert (state.cost, state.unpriced) == (0, ("m",))


@pytest.mark.parametrize("kind", sorted(UNSENT))
def test_an_attempt_that_was_held_back_is_not_counted(kind: str) -> None:
    failed = e.ModelFailed("s1", e.Failure("model", kind, "too many"), retry_at=500)
    assert then(state_with_call(), failed).model_calls == 0


def test_attempts_are_listed_until_one_is_answered() -> None:
    state = then(
        state_with_call(), e.ModelFailed("s1", e.Failure("model", "server", "down"), retry_at=150, model="m")
    )
    call = state.step.model_call if state.step is not None else None
    assert call is not None
    assert call.tries is not None
    assert [failure.kind for failure in call.tries.failures] == ["server"]
    assert [timer.due for timer in state.timers()] == [150]
    with pytest.raises(e.IllegalEvent, match="before 150"):
        then(state, e.ModelStarted("s1", "m"))


def test_the_time_for_attempts_restarts_with_another_owner() -> None:
    state = state_with_call()
    assert state.step is not None
    call = state.step.model_call
    down = e.Failure("model", "server", "down")
    then(then(state, e.ModelFailed("s1", down, retry_at=110)), e.TimerFired("s1"))
    then(state, e.ModelStarted("s1", "m", 2))
    assert call.asked_at == 3, "the first attempt under this owner"
    then(then(state, e.ModelFailed("s1", down, retry_at=310)), e.TimerFired("s1"))
    then(state, e.ModelStarted("s1", "m", 3), epoch=1)
    assert call.asked_at == state.time
