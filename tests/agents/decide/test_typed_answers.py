"""Decisions about typed answers, as tables of events and decisions."""

from typing import Any

import pytest

from tests.agents.stories import decided, recorded, rules, state_after
from treadle.core import events as e
from treadle.core.effects import CallModel, CallTool
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.rules.fold import FAILURE_POLICY, apply
from treadle.core.state import TaskState
from treadle.policy.limits import Limits

RIGHT = e.TypedAnswer({"x": 1})
WRONG = e.TypedAnswer(None, "x: missing")
TYPED = rules(output_retries=1)


def model_asked(step: str = "s1", index: int = 1) -> list[e.Event]:
    return [e.StepStarted(step, index), e.ModelStarted(step, "m")]


def model_answers(step: str, typed: e.TypedAnswer | None, *calls: str, finish: Any = "stop") -> list[e.Event]:
    """Return an answer as text, or with calls of these names, the first of which may give the typed answer."""
    parts = [ToolCall(f"{step}-{n}", name, {}) for n, name in enumerate(calls)] or [Text("text")]
    return [e.ModelReturned(step, Message("assistant", tuple(parts)), finish, typed=typed)]


def wrong_step(step: str, index: int) -> list[e.Event]:
    return [*model_asked(step, index), *model_answers(step, WRONG), e.StepCompleted(step)]


def test_a_right_answer_is_the_last_step() -> None:
    end = recorded(state_after(model_asked(), model_answers("s1", RIGHT)), TYPED)
    assert (end.kind, end.last, end.output, end.direct) == ("step_completed", True, {"x": 1}, False)


@pytest.mark.parametrize("value", [None, False, 0, "", []])
def test_a_right_answer_may_be_none(value: Any) -> None:
    state = state_after(model_asked(), model_answers("s1", e.TypedAnswer(value)))
    end = recorded(state, TYPED)
    assert (end.last, end.output) == (True, value)


def test_a_wrong_answer_ends_its_step_and_goes_back_to_the_model() -> None:
    state = state_after(model_asked(), model_answers("s1", WRONG))
    assert (state.messages[-1].role, state.messages[-1].text, state.rejected) == ("user", "x: missing", 1)
    end = recorded(state, TYPED)
    assert (end.kind, end.last) == ("step_completed", False)


def test_one_wrong_answer_too_many_fails_the_step() -> None:
    state = state_after(wrong_step("s1", 1), model_asked("s2", 2), model_answers("s2", WRONG))
    failed = recorded(state, TYPED)
    assert (failed.kind, failed.error.source, failed.error.kind) == ("step_failed", "model", "invalid_output")


def test_calls_of_tools_between_wrong_answers_forgive_none() -> None:
    looked = [*model_asked("s2", 2), *model_answers("s2", None, "look")]
    looked += [e.ToolStarted("s2", "s2-0"), e.ToolEnded("s2", "s2-0"), e.StepCompleted("s2")]
    state = state_after(wrong_step("s1", 1), looked, model_asked("s3", 3), model_answers("s3", WRONG))
    assert recorded(state, TYPED).kind == "step_failed"


def test_a_failed_step_that_is_resumed_asks_again_with_all_its_retries() -> None:
    error = e.Failure("model", "invalid_output", "x: missing")
    failed = [
        *wrong_step("s1", 1),
        *model_asked("s2", 2),
        *model_answers("s2", WRONG),
        e.StepFailed("s2", error),
    ]
    state = state_after(
        failed, e.TaskEnded("failed", None, error), e.TaskReopened(2, "resume"), e.StepStarted("s2", 2, 2)
    )
    assert state.rejected == 0
    (ask,) = decided(state, TYPED)  # type: ignore[misc]
    assert isinstance(ask, CallModel)
    assert not ask.final


def giving(step: str = "s1") -> e.TypedAnswer:
    return e.TypedAnswer({"x": 1}, None, f"{step}-0")


def test_a_call_that_gives_the_answer_never_starts_and_counts_as_none() -> None:
    state = state_after(
        model_asked(), model_answers("s1", giving(), "final_answer", "look", finish="tool_calls")
    )
    assert state.tool_calls == 1
    end = recorded(state, TYPED)
    assert (end.kind, end.call, end.outcome) == ("tool_ended", "s1-0", "ok")
    state = state_after(
        model_asked(), model_answers("s1", giving(), "final_answer", "look", finish="tool_calls"), end
    )
    (beside,) = decided(state, TYPED)  # type: ignore[misc]
    assert isinstance(beside, CallTool)
    assert beside.call.name == "look"


def test_a_second_call_that_gives_an_answer_is_none() -> None:
    state = state_after(
        model_asked(), model_answers("s1", giving(), "final_answer", "final_answer", finish="tool_calls")
    )
    first = recorded(state, TYPED)
    state = state_after(
        model_asked(),
        model_answers("s1", giving(), "final_answer", "final_answer", finish="tool_calls"),
        first,
    )
    assert (recorded(state, TYPED).call, recorded(state, TYPED).outcome) == ("s1-1", "invalid")


def test_other_calls_beside_the_answer_do_not_run() -> None:
    typed = e.TypedAnswer({"x": 1}, None, "s1-2")
    state = state_after(
        model_asked(), model_answers("s1", typed, "look", "look", "final_answer", finish="tool_calls")
    )
    by = rules(Limits(tool_calls=1), output_retries=1)
    for place in range(2):
        end = recorded(state, by)
        end.seq, end.time = state.seq + 1, state.time
        apply(state, end)
        assert (end.call, end.outcome) == [("s1-2", "ok"), ("s1-1", "refused")][place]


def test_the_same_wrong_answer_time_and_again_is_no_circle_of_calls() -> None:
    by = rules(Limits(repeats=2), output_retries=5)
    wrong = [
        *model_asked("s1", 1),
        *model_answers("s1", e.TypedAnswer(None, "no", "s1-0"), "final_answer", finish="tool_calls"),
    ]
    other = [
        *model_asked("s2", 2),
        *model_answers("s2", e.TypedAnswer(None, "no", "s2-0"), "final_answer", finish="tool_calls"),
    ]
    ends = [e.ToolEnded(f"s{n}", f"s{n}-0", "invalid", error=e.Failure("model", "x", "no")) for n in (1, 2)]
    assert recorded(
        state_after(wrong, ends[0], e.StepCompleted("s1"), other, ends[1]), by
    ) == e.StepCompleted("s2")


def test_a_wrong_last_answer_is_reported_and_not_requested_again() -> None:
    looked = [
        *model_asked(),
        *model_answers("s1", None, "look"),
        e.ToolStarted("s1", "s1-0"),
        e.ToolEnded("s1", "s1-0"),
    ]
    state = state_after(
        looked, e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True), model_answers("s1", WRONG)
    )
    assert (state.messages[-1].role, state.rejected) == ("assistant", 0)


def test_an_edit_before_the_retry_of_a_wrong_answer_leaves_the_calls_of_the_step() -> None:
    error = e.Failure("model", "invalid_output", "no")
    wrong = model_answers(
        "s1", e.TypedAnswer(None, "no", "s1-0"), "final_answer", "save", finish="tool_calls"
    )
    state = state_after(
        *[model_asked(), wrong, e.ToolEnded("s1", "s1-0", "invalid", error=error)],
        *[e.ToolStarted("s1", "s1-1", "write"), e.ToolEnded("s1", "s1-1"), e.StepFailed("s1", error)],
        *[e.TaskEnded("failed", None, error), e.TaskReopened(2, "resume"), e.StepStarted("s1", 1, 2)],
        *[e.ModelStarted("s1", "m", 2), e.ModelStopped("s1", "interrupted")],
        e.InputEdited((Text("rather this"),), (Text("go"),)),
    )
    assert [message.role for message in state.messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("typed", [RIGHT, None], ids=["right", "refused"])
def test_an_answer_that_crossed_with_a_message_is_not_the_last(typed: Any) -> None:
    state = state_after(
        model_asked(),
        e.InputReceived((Text("and?"),)),
        model_answers("s1", typed, finish="stop" if typed else "refusal"),
    )
    assert recorded(state, TYPED).last is False


def test_a_right_answer_beside_a_call_whose_failure_is_to_fail_the_task_ends_nothing() -> None:
    error = e.Failure("tool", "error", "no", "s1-1")
    state = state_after(
        *[model_asked(), model_answers("s1", giving(), "final_answer", "look", finish="tool_calls")],
        *[e.ToolEnded("s1", "s1-0", "ok"), e.ToolStarted("s1", "s1-1")],
        e.ToolEnded("s1", "s1-1", "error", error=error),
    )
    assert recorded(state, rules(output_retries=1, on_tool_failure="fail")) == e.StepFailed("s1", error)


def answered_late() -> TaskState:
    return state_after(model_asked(), model_answers("s1", RIGHT), e.LimitReached("seconds", 1, 2))


def test_an_answer_before_the_limit_on_time_is_kept() -> None:
    by = rules(Limits(seconds=1), output_retries=1)
    end = recorded(answered_late(), by)
    assert (end.kind, end.state, end.output) == ("task_ended", "degraded", {"x": 1})


def test_text_that_is_no_answer_is_dropped_at_the_limit_on_time() -> None:
    state = state_after(model_asked(), model_answers("s1", WRONG), e.LimitReached("seconds", 1, 2))
    end = recorded(state, rules(Limits(seconds=1), output_retries=1))
    assert (end.state, end.output) == ("degraded", None)


def test_a_task_paused_after_a_wrong_answer_continues_with_another_step() -> None:
    by = rules(output_retries=0, on_model_failure="pause")
    state = state_after(model_asked(), model_answers("s1", WRONG))
    pause = recorded(state, by)
    assert (pause.kind, pause.by) == ("pause_requested", FAILURE_POLICY)
    state = state_after(model_asked(), model_answers("s1", WRONG), pause, e.Resumed())
    assert (recorded(state, by).kind, recorded(state, by).last) == ("step_completed", False)


def test_undo_takes_back_how_many_answers_were_wrong() -> None:
    state = state_after(
        wrong_step("s1", 1), wrong_step("s2", 2), e.UndoRequested(1, ("s2",)), e.Rewound(1, 1)
    )
    assert state.rejected == 1
