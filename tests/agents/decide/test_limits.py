"""Limits on steps, requests, calls and time: the last answer, and where a task stops."""

from typing import Any

import pytest

from tests.agents.stories import (
    answered,
    began,
    decided,
    ended,
    follow,
    kinds,
    ran,
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
