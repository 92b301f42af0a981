"""Plans that can be carried out, and the order in which steps beside each other enter the conversation."""

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text
from treadle.core.rules.fold import fold
from treadle.core.rules.schedule import InvalidPlan, check
from treadle.core.state import TaskState, start

Step = e.NextStep


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([Step("a"), Step("a")], "named 'a'"),
        ([Step("a", after=("x",))], "waits for 'x'"),
        ([Step("a"), Step("b", after=("a",), join=2)], "of which 2"),
        ([Step("a", after=("b",)), Step("b", after=("a",)), Step("c")], "a, b wait for each other"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(steps: list[Step], why: str) -> None:
    with pytest.raises(InvalidPlan, match=why):
        check(steps, ())


def test_a_plan_may_name_earlier_steps() -> None:
    check([Step("a", after=("before",)), Step("b", after=("a", "before"), join=1)], {"before"})


def state_after(*events: e.Event) -> TaskState:
    for seq, event in enumerate(events, 1):
        event.seq = event.time = seq
    return fold(start("t"), events)


def answers(step: str, text: str) -> tuple[e.Event, ...]:
    call = f"{step}-m1"
    return (
        e.ModelRequested(step, call, "k", "d"),
        e.ModelStarted(step, "m", call=call),
        e.ModelReturned(step, Message("assistant", (Text(text),)), call=call),
    )


@pytest.mark.parametrize("order", [("s2", "s3"), ("s3", "s2")])
def test_steps_beside_each_other_are_merged_by_path_whichever_is_faster(order: tuple[str, str]) -> None:
    nodes = (Step("a"), Step("b"), Step("sum", after=("a", "b")))
    first, second = order
    state = state_after(
        e.TaskCreated("agent", (Text("go"),), "thread"),
        e.StepsPlanned((Step("plan"),)),
        e.StepStarted("s1", 1),
        e.StepCompleted("s1", next=nodes),
        e.StepStarted("s2", 2),
        e.StepStarted("s3", 3),
        *answers(first, first),
        e.StepCompleted(first),
        *answers(second, second),
        e.StepCompleted(second),
        e.StepStarted("s4", 4),
    )
    assert [message.text for message in state.messages] == ["go", "s2", "s3"]
    assert [step.id for step in state.steps] == ["s1", "s2", "s3"]
    assert state.graph is not None
    assert state.graph.unmerged == []


def test_input_of_a_step_that_was_given_up_stays_when_a_step_beside_it_is_taken_back() -> None:
    """It was marked as merged again, and the input that it had read was in no conversation any more."""
    state = state_after(
        e.TaskCreated("agent", (Text("go"),), "thread"),
        e.StepsPlanned((Step("plan"),)),
        e.StepStarted("s1", 1),
        e.StepCompleted("s1", next=(Step("quick"), Step("slow"), Step("beside"))),
        e.StepStarted("s2", 2),
        e.StepStarted("s4", 4),
        e.InputReceived((Text("and?"),)),
        e.StepStarted("s3", 3),
        e.StepCompleted("s4"),
        e.InputReceived((Text("more"),)),
        e.StepCompleted("s2", last=True, output="done"),
        e.UndoRequested(3, ("s4",)),
        e.Rewound(3, 2, steps=("s4",)),
    )
    assert [message.text for message in state.messages] == ["go", "done", "and?"]
    assert [received.parts for received in state.unread] == [(Text("more"),)]


def test_steps_of_a_later_round_are_given_up_when_input_overtakes_an_answer_of_an_earlier_one() -> None:
    """They stayed planned, and the task failed, since no step was ready and none ran."""
    first_steps = (Step("look"), Step("answer", after=("look",)))
    state = state_after(
        e.TaskCreated("agent", (Text("go"),), "thread"),
        e.StepsPlanned(first_steps),
        e.StepStarted("s1", 1),
        e.StepCompleted("s1"),
        e.StepStarted("s2", 2),
        e.StepCompleted("s2", last=True),
        e.InputReceived((Text("and?"),)),
        e.StepsPlanned(first_steps),
        e.StepStarted("s3", 3),
        e.UndoRequested(1, ("s2",)),
        e.Rewound(1, 1, steps=("s2",)),
        e.StepStarted("s2b1", 2),
        e.StepCompleted("s2b1", last=True),
        e.StepSkipped("s3", by="join"),
        e.InputReceived((Text("more"),)),
    )
    assert state.graph is not None
    assert (state.answered, list(state.graph.unneeded)) == (False, ["s4"])


@pytest.mark.parametrize(
    "end", [e.StepCompleted("s1"), e.StepFailed("s1", e.Failure("worker", "error", "x"))]
)
def test_the_end_of_a_step_whose_request_to_a_model_has_no_end_is_refused(end: e.Event) -> None:
    """A journal without the answer was read; the next attempt of the step then asked under an id in use."""
    begin = (
        e.TaskCreated("agent", (Text("go"),), "thread"),
        e.StepsPlanned((Step("sum"),)),
        e.StepStarted("s1", 1),
    )
    state_after(*begin, *answers("s1", "six"), end)
    with pytest.raises(e.IllegalEvent, match="s1-m1 has no end"):
        state_after(*begin, *answers("s1", "six")[:2], end)
