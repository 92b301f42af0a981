"""What an undo takes back in tasks of both kinds: steps that follow each other, and steps of a graph."""

import pytest

from treadle.core import events as e
from treadle.core.cut_outputs import find_output, is_offered
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.rules.fold import fold
from treadle.core.state import TaskState, start

CUT = {"outcome": "ok", "output": "a long text", "observation": (Text("a long"),), "cut": True}


def state_after(*events: e.Event) -> TaskState:
    events = (e.TaskCreated("a", (Text("q"),), "th"), *events)
    for seq, event in enumerate(events, 1):
        event.seq = event.time = seq
    return fold(start("t"), events)


def plain_step(step: str, index: int) -> tuple[e.Event, ...]:
    call = f"{step}-0"
    return (
        e.StepStarted(step, index),
        e.ModelStarted(step, "m"),
        e.ModelReturned(step, Message("assistant", (ToolCall(call, "read", {}),))),
        e.ToolStarted(step, call),
        e.ToolEnded(step, call, **CUT),
        e.StepCompleted(step),
    )


def function_step(step: str, index: int, *planned: e.NextStep) -> tuple[e.Event, ...]:
    call = f"{step}-0"
    return (
        e.StepStarted(step, index),
        e.CallRequested(step, call, f"k{index}", "d", "read", {}),
        e.ToolStarted(step, call),
        e.ToolEnded(step, call, **CUT),
        e.StepCompleted(step, next=planned),
    )


@pytest.mark.parametrize("has_graph", [False, True])
def test_a_cut_result_of_an_undone_step_can_no_longer_be_read(has_graph: bool) -> None:
    events: tuple[e.Event, ...] = (*plain_step("s1", 1), *plain_step("s2", 2))
    if has_graph:
        plan = e.StepsPlanned((e.NextStep("first"),))
        events = (plan, *function_step("s1", 1, e.NextStep("second")), *function_step("s2", 2))
    kept = state_after(*events)
    assert list(kept.cut) == ["s1-0", "s2-0"]

    undone = state_after(*events, e.Rewound(1, 1, (), ("s2",)))
    assert list(undone.cut) == ["s1-0"]
    assert find_output(undone, "s2-0") is None
    assert is_offered(undone)

    assert not is_offered(state_after(*events, e.Rewound(0, 1, (), ("s1", "s2"))))
