"""What events add up to in the questions of a task; the tables of states are in `test_state_tables`."""

from typing import Any

import pytest

from tests.agents.stories import answered, decided, recorded, state_after, step
from treadle.core import events as e
from treadle.core.effects import Wait
from treadle.core.questions import Question
from treadle.core.state import TaskState
from treadle.core.steps import CallState


def asked(number: int = 1, place: int = 1, call: str = "s1-0", **more: Any) -> e.QuestionAsked:
    return e.QuestionAsked("s1", call, number, "Go?", {"type": "string"}, "digest", place, **more)


def answer(number: int = 1, value: Any = "yes", call: str = "s1-0") -> e.QuestionAnswered:
    return e.QuestionAnswered("s1", call, number, value, "ann")


def starts(effect: Any = "idempotent", attempt: int = 1) -> e.ToolStarted:
    return e.ToolStarted("s1", "s1-0", effect, attempt)


def call_of(state: TaskState, call_id: str = "s1-0") -> CallState:
    call = state.find_call(call_id)
    assert call is not None
    return call


ASKING = (step(), answered("put"), starts(), asked())


def test_a_question_rests_its_call_until_a_person_answers() -> None:
    state = state_after(*ASKING)
    assert list(state.questions) == ["s1-0-q1"]
    wait = decided(state)
    assert isinstance(wait, Wait)
    assert (wait.reason, [call.id for call in wait.calls]) == ("question", ["s1-0"])
    done = state_after(*ASKING, answer())
    assert (call_of(done).status, done.questions, call_of(done).questions[0].value) == ("proposed", {}, "yes")
    assert call_of(done).questions[0].by == "ann"


def test_an_open_question_that_expires_is_a_timer_of_its_task() -> None:
    state = state_after(step(), answered("put"), starts(), asked(expires=90))
    assert [(timer.due, timer.call) for timer in state.timers()] == [(90, "s1-0")]
    assert (state.next_due(), state_after(*ASKING).next_due()) == (90, None)
    with pytest.raises(e.IllegalEvent, match="has not expired"):
        state_after(step(), answered("put"), starts(), asked(expires=90), e.QuestionExpired("s1", "s1-0", 1))


def test_a_call_that_asks_twice_at_once_starts_again_after_both_answers() -> None:
    both = (*ASKING, asked(2, 2))
    one = state_after(*both, answer(2))
    assert (call_of(one).status, list(one.questions)) == ("asking", ["s1-0-q1"])
    assert call_of(state_after(*both, answer(2), answer(1))).status == "proposed"


def test_a_place_is_asked_anew_under_another_number_while_the_other_answers_stay() -> None:
    state = state_after(*ASKING, asked(2, 2), answer(), answer(2), starts(attempt=2), asked(3, 2))
    assert [(q.event.number, q.status) for q in call_of(state).questions] == [(1, "answered"), (3, "open")]


@pytest.mark.parametrize(
    "wrong",
    [asked(2), asked(1, 3), asked(1, 0), asked(1, call="s1-7")],
    ids=["number", "place", "no place", "call"],
)
def test_questions_of_a_call_are_numbered_and_in_order(wrong: e.QuestionAsked) -> None:
    with pytest.raises(e.IllegalEvent):
        state_after(step(), answered("put"), starts(), wrong)


def test_an_answer_to_what_is_not_open_is_illegal() -> None:
    with pytest.raises(e.IllegalEvent, match="s1-0-q1, which is not open"):
        state_after(*ASKING, answer(), answer())


def test_a_value_is_kept_once_for_all_attempts_of_a_call() -> None:
    kept = e.ValueKept("s1", "quote", 12, "s1-0")
    state = state_after(step(), answered("put"), starts(), kept, asked(), answer())
    assert call_of(state).values == {"quote": 12}
    with pytest.raises(e.IllegalEvent):
        state_after(step(), answered("put"), starts(), kept, e.ValueKept("s1", "quote", 13, "s1-0"))
    with pytest.raises(e.IllegalEvent):
        state_after(step(), answered("put"), kept)


@pytest.mark.parametrize(
    ("effect", "before", "halfway"),
    [
        ("idempotent", (), False),
        ("idempotent", (e.ValueKept("s1", "quote", 12, "s1-0"),), True),
        ("idempotent", (asked(), answer(), starts(attempt=2)), True),
        ("read", (e.ValueKept("s1", "quote", 12, "s1-0"),), False),
    ],
    ids=["its first question", "a kept value", "an answer before", "it only reads"],
)
def test_a_call_may_have_acted_when_it_went_past_an_answer_or_kept_a_value(
    effect: Any, before: tuple[e.Event, ...], halfway: bool
) -> None:
    number = 1 + sum(isinstance(event, e.QuestionAsked) for event in before)
    state = state_after(step(), answered("put"), starts(effect), *before, asked(number, number))
    assert call_of(state).is_halfway is halfway
    cancelled = state_after(
        step(), answered("put"), starts(effect), *before, asked(number, number), e.CancelRequested()
    )
    end = recorded(cancelled)
    assert end.outcome == ("unknown" if halfway else "cancelled")


@pytest.mark.parametrize("kept", [True, False])
def test_a_call_that_asked_ends_alike_though_its_next_start_did_not_reach_the_tool(kept: bool) -> None:
    before = [e.ValueKept("s1", "quote", 12, "s1-0")] if kept else []
    unentered = [
        e.ToolStopped("s1", "s1-0", "interrupted"),
        e.OutcomeSettled("s1", "s1-0", "not_happened", by="runner"),
    ]
    story = (step(), answered("put"), starts(), before, asked(), answer(), starts(attempt=2), unentered)
    end = recorded(state_after(*story, e.CancelRequested()))
    assert end.outcome == ("unknown" if kept else "cancelled")


def test_the_end_of_a_call_closes_its_questions() -> None:
    state = state_after(*ASKING, e.ToolEnded("s1", "s1-0", "cancelled"))
    assert state.questions == {}


def test_a_repeated_call_knows_its_answers_and_asks_anew_what_expired() -> None:
    story = (step(), answered("put"), starts(), asked(), answer(), starts(attempt=2), asked(2, 2, expires=1))
    failure = e.Failure("tool", "error", "no", "s1-0")
    failed = e.StepFailed("s1", failure)
    ends = (e.ToolEnded("s1", "s1-0", "error", error=failure), failed, e.StepStarted("s1", 1, 2))
    expired = e.QuestionExpired("s1", "s1-0", 2)
    again = call_of(state_after(*story, expired, starts(attempt=3), *ends), "s1-0r2")
    assert [question.value for question in again.questions] == ["yes"]
    assert again.asked_questions == 2


def test_a_fork_asks_anew() -> None:
    story = (*ASKING, e.TaskForked("t0", "math", "talk"))
    state = state_after(*story)
    assert (state.questions, call_of(state).status, call_of(state).questions) == ({}, "proposed", ())


def of_step(number: int, key: str = "k") -> e.QuestionAsked:
    return e.QuestionAsked("s1", "", number, "Go?", {}, "digest", key=key)


PLANNED = (e.StepsPlanned((e.NextStep("a"),)), e.StepStarted("s1", 1))


def test_the_question_of_a_step_function_is_in_its_memo() -> None:
    state = state_after(*PLANNED, of_step(1))
    assert state.graph is not None
    node = state.graph.running["s1"]
    assert (list(state.questions), list(node.questions), node.requests) == (["s1-q1"], ["s1-q1"], 1)
    done = state_after(*PLANNED, of_step(1), e.QuestionAnswered("s1", "", 1, 7))
    assert done.graph is not None
    assert (done.questions, done.graph.running["s1"].questions) == ({}, {})
    question = done.graph.running["s1"].memo["k"].done
    assert isinstance(question, Question)
    assert question.value == 7


@pytest.mark.parametrize(
    "end", [e.StepFailed("s1", e.Failure("worker", "error", "no")), e.StepSkipped("s1", "step")]
)
def test_a_step_that_ends_leaves_no_open_question(end: e.Event) -> None:
    state = state_after(*PLANNED, of_step(1), end)
    assert state.questions == {}


def test_a_step_that_runs_again_asks_anew_what_was_not_answered() -> None:
    failed = e.StepFailed("s1", e.Failure("worker", "error", "no"))
    answered_one = e.QuestionAnswered("s1", "", 1, 7)
    state = state_after(
        *PLANNED, of_step(1), answered_one, of_step(2, "l"), failed, e.StepStarted("s1", 1, 2)
    )
    assert state.graph is not None
    assert list(state.graph.running["s1"].memo) == ["k"]


def test_an_undo_takes_the_questions_of_its_steps_away() -> None:
    undone = [e.UndoRequested(0, ("s1",)), e.Rewound(0, 1, steps=("s1",))]
    assert state_after(*PLANNED, of_step(1), undone).questions == {}


def test_a_question_of_a_step_that_does_not_run_is_illegal() -> None:
    with pytest.raises(e.IllegalEvent):
        state_after(step(), of_step(1))
