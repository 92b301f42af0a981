"""What events add up to in the permits of a task; the table of states is in `test_state_tables`."""

import pytest

from tests.agents.stories import answered, began, state_after, step
from treadle.core import events as e
from treadle.core.permits import digest_of


def asked() -> e.ApprovalRequested:
    return e.ApprovalRequested("s1", "s1-0", 1, "def", "args", 20, "rule", "why")


def test_an_open_request_is_a_timer_of_its_task() -> None:
    state = state_after(step(), answered("save"), asked())
    assert [(timer.due, timer.call) for timer in state.timers()] == [(20, "s1-0")]
    assert state.next_due() == 20
    denied = state_after(step(), answered("save"), asked(), e.ApprovalDenied("s1", "s1-0", 1))
    assert (denied.next_due(), denied.open_approvals) == (None, {})


def test_a_request_does_not_expire_before_its_time() -> None:
    with pytest.raises(e.IllegalEvent, match="has not expired"):
        state_after(step(), answered("save"), asked(), e.ApprovalExpired("s1", "s1-0", 1))


def test_an_edited_approval_changes_the_arguments_and_what_it_is_bound_to() -> None:
    given = e.ApprovalGiven("s1", "s1-0", 1, arguments={"n": 9}, by="ann")
    call = state_after(step(), answered("save"), asked(), given).find_call("s1-0")
    assert call is not None
    assert call.permit is not None
    assert (call.arguments, call.permit.status, call.permit.by) == ({"n": 9}, "edited", "ann")
    assert call.permit.digest == digest_of({"n": 9})


def test_an_approval_for_the_task_leaves_when_its_step_is_taken_back() -> None:
    given = e.ApprovalGiven("s1", "s1-0", 1, "task", by="ann")
    end = [began(0, name="save"), e.ToolEnded("s1", "s1-0", "ok"), e.StepCompleted("s1")]
    state = state_after(step(), answered("save"), asked(), given, *end)
    assert [(grant.tool, grant.definition, grant.rule) for grant in state.grants] == [("save", "def", "rule")]
    undone = [e.UndoRequested(0, ("s1",)), e.Rewound(0, 1)]
    assert state_after(step(), answered("save"), asked(), given, *end, *undone).grants == []


def test_the_next_request_of_a_call_has_the_next_number() -> None:
    edited = e.CallEdited("s1", "s1-0", {"n": 2}, {})
    again = e.ApprovalRequested("s1", "s1-0", 2, "def", "args", 20)
    assert state_after(step(), answered("save"), asked(), edited, again).open_approvals["s1-0"].requests == 2
    with pytest.raises(e.IllegalEvent):
        state_after(step(), answered("save"), asked(), edited, asked())


def test_the_end_of_a_call_closes_its_request() -> None:
    ended = e.ToolEnded("s1", "s1-0", "cancelled")
    assert state_after(step(), answered("save"), asked(), ended).open_approvals == {}
