"""The auditor finds where the journals of a parent and its child disagree, and nothing where only their clocks do."""

import pytest

from treadle.core import events as e
from treadle.core.children import SpentBy
from treadle.core.messages import Text
from treadle.testing.audit.children import families


def timed(began: int, *events: e.Event) -> list[e.Event]:
    for seq, event in enumerate(events, 1):
        event.seq, event.time = seq, began + seq
    return list(events)


def parent(*after: e.Event) -> list[e.Event]:
    return timed(
        100,
        e.TaskCreated("boss", (Text("go"),), "talk"),
        e.StepStarted("s1", 1),
        e.ToolStarted("s1", "s1-0", "agent", child="t.s1-0"),
        e.ToolEnded("s1", "s1-0", "ok", "words", spent=(SpentBy("helper", model_calls=1),)),
        *after,
    )


def child(began: int, *after: e.Event, output: str = "words") -> list[e.Event]:
    return timed(
        began,
        e.TaskCreated("helper", (Text("do it"),), "t.s1-0", parent="t", parent_call="s1-0", depth=1),
        e.StepStarted("s1", 1),
        e.ModelStarted("s1", "scripted"),
        e.TaskEnded("completed", output),
        *after,
    )


def undone_and_cancelled() -> list[e.Event]:
    return [e.TaskReopened(2, "undo"), e.Rewound(0, 1), e.TaskEnded("cancelled")]


def texts(parents: list[e.Event], children: list[e.Event], *, clocks_agree: bool) -> list[str]:
    journals = {"t": parents, "t.s1-0": children}
    return [violation.text for violation in families(journals, clocks_agree=clocks_agree)]


def test_a_child_undone_after_its_parent_had_undone_its_result_agrees_with_it() -> None:
    children = child(100, *undone_and_cancelled())
    children[4].time = children[5].time = children[6].time = 200
    assert texts(parent(e.Rewound(0, 1)), children, clocks_agree=True) == []
    assert texts(parent(), children, clocks_agree=True) == [
        "it is taken up again, and its parent has its result"
    ]


def test_a_child_undone_under_a_clock_set_back_was_compared_with_a_result_that_was_undone() -> None:
    children = child(10, *undone_and_cancelled())
    assert texts(parent(e.Rewound(0, 1)), children, clocks_agree=False) == []


@pytest.mark.parametrize(
    ("parents", "children"),
    [
        (parent(), child(10, *undone_and_cancelled())),
        (parent(e.Rewound(0, 1)), child(10, *undone_and_cancelled(), output="others")),
        (parent(), child(10, output="others")),
        (parent(), child(10)[:3]),
    ],
    ids=["undone while its parent has its result", "another result", "another answer", "not ended"],
)
def test_a_child_that_disagrees_with_its_parent_is_seen_though_a_clock_was_set(
    parents: list[e.Event], children: list[e.Event]
) -> None:
    assert len(texts(parents, children, clocks_agree=False)) == 1


def test_a_request_of_a_child_after_its_call_had_ended_is_seen_where_clocks_agree() -> None:
    children = child(200)
    assert texts(parent(), children, clocks_agree=True) == ["model_started after its call had ended"]
    assert texts(parent(), children, clocks_agree=False) == []
