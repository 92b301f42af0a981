"""What events add up to when a conversation moves from agent to agent, and when that is taken back."""

from typing import Any

import pytest

from tests.agents.stories import answered, ended, state_after, step
from treadle.core import events as e
from treadle.core.rules.handoffs import spent_by_present
from treadle.core.state import TaskState

NEXT = e.NextAgent("billing", "s1-0", "transfer_to_billing")
MOVED = e.AgentChanged("s1", "s1-0", "billing", "math", "v2")


def handed_over(*more: Any) -> list[Any]:
    return [
        e.InstructionsSet("You sort."),
        step(),
        answered("transfer_to_billing"),
        e.ToolStarted("s1", "s1-0"),
        ended(0),
        e.StepCompleted("s1", next_agent=NEXT),
        *more,
    ]


def standing(state: TaskState) -> tuple[str, str, str | None, int]:
    return state.agent, state.fingerprint, state.instructions, state.turn


def test_a_task_is_with_its_agent_until_the_move_is_recorded() -> None:
    state = state_after(*handed_over())
    assert (state.agent, state.created_for) == ("math", "math")
    assert state.team is not None
    assert state.team.next == NEXT


def test_the_next_agent_begins_with_its_own_version_instructions_and_turns() -> None:
    state = state_after(*handed_over(MOVED))
    assert standing(state) == ("billing", "v2", None, 0)
    assert state.team is not None
    assert (state.team.next, state.team.handoffs, state.team.since) == (None, 1, 3)
    assert state.created_for == "math"


def test_no_step_begins_before_the_conversation_has_moved() -> None:
    with pytest.raises(e.IllegalEvent, match="before the conversation moved to billing"):
        state_after(*handed_over(step(2)))


@pytest.mark.parametrize("wrong", [e.AgentChanged("s1", "s1-0", "sales", "math"), MOVED])
def test_a_move_that_no_step_asked_for_is_illegal(wrong: e.AgentChanged) -> None:
    before = handed_over() if wrong is not MOVED else [step(), answered(), e.StepCompleted("s1")]
    with pytest.raises(e.IllegalEvent, match="no step ended so"):
        state_after(*before, wrong)


def test_an_agent_that_a_conversation_comes_back_to_has_its_instructions_still() -> None:
    back = e.NextAgent("math", "s2-0", "transfer_to_math")
    there = handed_over(
        MOVED,
        e.InstructionsSet("You bill."),
        step(2),
        answered("transfer_to_math", index=2),
        e.ToolStarted("s2", "s2-0"),
        e.ToolEnded("s2", "s2-0"),
        e.StepCompleted("s2", next_agent=back),
    )
    state = state_after(*there, e.AgentChanged("s2", "s2-0", "math", "billing", ""))
    assert standing(state) == ("math", "", "You sort.", 1)
    assert state.team is not None
    assert (state.team.handoffs, dict(state.team.turns)) == (2, {"math": 1, "billing": 1})
    other = state_after(*there, e.AgentChanged("s2", "s2-0", "math", "billing", "v3"))
    assert standing(other) == ("math", "v3", None, 1)


def test_an_undo_returns_to_the_agent_of_that_time() -> None:
    there = handed_over(
        MOVED, e.InstructionsSet("You bill."), step(2), answered(index=2), e.StepCompleted("s2")
    )
    kept = state_after(*there, e.UndoRequested(1, ("s2",)), e.Rewound(1, 1))
    assert standing(kept) == ("billing", "v2", "You bill.", 0)
    first = state_after(*there, e.UndoRequested(0, ("s2", "s1")), e.Rewound(0, 1))
    assert standing(first) == ("math", "", "You sort.", 0)
    assert first.team is None


def test_an_undo_before_the_move_returns_to_where_it_is_to_move() -> None:
    state = state_after(*handed_over(e.UndoRequested(0, ("s1",)), e.Rewound(0, 1)))
    assert state.team is None


def test_steps_know_whose_they_are() -> None:
    state = state_after(*handed_over(MOVED, step(2), answered(index=2), e.StepCompleted("s2")))
    assert [each.agent for each in state.steps] == ["", "billing"]


def test_a_fork_goes_on_with_the_agent_of_that_point_or_with_the_given_one() -> None:
    same = state_after(*handed_over(MOVED, e.TaskForked("t", "math", "x")))
    assert (same.agent, same.created_for) == ("billing", "math")
    other = state_after(*handed_over(MOVED, e.TaskForked("t", "sales", "x", "v9")))
    assert (other.agent, other.created_for, other.team) == ("sales", "sales", None)


def test_an_agent_is_not_charged_with_the_unpriced_models_of_the_agent_before_it() -> None:
    before, after = state_after(*handed_over()), state_after(*handed_over(MOVED))
    assert spent_by_present(before).unpriced == before.unpriced != ()
    assert (spent_by_present(after).unpriced, after.unpriced) == ((), before.unpriced)
