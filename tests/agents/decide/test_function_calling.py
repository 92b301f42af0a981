"""The function-calling worker, as a table: the events of a task on the left, the next decision on the right."""

from typing import Any

import pytest

from tests.agents.stories import (
    DOWN,
    answered,
    began,
    decided,
    ended,
    follow,
    ran,
    recorded,
    state_after,
    step,
    wanted,
)
from treadle.core import events as e
from treadle.core.effects import Wait
from treadle.core.messages import Text

# ------------------------------------------------------------------------------------- the plain course


def test_a_new_task_starts_its_first_step_and_asks_the_model() -> None:
    state = state_after()
    assert recorded(state) == e.StepStarted("s1", 1)
    assert wanted(follow(state)[1]) == ["CallModel s1"]
    assert [message.text for message in state.messages] == ["go"]


def test_a_model_call_in_flight_is_still_wanted() -> None:
    assert wanted(decided(state_after(step()))) == ["CallModel s1"]


def test_an_answer_without_calls_completes_the_task() -> None:
    written, decision = follow(state_after(step(), answered(text="4")))
    assert written == [e.StepCompleted("s1", True, "4"), e.TaskEnded("completed", "4")]
    assert decision == Wait("ended")


def test_an_answered_task_waits_until_it_is_finalized() -> None:
    assert follow(state_after(step(), answered(text="4")), finalize=False)[1] == Wait("answered")


def test_all_calls_of_an_answer_run_at_once() -> None:
    assert wanted(decided(state_after(step(), answered("look", "save", "put")))) == [
        "CallTool s1-0",
        "CallTool s1-1",
        "CallTool s1-2",
    ]


def test_finished_calls_complete_the_step_and_the_next_one_starts() -> None:
    written, decision = follow(state_after(ran("look", "save")))
    assert written == [e.StepCompleted("s1"), e.StepStarted("s2", 2)]
    assert wanted(decision) == ["CallModel s2"]


def test_results_are_in_call_order_for_any_order_of_ends() -> None:
    state = state_after(step(), answered("look", "save"), began(0, name="look"), began(1), ended(1), ended(0))
    assert [part.call_id for part in state.messages[-1].parts] == ["s1-0", "s1-1"]


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal"])
def test_a_truncated_answer_without_calls_is_degraded_with_the_reason(finish: Any) -> None:
    completed, end = follow(state_after(step(), answered(text="4", finish=finish)))[0]
    assert completed.reason
    assert (end.state, end.reasons) == ("degraded", (completed.reason,))


@pytest.mark.parametrize("finish", ["length", "content_filter", "refusal", "error", "unknown"])
def test_calls_of_an_incomplete_answer_are_marked_and_never_an_action(finish: Any) -> None:
    state = state_after(step(), answered("save", finish=finish))
    assert state.step is not None
    assert all(call.problem for call in state.step.calls)


# -------------------------------------------------------------------------- answers given by a tool


def test_the_result_of_a_return_direct_tool_is_the_answer() -> None:
    state = state_after(ran("look", "reply"))
    assert recorded(state) == e.StepCompleted("s1", True, "done", True)
    assert follow(state)[0][-1] == e.TaskEnded("completed", "done")
    assert state.messages[-1].text == "done"


def test_a_failed_return_direct_tool_is_a_result_like_any_other() -> None:
    assert recorded(state_after(ran("reply", outcome="error"))) == e.StepCompleted("s1")


def test_a_return_direct_tool_waits_for_its_siblings() -> None:
    state = state_after(step(), answered("reply", "look"), began(0, name="reply"), ended(0))
    assert wanted(decided(state)) == ["CallTool s1-1"]


# ------------------------------------------------------------------------------------------- feedback


def test_a_message_that_crossed_with_the_answer_is_read_by_one_more_step() -> None:
    received = e.InputReceived((Text("and 3?"),))
    written, decision = follow(state_after(step(), received, answered(text="4")))
    assert written == [e.StepCompleted("s1", False, "4"), e.StepStarted("s2", 2)]
    assert wanted(decision) == ["CallModel s2"]


def test_a_step_that_is_skipped_although_its_model_answered_leaves_the_question_to_the_next() -> None:
    broken = e.StepFailed("s1", e.Failure("tool", "error", "no", "s1-0"))
    state = state_after(step(), answered(text="4"), broken, e.StepSkipped("s1"), step(2))
    assert [message.text for message in state.messages] == ["go"]
    ended = state_after(ran("look", outcome="error"), broken, e.StepSkipped("s1"), step(2))
    assert [message.role for message in ended.messages] == ["user", "assistant", "tool"]


def test_a_message_after_the_answer_continues_the_task() -> None:
    state = state_after(
        step(), answered(text="4"), e.StepCompleted("s1", True, "4"), e.InputReceived((Text("sure?"),))
    )
    assert recorded(state) == e.StepStarted("s2", 2)
    assert (state.answered, state.output) == (False, None)


# ------------------------------------------------------------------------------------------ steps limit


# ------------------------------------------------------------------------------------- the other limits


# ------------------------------------------------------------------------------------ failure policies


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_message_to_a_stopped_step_is_read_before_its_request(attempt: int) -> None:
    first: list[Any] = [
        e.StepFailed("s1", DOWN),
        e.TaskEnded("failed"),
        e.TaskReopened(2, "resume"),
        *step(1, 2),
    ]
    before = [*step(), *([e.ModelFailed("s1", DOWN), *first] if attempt == 2 else [])]
    state = state_after(before, e.ModelStopped("s1", "interrupted"), e.InputReceived((Text("and?"),)))
    assert recorded(state) == e.StepStarted("s1", 1, attempt)


# -------------------------------------------------------------------------------------------- lost calls
