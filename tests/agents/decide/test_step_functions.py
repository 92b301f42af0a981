"""Steps that are functions: which of them begin, which effects they want, and what follows from a failure."""

from typing import Any

import pytest

from tests.agents.stories import CREATED, SPECS, numbered
from treadle.agents.decide.rules import Rules
from treadle.agents.decide.step_functions import NO_STEP_LEFT, decide
from treadle.core import events as e
from treadle.core.effects import CallModel, CallTool, ConsultWorker, RunFunction, Wait
from treadle.core.rules.fold import fold
from treadle.core.state import TaskState, start
from treadle.policy.limits import Limits

A_AND_B = e.StepsPlanned((e.NextStep("a"), e.NextStep("b")))
FIRST, SECOND = e.StepStarted("s1", 1), e.StepStarted("s2", 2)
DOWN = e.Failure("worker", "error", "ValueError: no luck")


def rules(**fields: Any) -> Rules:
    return Rules("m", SPECS, **fields)


def story(*events: Any) -> TaskState:
    return fold(start("t"), numbered(CREATED, *events))


def effects(decision: Any) -> list[tuple[str, str]]:
    """Return the kinds and the ids of effects."""
    return [(type(effect).__name__, effect.id) for effect in decision]


def test_a_worker_without_first_steps_is_asked_for_them() -> None:
    assert decide(story(), rules()) == (ConsultWorker("initialize"),)
    planned = decide(story(), rules(first_steps=(e.NextStep("a"),)))
    assert planned == e.StepsPlanned((e.NextStep("a"),))


def test_all_ready_steps_begin_before_their_functions_run() -> None:
    assert decide(story(A_AND_B), rules()) == e.StepStarted("s1", 1)
    assert decide(story(A_AND_B, FIRST), rules()) == e.StepStarted("s2", 2)
    both = decide(story(A_AND_B, FIRST, SECOND), rules())
    assert effects(both) == [(RunFunction.__name__, "s1"), (RunFunction.__name__, "s2")]


def test_no_more_steps_run_at_a_time_than_allowed() -> None:
    state = story(A_AND_B, FIRST)
    assert effects(decide(state, rules(max_parallel_steps=1))) == [("RunFunction", "s1")]


def test_a_step_that_waits_for_another_begins_once_that_has_ended() -> None:
    plan = e.StepsPlanned((e.NextStep("a"), e.NextStep("b", after=("a",))))
    assert effects(decide(story(plan, FIRST), rules())) == [("RunFunction", "s1")]
    assert decide(story(plan, FIRST, e.StepCompleted("s1")), rules()) == e.StepStarted("s2", 2)


def test_only_the_steps_that_may_run_begin() -> None:
    state = story(A_AND_B)
    assert decide(state, rules(only_steps=frozenset({"s2"}))) == e.StepStarted("s2", 2)
    assert decide(state, rules(only_steps=frozenset())) == Wait("idle")


def test_the_requests_and_calls_of_a_running_step_are_wanted_beside_its_function() -> None:
    request = e.ModelRequested("s1", "s1-m1", "ask", "d")
    call = e.CallRequested("s1", "s1-f1", "save", {}, "save", "d")
    state = story(e.StepsPlanned((e.NextStep("a"),)), FIRST, request, call)
    assert effects(decide(state, rules())) == [
        (RunFunction.__name__, "s1"),
        (CallTool.__name__, "s1-f1"),
        (CallModel.__name__, "s1-m1"),
    ]


def test_a_limit_on_steps_waits_for_the_steps_that_run() -> None:
    by = rules(limits=Limits(steps=1))
    assert effects(decide(story(A_AND_B, FIRST), by)) == [("RunFunction", "s1")]
    assert decide(story(A_AND_B, FIRST, e.StepCompleted("s1")), by) == e.LimitReached("steps", 1, 1)


@pytest.mark.parametrize(
    ("policy", "event"),
    [("fail", e.TaskEnded), ("degrade", e.TaskEnded), ("pause", e.PauseRequested)],
)
def test_a_failed_step_waits_for_its_siblings_and_then_for_the_policy(policy: Any, event: type) -> None:
    by, failed = rules(on_model_failure=policy), e.StepFailed("s1", e.Failure("model", "server", "down"))
    assert effects(decide(story(A_AND_B, FIRST, SECOND, failed), by)) == [("RunFunction", "s2")]
    decision = decide(story(A_AND_B, FIRST, SECOND, failed, e.StepCompleted("s2")), by)
    assert type(decision) is event
    if isinstance(decision, e.TaskEnded):
        assert decision.state == {"fail": "failed", "degrade": "degraded"}[policy]


def test_a_step_that_raised_fails_its_task() -> None:
    plan = e.StepsPlanned((e.NextStep("a"),))
    ended = decide(story(plan, FIRST, e.StepFailed("s1", DOWN)), rules())
    assert isinstance(ended, e.TaskEnded)
    assert (ended.state, ended.error) == ("failed", DOWN)


def test_a_plan_that_leads_to_no_answer_fails_the_task() -> None:
    ended = decide(story(e.StepsPlanned((e.NextStep("a"),)), FIRST, e.StepCompleted("s1")), rules())
    assert isinstance(ended, e.TaskEnded)
    assert ended.error == e.Failure("worker", "no_way_on", NO_STEP_LEFT)
