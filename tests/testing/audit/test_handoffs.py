"""What the auditor finds where a conversation moves without a reason, or does not move."""

from typing import Any

import pytest

from tests.agents.stories import answered, numbered, step
from treadle.core import events as e
from treadle.core.messages import Text
from treadle.testing.audit import JournalOf, audit
from treadle.testing.audit.handoffs import handed_over

NEXT = e.NextAgent("desk", "s1-0", "transfer_to_desk")
ENDED = e.StepCompleted("s1", next_agent=NEXT)
MOVED = e.AgentChanged("s1", "s1-0", "desk", "math")
BEGIN = [e.TaskCreated("math", (Text("go"),), "talk"), step(), answered("look")]
RAN = [e.ToolStarted("s1", "s1-0"), e.ToolEnded("s1", "s1-0")]


def found(*events: Any) -> list[tuple[int, str]]:
    return [(each.seq, each.text) for each in handed_over("t", numbered(*events))]


def test_a_conversation_that_moves_as_its_step_says_is_in_order() -> None:
    rest = [MOVED, step(2), answered("look", index=2), e.StepCompleted("s2", True)]
    assert found(*BEGIN, *RAN, ENDED, *rest) == []
    assert audit(JournalOf("t", [(1, each) for each in numbered(*BEGIN, *RAN, ENDED, MOVED, step(2))])) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([*RAN, ENDED, step(2)], "s2 begins before the conversation moved to desk"),
        ([*RAN, e.StepCompleted("s1", True, next_agent=NEXT)], "s1 answers and hands over to desk"),
        ([ENDED], "s1 hands over by s1-0, which did not end well"),
        ([*RAN, e.StepCompleted("s1"), MOVED], "the conversation moves to desk, and s1 did not end so"),
        ([*RAN, ENDED, e.AgentChanged("s1", "s1-0", "shop", "math")], "moves to shop, and s1 did not end so"),
        ([*RAN, ENDED, e.AgentChanged("s1", "s1-0", "desk", "x")], "moves away from x, and was with math"),
        ([*RAN, ENDED, MOVED, e.Rewound(1, 1), MOVED], "moves to desk, and s1 did not end so"),
    ],
)
def test_a_move_without_a_reason_and_a_reason_without_a_move_are_found(events: list[Any], text: str) -> None:
    assert text in found(*BEGIN, *events)[0][1]


def test_what_an_undo_takes_back_is_forgotten() -> None:
    assert found(*BEGIN, *RAN, ENDED, e.Rewound(0, 1), e.StepStarted("s1b1", 1)) == []
    assert found(*BEGIN, *RAN, ENDED, MOVED, e.Rewound(0, 1), e.StepStarted("s1b1", 1)) == []


def test_a_fork_by_another_agent_has_nothing_to_move() -> None:
    assert found(*BEGIN, *RAN, ENDED, e.TaskForked("t", "shop", "x", "v"), step(2)) == []
