"""The first difference of two tasks, as a table of states: no two of these pairs differ in more than one field."""

from typing import Any

import pytest

from tests.agents.stories import answered, began, ended, numbered, state_after, step
from treadle.core import events as e
from treadle.core.messages import Message, Text, ToolCall
from treadle.core.rules.fold import fold
from treadle.core.state import TaskState, start
from treadle.drivers.fork_point import difference, shared_events
from treadle.results.reports import StepDifference


def created(text: str, *events: Any) -> TaskState:
    return fold(start("t"), numbered(e.TaskCreated("math", (Text(text),), "talk"), *events))


def asked_with(**arguments: Any) -> list[e.Event]:
    calling = Message("assistant", (ToolCall("s1-0", "look", arguments),))
    return [*step(), e.ModelReturned("s1", calling, "tool_calls")]


def looked(outcome: e.Outcome = "ok", output: Any = "done") -> list[Any]:
    return [step(), answered("look"), began(0, name="look"), ended(0, outcome, output=output)]


HELLO = [step(), answered(text="Hello.")]
DONE = [*HELLO, e.StepCompleted("s1", True, "Hello.")]


@pytest.mark.parametrize(
    ("a", "b", "place", "field", "values"),
    [
        (created("go", step()), created("stay", step()), 1, "input", ((Text("go"),), (Text("stay"),))),
        (state_after(*HELLO), state_after(step(), answered(text="Bye.")), 1, "text", ("Hello.", "Bye.")),
        (
            state_after(asked_with(a=1)),
            state_after(asked_with(a=2)),
            1,
            "calls",
            ([("look", {"a": 1})], [("look", {"a": 2})]),
        ),
        (state_after(*looked()), state_after(*looked("error")), 1, "outcome of s1-0", ("ok", "error")),
        (state_after(*looked()), state_after(*looked(output="more")), 1, "output of s1-0", ("done", "more")),
        (
            state_after(*DONE),
            state_after(*HELLO, e.StepCompleted("s1", True, "Bye.")),
            1,
            "output",
            ("Hello.", "Bye."),
        ),
        (
            state_after(*HELLO, e.StepFailed("s1", e.Failure("worker", "x", "y"))),
            state_after(*HELLO),
            1,
            "status",
            ("failed", "running"),
        ),
        (state_after(*DONE), state_after(), 1, "step", ("s1", None)),
        (
            state_after(*DONE, e.TaskEnded("completed", "Hello.")),
            state_after(*DONE, e.TaskEnded("cancelled")),
            None,
            "end",
            (["completed", "Hello."], ["cancelled", "Hello."]),
        ),
        (
            state_after(*DONE, e.TaskEnded("completed", "Hello.")),
            state_after(*DONE, e.TaskEnded("completed", "Bye.")),
            None,
            "end",
            (["completed", "Hello."], ["completed", "Bye."]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_thing_that_differs_is_named_with_both_values(
    a: TaskState, b: TaskState, place: int | None, field: str, values: Any
) -> None:
    forward = difference(a, b)
    assert (
        forward.index,
        forward.field,
        (forward.value_a, forward.value_b),
    ) == (place, field, values)
    back = difference(b, a)
    assert (back.index, back.field, (back.value_b, back.value_a)) == (place, field, values)
    assert difference(a, a).same


def test_every_step_that_differs_is_named_with_its_fields() -> None:
    first = [step(), answered("look"), began(0, name="look"), ended(0), e.StepCompleted("s1")]
    other = [step(), answered("look"), began(0, name="look"), ended(0, output="more"), e.StepCompleted("s1")]
    hello = e.ModelReturned("s2", Message("assistant", (Text("Hello."),)), "stop")
    a = state_after(*first, step(2), hello, e.StepCompleted("s2", True, "Hello."))
    b = state_after(*other, step(2))
    steps = difference(a, b, shared=a.steps[0].ended_seq).steps
    assert steps == (
        StepDifference(1, "s1", "s1", True, ("output of s1-0",)),
        StepDifference(2, "s2", "s2", False, ("text", "output", "status")),
    )
    assert [each.shared for each in difference(a, b, shared=a.steps[0].ended_seq - 1).steps] == [False, False]
    assert difference(a, state_after(*first)).steps[1] == StepDifference(2, "s2", None, False, ("step",))
    assert [each.fields for each in difference(a, a).steps] == [(), ()]


def test_shared_events_are_those_before_the_first_fork_on_the_way_to_a_common_origin() -> None:
    parent, fork, sibling = [("p", 20)], [("f", 9), ("p", 5)], [("s", 30), ("p", 3)]
    assert shared_events(parent, fork) == shared_events(fork, parent) == 5
    assert shared_events(fork, sibling) == shared_events(sibling, fork) == 3
    assert shared_events(parent, parent) == 20
    assert shared_events([("g", 9), ("f", 8), ("p", 5)], sibling) == 3
    assert shared_events([("g", 9), ("f", 4), ("p", 4)], parent) == 4
    assert shared_events(fork, [("another", 3)]) == 0
