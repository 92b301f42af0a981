"""Failures: what each failure policy makes of them."""

from typing import Any

import pytest

from tests.agents.stories import (
    DOWN,
    answered,
    began,
    decided,
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
from treadle.core.messages import Text
from treadle.policy.limits import Limits
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


# ----------------------- limits on steps, requests, calls and time: the last answer, and where a task stops


def test_a_limit_of_no_steps_ends_the_task_degraded_and_without_text() -> None:
    written = follow(state_after(), rules(Limits(steps=0)))[0]
    assert written == [
        e.LimitReached("steps", 0, 0),
        e.TaskEnded("degraded", "", None, ("limit reached: steps",)),
    ]


def test_an_answer_in_the_last_step_completes() -> None:
    assert follow(state_after(step(), answered(text="4")), rules(Limits(steps=1)))[0][-1].state == "completed"


def test_after_tools_of_the_last_step_a_last_answer_is_requested_within_it() -> None:
    state = state_after(ran("look"))
    written, decision = follow(state, rules(Limits(steps=1)))
    assert written == [e.LimitReached("steps", 1, 1)]
    assert decision == (CallModel("s1", state.step, state.step.model_call, True),)


def after_the_limit(*more: Any) -> Any:
    return state_after(ran("look"), e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True), *more)


def test_the_last_answer_ends_the_task_degraded() -> None:
    written = follow(after_the_limit(answered(text="4")), rules(Limits(steps=1)))[0]
    assert written[0] == e.StepCompleted("s1", True, "4", reason="limit reached: steps")
    assert written[1] == e.TaskEnded("degraded", "4", None, ("limit reached: steps",))


def test_calls_in_a_last_answer_are_refused_and_the_history_stays_well_formed() -> None:
    second = answered("save", text="4")
    second.message = second.message.__class__(
        "assistant", (Text("4"), *(part.__class__("s1-1", "save", {}) for part in second.message.tool_calls))
    )
    state = after_the_limit(second)
    written = follow(state, rules(Limits(steps=1)))[0]
    assert kinds(written) == ["tool_ended", "step_completed", "task_ended"]
    assert written[0].outcome == "refused"
    assert list(well_formed("t", state.messages)) == []


@pytest.mark.parametrize("lost_answer", [e.ModelStopped("s1", "crash"), None])
def test_a_lost_last_answer_is_requested_again_or_dropped_with_the_limit(lost_answer: Any) -> None:
    by = rules(Limits(steps=1))
    state = after_the_limit(*([lost_answer] if lost_answer else []))
    assert wanted(follow(state, by)[1]) == ["CallModel s1"]
    raised = after_the_limit(e.ModelStopped("s1", "crash"), e.OptionsChanged({}))
    assert kinds(follow(raised, rules())[0]) == ["step_completed", "step_started"]


def test_a_failed_last_answer_runs_no_tool_again() -> None:
    failure = e.Failure("model", "server", "down")
    state = state_after(
        *[ran("look", outcome="error"), e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True)],
        *[e.ModelFailed("s1", failure), e.StepFailed("s1", failure), e.TaskEnded("failed", None, failure)],
        e.TaskReopened(2, "resume"),
    )
    written, decision = follow(state, rules(Limits(steps=1)))
    assert kinds(written) == ["step_started", "limit_reached"]
    assert wanted(decision) == ["CallModel s1"]


def test_with_raised_limits_a_degraded_task_goes_on_from_before_its_last_answer() -> None:
    state = after_the_limit(
        *[answered(text="4"), e.StepCompleted("s1", True, "4", reason="limit reached: steps")],
        *[e.TaskEnded("degraded", "4", None, ("limit reached: steps",)), e.TaskReopened(2, "resume")],
    )
    assert follow(state)[0] == [e.StepStarted("s2", 2)]
    assert state.messages[-1].role == "tool"
    assert (state.reasons, state.output) == ([], None)


@pytest.mark.parametrize("limit", [0, 1])
def test_on_limit_fail_ends_the_task_failed(limit: int) -> None:
    by = rules(Limits(steps=limit), on_limit="fail")
    end = follow(state_after(*(ran("look") if limit else [])), by)[0][-1]
    assert (end.kind, end.state, end.error.kind) == ("task_ended", "failed", "steps")


def test_on_limit_pause_pauses_until_the_limit_is_raised() -> None:
    by = rules(Limits(steps=1), on_limit="pause")
    state = state_after(ran("look"))
    written, decision = follow(state, by)
    assert kinds(written) == ["step_completed", "limit_reached", "pause_requested"]
    assert decision == Wait("paused")
    lifted = state_after(ran("look"), written, e.Resumed())
    assert follow(lifted, by)[1] == Wait("paused")
    raised = state_after(ran("look"), written, e.OptionsChanged({}), e.Resumed())
    assert wanted(follow(raised, rules())[1]) == ["CallModel s2"]


@pytest.mark.parametrize(
    ("limits", "name"), [(Limits(model_calls=0), "model_calls"), (Limits(tokens=0), "tokens")]
)
def test_without_room_for_one_request_the_task_ends_degraded(limits: Limits, name: str) -> None:
    written = follow(state_after(), rules(limits))[0]
    assert kinds(written) == ["step_started", "limit_reached", "task_ended"]
    assert written[1].limit == name
    assert written[2].state == "degraded"


def test_the_last_model_call_is_kept_for_an_answer_without_tools() -> None:
    state = state_after(ran("look"))
    written, decision = follow(state, rules(Limits(model_calls=2)))
    assert kinds(written) == ["step_completed", "step_started", "limit_reached"]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)
    assert decision[0].final


def test_one_model_call_is_spent_on_an_answer_without_tools() -> None:
    decision = follow(state_after(), rules(Limits(model_calls=1)))[1]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)
    assert decision[0].final


def test_tokens_are_reserved_by_the_size_of_the_last_request() -> None:
    written = follow(state_after(ran("look")), rules(Limits(tokens=19)))[0]
    assert kinds(written) == ["step_completed", "step_started", "limit_reached"]
    assert kinds(follow(state_after(ran("look")), rules(Limits(tokens=21)))[0]) == [
        "step_completed",
        "step_started",
    ]


@pytest.mark.parametrize(("allowed", "refused"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_of_a_batch_larger_than_the_calls_left_the_first_run(allowed: int, refused: int) -> None:
    state = state_after(step(), answered("look", "look", "look"))
    written, decision = follow(state, rules(Limits(tool_calls=allowed)))
    if allowed:
        assert wanted(decision) == [f"CallTool s1-{place}" for place in range(allowed)]
    assert [event.outcome for event in written if event.kind == "tool_ended"] == ["refused"] * refused


def test_a_refused_call_leads_to_the_last_answer() -> None:
    state = state_after(
        step(), answered("look", "look"), began(0, name="look"), ended(0), ended(1, "refused")
    )
    written, decision = follow(state, rules(Limits(tool_calls=1)))
    assert written == [e.LimitReached("tool_calls", 1, 2)]
    assert decision == (CallModel("s1", state.step, state.step.model_call, True),)


def test_when_time_is_up_what_runs_is_stopped_and_the_rest_refused() -> None:
    by = rules(Limits(seconds=1))
    told_so = [step(), answered("save", "look"), began(0), e.LimitReached("seconds", 1, 1)]
    assert decided(state_after(*told_so), by) == ()
    state = state_after(*told_so, e.ToolStopped("s1", "s1-0", "interrupted"))
    written = follow(state, by)[0]
    assert [event.outcome for event in written if event.kind == "tool_ended"] == ["unknown", "refused"]
