"""Requests to models that are judged: nothing goes out without a permit, and a permit holds for one question."""

from typing import Any

import pytest

from tests.agents.stories import DOWN, answered, decided, follow, ran, rules, state_after, step
from treadle.agents.decide import lifecycle, step_functions
from treadle.core import events as e
from treadle.core.effects import CallModel, JudgeRequest, Wait
from treadle.core.messages import Message
from treadle.core.state import TaskState

JUDGING = rules(judges_requests=True, gated=True)
OPENED = e.StepStarted("s1", 1)


def judged(verdict: e.RequestVerdict, index: int = 1) -> e.RequestJudged:
    return e.RequestJudged(f"s{index}", verdict, "m", "a-rule", "why")


def wanted(state: TaskState) -> list[tuple[type, str]]:
    decision: Any = decided(state, JUDGING)
    assert isinstance(decision, tuple), decision
    return [(type(effect), effect.id) for effect in decision]


JUDGE, ASK = [(JudgeRequest, "s1-judge")], [(CallModel, "s1")]


@pytest.mark.parametrize(
    ("events", "wants"),
    [
        ([OPENED], JUDGE),
        ([OPENED, judged("allow")], ASK),
        ([OPENED, judged("allow"), e.ModelStarted("s1", "m")], ASK),
        ([OPENED, e.ModelStarted("s1", "m")], ASK),  # it went out before there was a policy
        ([OPENED, judged("allow"), e.ModelStarted("s1", "m"), e.ModelStopped("s1", "crash")], ASK),
        ([OPENED, judged("ask")], JUDGE),  # the pause was lost in a crash
        ([OPENED, judged("ask"), e.PauseRequested("policy", "why"), e.Resumed()], ASK),
        ([OPENED, judged("ask"), e.Resumed()], JUDGE),  # nothing was paused, so nobody let it go
        ([OPENED, e.PauseRequested("ann"), judged("deny"), e.Resumed()], JUDGE),
        ([OPENED, judged("allow"), e.TaskForked("t0", "math", "talk")], JUDGE),  # a fork inherits no permit
    ],
)
def test_a_request_goes_out_only_with_a_permit(events: list[Any], wants: list[tuple[type, str]]):
    assert wanted(state_after(*events)) == wants


@pytest.mark.parametrize(
    ("failed", "wants"),
    [
        (e.ModelFailed("s1", DOWN, retry_at=9), ASK),
        (e.ModelFailed("s1", DOWN, retry_at=9, route="a", next_route="b"), JUDGE),  # another model
    ],
)
def test_a_permit_holds_for_the_next_attempt_at_the_same_model(
    failed: e.Event, wants: list[tuple[type, str]]
):
    state = state_after(OPENED, judged("allow"), e.ModelStarted("s1", "m"), failed)
    state.step.model_call.tries.retry_at = None  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    assert wanted(state) == wants


def test_the_next_question_needs_a_permit_of_its_own():
    asked = state_after(OPENED, judged("allow"), e.ModelStarted("s1", "m"), answered("look"))
    assert [call.permit for _, call in asked.open_model_calls()] == [None]
    done = state_after(OPENED, judged("allow"), *ran("look")[1:])
    events, decision = follow(done, JUDGING)
    assert [event.kind for event in events] == ["step_completed", "step_started"]
    assert [(type(effect), effect.id) for effect in decision] == [(JudgeRequest, "s2-judge")]  # type: ignore[union-attr]


def test_a_denied_request_fails_the_step_as_a_failed_model_does():
    denied = [
        judged("deny"),
        e.ModelStarted("s1", "m"),
        e.ModelFailed("s1", e.Failure("model", "denied", "no")),
    ]
    state = state_after(OPENED, *denied)
    assert state.model_calls == 0, "nothing went out"
    assert isinstance(decided(state, JUDGING), e.StepFailed)
    pausing = rules(judges_requests=True, gated=True, on_model_failure="pause")
    assert isinstance(decided(state, pausing), e.PauseRequested)
    resumed = state_after(OPENED, *denied, e.PauseRequested("failure policy", "no"), e.Resumed())
    decision: Any = decided(resumed, pausing)
    assert [type(effect) for effect in decision] == [JudgeRequest], "it is judged once more"


def test_a_paused_task_rests_until_it_is_resumed():
    state = state_after(OPENED, judged("ask"), e.PauseRequested("policy", "why"))
    assert decided(state, JUDGING) == Wait("paused")


def test_requests_of_step_functions_are_judged_one_by_one():
    requested = [e.ModelRequested("s1", f"s1-m{n}", f"k{n}", "d", (Message("user", ()),)) for n in (1, 2)]
    planned = [e.StepsPlanned((e.NextStep("a"),)), e.StepStarted("s1", 1), *requested]
    state = state_after(*planned, e.RequestJudged("s1", "allow", "m", call="s1-m1"))
    decision: Any = lifecycle.decide(state, JUDGING, step_functions.decide, finalize=True)
    assert [(type(effect), effect.id) for effect in decision][1:] == [
        (CallModel, "s1-m1"),
        (JudgeRequest, "s1-m2-judge"),
    ]


def test_without_a_policy_on_models_no_request_is_judged():
    assert [(type(effect), effect.id) for effect in decided(state_after(OPENED))] == ASK  # type: ignore[union-attr]


def test_a_request_that_is_out_is_not_judged_any_more():
    with pytest.raises(e.IllegalEvent, match="request_judged names s1, whose request is begun"):
        state_after(*step(), judged("allow"))
