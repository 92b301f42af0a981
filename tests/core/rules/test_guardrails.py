"""What guardrails decide changes the task: input, answers and results; undo and fork keep or drop it."""

from typing import Any

import pytest

from tests.core.test_state_tables import ANSWER, ASKED, CALLED, state_after
from treadle.core import events as e
from treadle.core.events import IllegalEvent
from treadle.core.messages import Text

JUDGED = e.GuardrailJudged


def rewritten(place: str, guards: Any, **content: Any) -> tuple[e.Event, e.Event]:
    step = "" if guards == "input" else "s1"
    return (
        JUDGED(step, place, guards, "rewrite", "r", "", content, {next(iter(content)): "go"}),
        JUDGED(step, place, guards, "allow"),
    )


def test_rewritten_input_is_read_by_the_step_that_starts_after() -> None:
    (created, started) = ASKED
    state = state_after(created, *rewritten("in1", "input", text="gone"), started)
    assert [message.text for message in state.messages] == ["gone"]
    assert (state.input, state.task_input) == ((Text("go"),), (Text("gone"),))


def test_rewritten_input_takes_its_place_in_the_step_that_has_read_it_and_voids_its_request() -> None:
    state = state_after(*ASKED, e.ModelStarted("s1", "m"), *rewritten("in1", "input", text="gone"))
    assert [message.text for message in state.messages] == ["gone"]
    assert state.step is not None
    assert (state.step.model_call.void, state.step.input) == (True, (Text("gone"),))
    held = state_after(
        *ASKED, e.ModelStarted("s1", "m"), e.AnswerHeld("s1", ANSWER), *rewritten("in1", "input", text="gone")
    )
    assert held.step is not None
    assert (held.step.model_call.status, held.step.model_call.held) == ("proposed", None)


def test_an_answer_that_comes_to_input_that_was_rewritten_is_dropped() -> None:
    begun = (*ASKED, e.ModelStarted("s1", "m"), *rewritten("in1", "input", text="gone"))
    state = state_after(*begun, e.AnswerHeld("s1", ANSWER))
    assert state.step is not None
    assert (state.step.model_call.status, state.checks.keys()) == ("proposed", {"in1"})


def test_a_held_answer_is_counted_once() -> None:
    from treadle.core.model import Usage

    usage = Usage(3, 4)
    state = state_after(
        *ASKED,
        e.ModelStarted("s1", "m"),
        e.AnswerHeld("s1", ANSWER, usage=usage, cost=5),
        e.ModelReturned("s1", ANSWER, usage=usage, cost=5),
    )
    assert (state.usage, state.cost, state.turn) == (usage, 5, 1)


ENDED = (*CALLED, e.ToolStarted("s1", "s1-0", "read"), e.ToolEnded("s1", "s1-0", "ok", "go"))


def test_a_rewritten_result_is_what_the_model_reads_and_an_undo_is_given_the_old_one() -> None:
    state = state_after(*ENDED, *rewritten("s1-0-value", "result", result="gone"))
    call = state.find_call("s1-0")
    assert call is not None
    assert (call.output, call.as_tool_call.output) == ("gone", "go")
    assert state.messages[-1].parts[0].text == "gone"  # type: ignore[union-attr]


def test_a_refused_result_is_withheld_from_the_model() -> None:
    state = state_after(*ENDED, JUDGED("s1", "s1-0-value", "result", "deny", "r", "No."))
    assert state.messages[-1].parts[0].text == "[the guardrail r refused the result: No.]"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (e.ApprovalDenied("s1", "s1-0-value", 1, "not for it", "ann"), "not for it"),
        (e.ApprovalExpired("s1", "s1-0-value", 1), "expired without a decision"),
    ],
)
def test_a_result_that_a_person_refuses_or_does_not_look_at_is_withheld_too(
    decision: e.Event, why: str
) -> None:
    asked = (
        JUDGED("s1", "s1-0-value", "result", "ask", "r", "", {"result": "go"}),
        e.ApprovalRequested("s1", "s1-0-value", 1, "d", "a", 0),
    )
    state = state_after(*ENDED, *asked, decision)
    told = state.messages[-1].parts[0].text  # type: ignore[union-attr]
    assert "refused the result" in told
    assert why in told


def test_a_content_that_is_settled_is_not_judged_again() -> None:
    with pytest.raises(IllegalEvent, match="in1, which is passed already"):
        state_after(*ASKED, JUDGED("", "in1", "input", "allow"), JUDGED("", "in1", "input", "allow"))


def test_an_undo_drops_what_was_decided_on_its_steps_and_keeps_input_as_it_was_left() -> None:
    state = state_after(
        *ENDED,
        *rewritten("s1-0-value", "result", result="x"),
        *rewritten("in1", "input", text="gone"),
        e.StepCompleted("s1"),
        e.UndoRequested(0, ("s1",)),
        e.Rewound(0, 1),
        e.StepStarted("s1b1", 1),
    )
    assert list(state.checks) == ["in1"]
    assert [message.text for message in state.messages] == ["gone"]


@pytest.mark.parametrize("ends", [e.TaskEnded("failed"), e.TaskForked("t", "agent", "thread")])
def test_what_a_person_was_asked_is_dropped_by_an_end_and_by_a_fork(ends: e.Event) -> None:
    asked = (
        JUDGED("", "in1", "input", "ask", "r", "", {"text": "go"}),
        e.ApprovalRequested("", "in1", 1, "d", "a", 9_000),
    )
    state = state_after(*ASKED, *asked)
    assert list(state.open_approvals) == ["in1"]
    assert (state_after(*ASKED, *asked, ends).open_approvals, next(iter(state.expiries())).call) == (
        {},
        "in1",
    )
