"""The spending of a tree of tasks: of a task's own calls, and of its children as far as they report it."""

import pytest

from tests.agents.stories import answered, began, ended, state_after, step
from treadle import Limits
from treadle.core import events as e
from treadle.core.children import SpentBy, by_agent
from treadle.core.messages import Message, ToolCall
from treadle.core.model import Usage
from treadle.policy.budget import Account, calls_made, summed


def test_the_spending_of_two_tasks_of_one_agent_is_one_sum() -> None:
    first = SpentBy("poet", 1, Usage(5, 5), 1, 2, 100, ("a:1",))
    other = SpentBy("poet", 3, Usage(1, 1), 2, 0, 10, ("b:2", "a:1"))
    (both,) = by_agent([first, other])
    assert both == SpentBy("poet", 4, Usage(6, 6), 3, 2, 110, ("a:1", "b:2"))
    assert summed([SpentBy("poet", cost=1), other]).cost is None, "the cost of a part is unknown"


def test_calls_that_were_refused_or_gave_the_answer_are_none_that_were_made() -> None:
    wrong = Message("assistant", (ToolCall("s2-0", "final_answer", {}),))
    refused = e.ToolEnded("s1", "s1-1", "refused", error=e.Failure("limit", "tool_calls", "no"))
    invalid = e.ToolEnded("s1", "s1-2", "invalid", error=e.Failure("tool", "invalid", "no"))
    gives = e.ModelReturned("s2", wrong, "tool_calls", typed=e.TypedAnswer({"x": 1}, None, "s2-0"))
    state = state_after(
        *[
            step(),
            answered("look", "look", "missing", "save"),
            began(0, name="look"),
            ended(0),
            refused,
            invalid,
        ],
        *[began(3), ended(3), e.StepCompleted("s1"), step(2), gives, e.ToolEnded("s2", "s2-0")],
    )
    assert calls_made(state) == 3, "those that ran, and the one that was not valid"


@pytest.mark.parametrize(
    ("above", "below", "spare"), [(9, None, 7), (9, 3, 2), (2, 9, 0), (None, None, None)]
)
def test_a_child_has_no_more_requests_to_spare_than_all_above_it(
    above: int | None, below: int | None, spare: int | None
) -> None:
    parent = state_after(step())
    parent.children = {"t.s1-0": ()}
    root = Account(Limits(model_calls=above), parent, keeps=False)
    child = Account(Limits(model_calls=below), state_after(step()), keeps=False, above=root)
    root.open("t.s1-0", child)
    assert child.spare_requests() == spare
    root.close("t.s1-0")
    assert (root.spent().model_calls, root.tasks()) == (2, 1)
