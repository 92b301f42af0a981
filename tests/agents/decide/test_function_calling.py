"""What the function-calling worker wants next, as a table: what happened on the left, what follows on the right."""

from typing import Any

import pytest

from tests.agents.stories import (
    answered,
    began,
    decided,
    ended,
    follow,
    kinds,
    lost,
    ran,
    recorded,
    rules,
    step,
    told,
)
from treadle.core import events as e
from treadle.core.effects import CallModel, CallTool, Reconcile, Wait
from treadle.core.messages import Text
from treadle.policy.limits import Limits
from treadle.testing.audit import well_formed


def wanted(decision: Any) -> list[str]:
    assert isinstance(decision, tuple), decision
    return [f"{type(effect).__name__} {effect.id}" for effect in decision]


# ------------------------------------------------------------------------------------- the plain course


def test_a_new_task_starts_its_first_step_and_asks_the_model() -> None:
    state = told()
    assert recorded(state) == e.StepStarted("s1", 1)
    assert wanted(follow(state)[1]) == ["CallModel s1"]
    assert [message.text for message in state.messages] == ["go"]


def test_a_model_call_in_flight_goes_on_being_wanted() -> None:
    assert wanted(decided(told(step()))) == ["CallModel s1"]


def test_an_answer_without_calls_completes_the_task() -> None:
    written, decision = follow(told(step(), answered(words="4")))
    assert written == [e.StepCompleted("s1", True, "4"), e.TaskEnded("completed", "4")]
    assert decision == Wait("ended")


def test_an_answered_task_waits_until_it_is_finalized() -> None:
    assert follow(told(step(), answered(words="4")), finalize=False)[1] == Wait("answered")


def test_all_calls_of_an_answer_run_at_once() -> None:
    assert wanted(decided(told(step(), answered("look", "save", "put")))) == [
        "CallTool s1-0",
        "CallTool s1-1",
        "CallTool s1-2",
    ]


def test_no_more_calls_run_at_once_than_the_cap_allows() -> None:
    by = rules(max_parallel_tools=2)
    assert wanted(decided(told(step(), answered("look", "look", "look")), by)) == [
        "CallTool s1-0",
        "CallTool s1-1",
    ]
    state = told(step(), answered("look", "look", "look"), began(0, name="look"), ended(0))
    assert wanted(decided(state, by)) == ["CallTool s1-1", "CallTool s1-2"]


def test_finished_calls_complete_the_step_and_the_next_one_starts() -> None:
    written, decision = follow(told(ran("look", "save")))
    assert written == [e.StepCompleted("s1"), e.StepStarted("s2", 2)]
    assert wanted(decision) == ["CallModel s2"]


def test_results_are_in_call_order_for_any_order_of_ends() -> None:
    state = told(step(), answered("look", "save"), began(0, name="look"), began(1), ended(1), ended(0))
    assert [part.call_id for part in state.messages[-1].parts] == ["s1-0", "s1-1"]


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal"])
def test_a_cut_answer_without_calls_is_degraded_and_says_why(finish: Any) -> None:
    completed, end = follow(told(step(), answered(words="4", finish=finish)))[0]
    assert completed.reason
    assert (end.state, end.reasons) == ("degraded", (completed.reason,))


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "error", "unknown"])
def test_calls_of_an_incomplete_answer_are_marked_and_never_an_action(finish: Any) -> None:
    state = told(step(), answered("save", finish=finish))
    assert state.step is not None
    assert all(call.problem for call in state.step.calls)


# -------------------------------------------------------------------------- answers given by a tool


def test_the_result_of_a_return_direct_tool_is_the_answer() -> None:
    state = told(ran("look", "reply"))
    assert recorded(state) == e.StepCompleted("s1", True, "done", True)
    assert follow(state)[0][-1] == e.TaskEnded("completed", "done")
    assert state.messages[-1].text == "done"


def test_a_failed_return_direct_tool_is_a_result_like_any_other() -> None:
    assert recorded(told(ran("reply", outcome="error"))) == e.StepCompleted("s1")


def test_a_return_direct_tool_waits_for_its_siblings() -> None:
    state = told(step(), answered("reply", "look"), began(0, name="reply"), ended(0))
    assert wanted(decided(state)) == ["CallTool s1-1"]


# ------------------------------------------------------------------------------------------- feedback


def test_a_message_that_crossed_with_the_answer_is_read_by_one_more_step() -> None:
    words = e.InputReceived((Text("and 3?"),))
    written, decision = follow(told(step(), words, answered(words="4")))
    assert written == [e.StepCompleted("s1", False, "4"), e.StepStarted("s2", 2)]
    assert wanted(decision) == ["CallModel s2"]


def test_a_step_that_is_skipped_although_its_model_answered_leaves_the_question_to_the_next() -> None:
    broken = e.StepFailed("s1", e.Failure("tool", "error", "no", "s1-0"))
    state = told(step(), answered(words="4"), broken, e.StepSkipped("s1"), step(2))
    assert [message.text for message in state.messages] == ["go"]
    ended = told(ran("look", outcome="error"), broken, e.StepSkipped("s1"), step(2))
    assert [message.role for message in ended.messages] == ["user", "assistant", "tool"]


def test_a_message_after_the_answer_continues_the_task() -> None:
    state = told(
        step(), answered(words="4"), e.StepCompleted("s1", True, "4"), e.InputReceived((Text("sure?"),))
    )
    assert recorded(state) == e.StepStarted("s2", 2)
    assert (state.answered, state.output) == (False, None)


# ------------------------------------------------------------------------------------------ steps limit


def test_no_step_at_all_ends_degraded_without_a_word() -> None:
    written = follow(told(), rules(Limits(steps=0)))[0]
    assert written == [
        e.LimitReached("steps", 0, 0),
        e.TaskEnded("degraded", "", None, ("limit reached: steps",)),
    ]


def test_an_answer_in_the_last_step_completes() -> None:
    assert follow(told(step(), answered(words="4")), rules(Limits(steps=1)))[0][-1].state == "completed"


def test_after_tools_of_the_last_step_a_last_answer_is_requested_within_it() -> None:
    state = told(ran("look"))
    written, decision = follow(state, rules(Limits(steps=1)))
    assert written == [e.LimitReached("steps", 1, 1)]
    assert decision == (CallModel("s1", state.step, state.step.model_call, True),)


def after_the_limit(*more: Any) -> Any:
    return told(ran("look"), e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True), *more)


def test_the_last_answer_ends_the_task_degraded() -> None:
    written = follow(after_the_limit(answered(words="4")), rules(Limits(steps=1)))[0]
    assert written[0] == e.StepCompleted("s1", True, "4", reason="limit reached: steps")
    assert written[1] == e.TaskEnded("degraded", "4", None, ("limit reached: steps",))


def test_calls_in_a_last_answer_are_refused_and_the_history_stays_well_formed() -> None:
    second = answered("save", words="4")
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
    state = told(
        *[ran("look", outcome="error"), e.LimitReached("steps", 1, 1), e.ModelStarted("s1", "m", 2, True)],
        *[e.ModelFailed("s1", failure), e.StepFailed("s1", failure), e.TaskEnded("failed", None, failure)],
        e.TaskReopened(2, "resume"),
    )
    written, decision = follow(state, rules(Limits(steps=1)))
    assert kinds(written) == ["step_started", "limit_reached"]
    assert wanted(decision) == ["CallModel s1"]


def test_with_raised_limits_a_degraded_task_goes_on_from_before_its_last_answer() -> None:
    state = after_the_limit(
        *[answered(words="4"), e.StepCompleted("s1", True, "4", reason="limit reached: steps")],
        *[e.TaskEnded("degraded", "4", None, ("limit reached: steps",)), e.TaskReopened(2, "resume")],
    )
    assert follow(state)[0] == [e.StepStarted("s2", 2)]
    assert state.messages[-1].role == "tool"
    assert (state.reasons, state.output) == ([], None)


@pytest.mark.parametrize("limit", [0, 1])
def test_on_limit_fail_ends_the_task_failed(limit: int) -> None:
    by = rules(Limits(steps=limit), on_limit="fail")
    end = follow(told(*(ran("look") if limit else [])), by)[0][-1]
    assert (end.kind, end.state, end.error.kind) == ("task_ended", "failed", "steps")


def test_on_limit_pause_pauses_until_the_limit_is_raised() -> None:
    by = rules(Limits(steps=1), on_limit="pause")
    state = told(ran("look"))
    written, decision = follow(state, by)
    assert kinds(written) == ["step_completed", "limit_reached", "pause_requested"]
    assert decision == Wait("paused")
    lifted = told(ran("look"), written, e.Resumed())
    assert follow(lifted, by)[1] == Wait("paused")
    raised = told(ran("look"), written, e.OptionsChanged({}), e.Resumed())
    assert wanted(follow(raised, rules())[1]) == ["CallModel s2"]


# ------------------------------------------------------------------------------------- the other limits


@pytest.mark.parametrize(
    ("limits", "name"), [(Limits(model_calls=0), "model_calls"), (Limits(tokens=0), "tokens")]
)
def test_without_room_for_one_request_the_task_ends_degraded(limits: Limits, name: str) -> None:
    written = follow(told(), rules(limits))[0]
    assert kinds(written) == ["step_started", "limit_reached", "task_ended"]
    assert written[1].limit == name
    assert written[2].state == "degraded"


def test_the_last_model_call_is_kept_for_an_answer_without_tools() -> None:
    state = told(ran("look"))
    written, decision = follow(state, rules(Limits(model_calls=2)))
    assert kinds(written) == ["step_completed", "step_started", "limit_reached"]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)
    assert decision[0].final


def test_one_model_call_is_spent_on_an_answer_without_tools() -> None:
    decision = follow(told(), rules(Limits(model_calls=1)))[1]
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], CallModel)
    assert decision[0].final


def test_tokens_are_reserved_by_the_size_of_the_last_request() -> None:
    written = follow(told(ran("look")), rules(Limits(tokens=19)))[0]
    assert kinds(written) == ["step_completed", "step_started", "limit_reached"]
    assert kinds(follow(told(ran("look")), rules(Limits(tokens=21)))[0]) == ["step_completed", "step_started"]


@pytest.mark.parametrize(("allowed", "refused"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_of_a_batch_larger_than_the_calls_left_the_first_run(allowed: int, refused: int) -> None:
    state = told(step(), answered("look", "look", "look"))
    written, decision = follow(state, rules(Limits(tool_calls=allowed)))
    if allowed:
        assert wanted(decision) == [f"CallTool s1-{place}" for place in range(allowed)]
    assert [event.outcome for event in written if event.kind == "tool_ended"] == ["refused"] * refused


def test_a_refused_call_leads_to_the_last_answer() -> None:
    state = told(step(), answered("look", "look"), began(0, name="look"), ended(0), ended(1, "refused"))
    written, decision = follow(state, rules(Limits(tool_calls=1)))
    assert written == [e.LimitReached("tool_calls", 1, 2)]
    assert decision == (CallModel("s1", state.step, state.step.model_call, True),)


def test_when_time_is_up_what_runs_is_stopped_and_the_rest_refused() -> None:
    by = rules(Limits(seconds=1))
    told_so = [step(), answered("save", "look"), began(0), e.LimitReached("seconds", 1, 1)]
    assert decided(told(*told_so), by) == ()
    state = told(*told_so, e.ToolStopped("s1", "s1-0", "interrupted"))
    written = follow(state, by)[0]
    assert [event.outcome for event in written if event.kind == "tool_ended"] == ["unknown", "refused"]


# ------------------------------------------------------------------------------------ failure policies

DOWN = e.Failure("model", "server", "down")


def test_a_failed_model_fails_the_task_and_the_next_attempt_asks_again() -> None:
    state = told(step(), e.ModelFailed("s1", DOWN))
    assert follow(state)[0] == [e.StepFailed("s1", DOWN), e.TaskEnded("failed", None, DOWN)]
    again = told(step(), e.ModelFailed("s1", DOWN), follow(told(step(), e.ModelFailed("s1", DOWN)))[0])
    reopened = told(
        *[step(), e.ModelFailed("s1", DOWN), e.StepFailed("s1", DOWN), e.TaskEnded("failed", None, DOWN)],
        e.TaskReopened(2, "resume"),
    )
    assert again.ended == "failed"
    assert follow(reopened) == (
        [e.StepStarted("s1", 1, 2)],
        (CallModel("s1", reopened.step, reopened.step.model_call, False),),
    )


def test_a_failed_model_may_end_the_task_degraded_with_what_there_is() -> None:
    state = told(ran("look"), e.StepCompleted("s1"), step(2), e.ModelFailed("s2", DOWN))
    end = recorded(state, rules(on_model_failure="degrade"))
    assert (end.state, end.reasons) == ("degraded", ("the model failed: down",))


def test_a_failed_model_may_pause_the_task_and_is_called_again_afterwards() -> None:
    by = rules(on_model_failure="pause")
    state = told(step(), e.ModelFailed("s1", DOWN))
    written, decision = follow(state, by)
    assert (kinds(written), decision) == (["pause_requested"], Wait("paused"))
    lifted = told(step(), e.ModelFailed("s1", DOWN), written, e.Resumed())
    assert wanted(follow(lifted, by)[1]) == ["CallModel s1"]


def test_the_model_sees_a_failed_tool_by_default() -> None:
    assert recorded(told(ran("look", outcome="error"))) == e.StepCompleted("s1")


def test_a_failed_tool_may_fail_the_task_and_only_it_is_tried_again() -> None:
    by = rules(on_tool_failure="fail")
    calls = [step(), answered("look", "save"), began(0, name="look"), ended(0), began(1), ended(1, "error")]
    written = follow(told(*calls), by)[0]
    assert kinds(written) == ["step_failed", "task_ended"]
    state = told(*calls, written, e.TaskReopened(2, "resume"))
    assert wanted(follow(state, by)[1]) == ["CallTool s1-1r2"]
    assert state.step is not None
    assert [(call.id, call.outcome) for call in state.step.calls] == [("s1-0", "ok"), ("s1-1r2", None)]


def test_the_result_of_a_second_try_answers_the_call_the_model_made() -> None:
    state = told(
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
    state = told(ran("save", outcome="error"), failed(1), second, failed(2))
    assert state.step is not None
    assert (list(state.step.open), state.tool_calls) == (["s1-0r3"], 3)


@pytest.mark.parametrize(("source", "reason"), [("tool", "look failed: it is timeout"), ("subagent", None)])
def test_a_policy_for_failures_of_one_kind_says_nothing_of_others(source: str, reason: str | None) -> None:
    event = recorded(told(ran("look", outcome="timeout")), rules(**{f"on_{source}_failure": "degrade"}))
    assert event == e.StepCompleted("s1", reason=reason)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_message_to_a_stopped_step_is_read_before_its_request(attempt: int) -> None:
    first: list[Any] = [
        e.StepFailed("s1", DOWN),
        e.TaskEnded("failed"),
        e.TaskReopened(2, "resume"),
        *step(1, 2),
    ]
    before = [*step(), *([e.ModelFailed("s1", DOWN), *first] if attempt == 2 else [])]
    state = told(before, e.ModelStopped("s1", "interrupted"), e.InputReceived((Text("and?"),)))
    assert recorded(state) == e.StepStarted("s1", 1, attempt)


def test_a_failed_tool_may_degrade_the_task() -> None:
    event = recorded(told(ran("look", outcome="timeout")), rules(on_tool_failure="degrade"))
    assert event == e.StepCompleted("s1", reason="look failed: it is timeout")


def test_a_failed_tool_may_pause_once_and_then_the_step_completes() -> None:
    by = rules(on_tool_failure="pause")
    written, decision = follow(told(ran("look", outcome="error")), by)
    assert (kinds(written), decision) == (["pause_requested"], Wait("paused"))
    assert recorded(told(ran("look", outcome="error"), written, e.Resumed()), by) == e.StepCompleted("s1")


# -------------------------------------------------------------------------------------------- lost calls


def test_a_lost_read_or_idempotent_call_runs_again() -> None:
    for name in ("look", "put"):
        state = told(step(), answered(name), lost(name=name))
        decision = decided(state)
        assert wanted(decision) == ["CallTool s1-0"]
        assert isinstance(decision, tuple)
        assert isinstance(decision[0], CallTool)
        assert decision[0].call.attempt == 1


def test_a_lost_write_waits_for_a_person() -> None:
    state = told(step(), answered("save"), lost())
    decision = decided(state)
    assert isinstance(decision, Wait)
    assert (decision.reason, [call.id for call in decision.calls]) == ("settlement", ["s1-0"])


def test_siblings_of_a_lost_write_run_on() -> None:
    assert wanted(decided(told(step(), answered("save", "look"), lost()))) == ["CallTool s1-1"]


def test_a_lost_write_that_can_be_looked_up_is() -> None:
    decision = decided(told(step(), answered("pay"), lost(name="pay")))
    assert isinstance(decision, tuple)
    assert isinstance(decision[0], Reconcile)


def test_what_cannot_be_found_out_waits_for_a_person_after_all() -> None:
    state = told(step(), answered("pay"), lost(name="pay"), e.OutcomeUnresolved("s1", "s1-0"))
    assert isinstance(decided(state), Wait)


def test_what_happened_ends_well_and_what_did_not_starts_again() -> None:
    happened = told(step(), answered("save"), lost(), e.OutcomeSettled("s1", "s1-0", "happened", "saved"))
    assert recorded(happened) == e.ToolEnded("s1", "s1-0", "ok", "saved")
    not_happened = told(step(), answered("save"), lost(), e.OutcomeSettled("s1", "s1-0", "not_happened"))
    assert wanted(decided(not_happened)) == ["CallTool s1-0"]


def test_the_model_may_see_that_an_outcome_is_unknown() -> None:
    state = told(step(), answered("save"), lost())
    event = recorded(state, rules(on_unknown_outcome="tell_model"))
    assert event.outcome == "unknown"
    assert "outcome_unknown" in event.error.message


def test_an_unknown_outcome_may_fail_the_task_and_the_call_is_not_repeated() -> None:
    by = rules(on_unknown_outcome="fail")
    events = [step(), answered("save"), lost()]
    written = follow(told(*events), by)[0]
    assert kinds(written) == ["tool_ended", "step_failed", "task_ended"]
    state = told(*events, written, e.TaskReopened(2, "resume"))
    assert kinds(follow(state, by)[0]) == ["step_started", "step_completed", "step_started"]


def test_after_an_unknown_outcome_failed_the_task_nothing_runs_again_and_messages_wait_for_the_next_step() -> (
    None
):
    by = rules(on_unknown_outcome="fail")
    broken = [began(1, name="look"), ended(1, "error")]
    events = [step(), answered("save", "look", "reply"), lost(), *broken, began(2, name="reply"), ended(2)]
    written = follow(told(*events), by)[0]
    state = told(*events, written, e.TaskReopened(2, "send"), e.InputReceived((Text("and?"),)))
    assert kinds(follow(state, by)[0]) == ["step_started", "step_completed", "step_started"]
    assert [(call.id, call.outcome) for call in state.steps[0].calls] == [
        ("s1-0", "unknown"),
        ("s1-1", "error"),
        ("s1-2", "ok"),
    ]
    assert [message.text for message in state.messages[3:]] == ["done", "and?"], "after the answer of `reply`"
