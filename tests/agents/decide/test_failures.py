"""Failures: what each failure policy makes of them."""

from typing import Any

import pytest

from tests.agents.stories import (
    DOWN,
    answered,
    began,
    ended,
    follow,
    kinds,
    ran,
    recorded,
    rules,
    state_after,
    step,
    wanted,
)
from treadle.core import events as e
from treadle.core.effects import CallModel, Wait
from treadle.testing.audit import well_formed


def test_a_failed_model_fails_the_task_and_the_next_attempt_asks_again() -> None:
    state = state_after(step(), e.ModelFailed("s1", DOWN))
    assert follow(state)[0] == [e.StepFailed("s1", DOWN), e.TaskEnded("failed", None, DOWN)]
    again = state_after(
        step(), e.ModelFailed("s1", DOWN), follow(state_after(step(), e.ModelFailed("s1", DOWN)))[0]
    )
    reopened = state_after(
        *[step(), e.ModelFailed("s1", DOWN), e.StepFailed("s1", DOWN), e.TaskEnded("failed", None, DOWN)],
        e.TaskReopened(2, "resume"),
    )
    assert again.ended == "failed"
    assert follow(reopened) == (
        [e.StepStarted("s1", 1, 2)],
        (CallModel("s1", reopened.step, reopened.step.model_call, False),),
    )


def test_a_failed_model_may_end_the_task_degraded_with_its_partial_answer() -> None:
    state = state_after(ran("look"), e.StepCompleted("s1"), step(2), e.ModelFailed("s2", DOWN))
    end = recorded(state, rules(on_model_failure="degrade"))
    assert (end.state, end.reasons) == ("degraded", ("the model failed: down",))


def test_a_failed_model_may_pause_the_task_and_is_called_again_afterwards() -> None:
    by = rules(on_model_failure="pause")
    state = state_after(step(), e.ModelFailed("s1", DOWN))
    written, decision = follow(state, by)
    assert (kinds(written), decision) == (["pause_requested"], Wait("paused"))
    lifted = state_after(step(), e.ModelFailed("s1", DOWN), written, e.Resumed())
    assert wanted(follow(lifted, by)[1]) == ["CallModel s1"]


def test_the_model_sees_a_failed_tool_by_default() -> None:
    assert recorded(state_after(ran("look", outcome="error"))) == e.StepCompleted("s1")


def test_a_failed_tool_may_fail_the_task_and_only_it_is_tried_again() -> None:
    by = rules(on_tool_failure="fail")
    calls = [step(), answered("look", "save"), began(0, name="look"), ended(0), began(1), ended(1, "error")]
    written = follow(state_after(*calls), by)[0]
    assert kinds(written) == ["step_failed", "task_ended"]
    state = state_after(*calls, written, e.TaskReopened(2, "resume"))
    assert wanted(follow(state, by)[1]) == ["CallTool s1-1r2"]
    assert state.step is not None
    assert [(call.id, call.outcome) for call in state.step.calls] == [("s1-0", "ok"), ("s1-1r2", None)]


def test_the_result_of_a_second_try_answers_the_call_the_model_made() -> None:
    state = state_after(
        *[ran("save", outcome="error"), e.StepFailed("s1", e.Failure("tool", "error", "no", "s1-0"))],
        *[e.TaskEnded("failed"), e.TaskReopened(2, "resume"), e.StepStarted("s1", 1, 2)],
        *[e.ToolStarted("s1", "s1-0r2", "write"), e.ToolEnded("s1", "s1-0r2", "ok", "done")],
    )
    assert list(well_formed("t", state.messages)) == []
    assert state.messages[-1].parts[0].text == "done"


def test_a_third_try_is_another_call_than_the_second_and_each_counts() -> None:
    def failed(attempt: int) -> list[e.Event]:
        again = e.StepStarted("s1", 1, attempt + 1)
        error = e.Failure("tool", "error", "no", "s1-0")
        return [
            e.StepFailed("s1", error),
            e.TaskEnded("failed"),
            e.TaskReopened(attempt + 1, "resume"),
            again,
        ]

    error = e.Failure("tool", "error", "no", "s1-0r2")
    second = [e.ToolStarted("s1", "s1-0r2", "write"), e.ToolEnded("s1", "s1-0r2", "error", error=error)]
    state = state_after(ran("save", outcome="error"), failed(1), second, failed(2))
    assert state.step is not None
    assert (list(state.step.open), state.tool_calls) == (["s1-0r3"], 3)


@pytest.mark.parametrize(("source", "reason"), [("tool", "look failed: it is timeout"), ("subagent", None)])
def test_a_failure_policy_applies_to_its_own_source_only(source: str, reason: str | None) -> None:
    event = recorded(
        state_after(ran("look", outcome="timeout")), rules(**{f"on_{source}_failure": "degrade"})
    )
    assert event == e.StepCompleted("s1", reason=reason)


def test_a_failed_tool_may_degrade_the_task() -> None:
    event = recorded(state_after(ran("look", outcome="timeout")), rules(on_tool_failure="degrade"))
    assert event == e.StepCompleted("s1", reason="look failed: it is timeout")


def test_a_failed_tool_may_pause_once_and_then_the_step_completes() -> None:
    by = rules(on_tool_failure="pause")
    written, decision = follow(state_after(ran("look", outcome="error")), by)
    assert (kinds(written), decision) == (["pause_requested"], Wait("paused"))
    assert recorded(state_after(ran("look", outcome="error"), written, e.Resumed()), by) == e.StepCompleted(
        "s1"
    )


DENIED_STEP = [step(), answered("save"), ended(0, "denied")]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("continue", "step_completed"),
        ("degrade", "step_completed"),
        ("fail", "step_failed"),
        ("pause", "pause_requested"),
    ],
)
def test_a_denied_call_does_to_its_task_what_the_failure_policy_says(policy: Any, kind: str):
    event = recorded(state_after(*DENIED_STEP), rules(on_denied_call=policy))
    assert event.kind == kind
    if policy in ("continue", "degrade"):
        assert event.reason == ("it is denied" if policy == "degrade" else None)


def test_a_task_that_a_denied_call_failed_goes_on_when_it_is_resumed():
    error = e.Failure("tool", "denied", "it is denied", "s1-0")
    failed = e.TaskEnded("failed", None, error)
    resumed = state_after(*DENIED_STEP, e.StepFailed("s1", error), failed, e.TaskReopened(2, "resume"))
    written, decision = follow(resumed, rules(on_denied_call="fail"))
    assert kinds(written) == ["step_started", "step_completed", "step_started"]
    assert isinstance(decision, tuple), "the model reads that the call was denied"
