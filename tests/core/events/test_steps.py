"""Events of steps: which journal format they need."""

from treadle.core import events as e


def test_a_value_of_a_call_needs_a_driver_that_knows_such_values() -> None:
    assert e.ValueKept("s1", "k", 1).format == 1
    assert e.ValueKept("s1", "k", 1, "s1-0").format == 5


def test_a_step_that_hands_over_needs_a_newer_format() -> None:
    changed = e.StepCompleted("s1", changes=e.StateChange({"a": 1}))
    moved = e.StepCompleted("s1", next_agent=e.NextAgent("b", "s1-0", "transfer_to_b"))
    assert [event.format for event in (e.StepCompleted("s1"), changed, moved)] == [1, 3, 5]


def test_steps_of_which_one_is_retried_need_a_newer_format() -> None:
    once, twice = e.NextStep("a"), e.NextStep("b", retries=1)
    assert [e.StepsPlanned(steps).format for steps in ((once,), (once, twice))] == [1, 5]
    assert [e.StepCompleted("s0", next=steps).format for steps in ((once,), (once, twice))] == [1, 5]
