"""Events of steps: which journal format they need."""

from treadle.core import events as e


def test_a_value_of_a_call_needs_a_driver_that_knows_such_values() -> None:
    assert e.ValueKept("s1", "k", 1).format == 1
    assert e.ValueKept("s1", "k", 1, "s1-0").format == 5
