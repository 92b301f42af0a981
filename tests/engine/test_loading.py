"""Events read from a journal: which of them are refused, and how a row contradicts its journal."""

from dataclasses import replace
from typing import Any

import pytest

from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.state import TaskState, start
from treadle.engine.loading import apply_checked, contradicts
from treadle.errors import JournalCorrupt
from treadle.ports import TaskRow

CREATED = e.TaskCreated("math", (Text("go"),), "talk")
ANSWER = Message("assistant", (ToolCall("s1-0", "save", {}),))
CALLS = (e.StepStarted("s1", 1), e.ModelStarted("s1", "m"), e.ModelReturned("s1", ANSWER, "tool_calls"))
IN_FLIGHT = (*CALLS, e.ToolStarted("s1", "s1-0", "write", 1))


def loaded(*events: e.Event) -> TaskState:
    """Return the state of a task after copies of these events, as they are read from a journal."""
    state = start("t")
    for seq, event in enumerate(events, 1):
        apply_checked(state, replace(event, seq=seq, time=seq))
    return state


def test_events_that_can_follow_are_applied() -> None:
    assert loaded(CREATED, *IN_FLIGHT).in_flight()
    assert loaded(replace(CREATED, options={"on_limit": "fail"})).agent == "math"


@pytest.mark.parametrize(
    ("events", "seq", "why"),
    [
        ((e.StepStarted("s1", 1),), 1, "a journal begins with task_created"),
        ((CREATED, CREATED), 2, "and has no other"),
        ((CREATED, e.StepCompleted("s9")), 2, "event 2"),
        ((CREATED, *IN_FLIGHT, e.TaskEnded("completed")), 6, "ended while a call was under way"),
        ((replace(CREATED, options={"on_limit": "stop"}),), 1, "the options in it cannot be read"),
        ((replace(CREATED, options={"limits": {"steps": -1}}),), 1, "the options in it cannot be read"),
        ((CREATED, e.OptionsChanged({"break_on": [7]})), 2, "the options in it cannot be read"),
    ],
    ids=["no beginning", "two beginnings", "no such step", "call open", "option", "limit", "changed option"],
)
def test_an_event_that_no_driver_could_have_written_is_named(
    events: tuple[e.Event, ...], seq: int, why: str
) -> None:
    with pytest.raises(JournalCorrupt, match=why) as raised:
        loaded(*events)
    assert (raised.value.task_id, raised.value.seq) == ("t", seq)


ROW = TaskRow(
    "t", "math", "talk", "created", 0, parent=None, base=None, base_seq=0, epoch=1, labels={}, driver=None
)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, None),
        ({"agent": "poet"}, "agent 'poet'"),
        ({"thread_id": "other"}, "thread 'other'"),
        ({"base": "parent"}, "base 'parent'"),
        ({"base_seq": 3}, "base_seq 3"),
    ],
    ids=["the same", "agent", "thread", "base", "base_seq"],
)
def test_a_row_that_contradicts_its_journal_is_reported_with_both_values(
    change: dict[str, Any], field: str | None
) -> None:
    contradiction = contradicts(replace(ROW, **change), loaded(CREATED))
    if field is None:
        assert contradiction is None
    else:
        assert contradiction is not None
        assert contradiction.startswith(f"the row says {field}, the journal ")
