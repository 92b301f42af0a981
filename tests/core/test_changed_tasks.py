"""Collecting which tasks changed: names, or after a gap and of too many that any may have."""

from treadle.core.changed_tasks import MOST, ChangedTasks


def test_what_was_noted_is_taken_once() -> None:
    changed = ChangedTasks()
    changed.add(("t", "u"))
    changed.add({"t"})
    assert changed.take() == {"t", "u"}
    assert changed.take() == frozenset()


def test_after_a_gap_or_of_too_many_any_task_may_have_changed_until_that_was_taken() -> None:
    changed = ChangedTasks()
    changed.add(None)
    changed.add(("t",))
    assert changed.take() is None
    changed.add([f"t{n}" for n in range(MOST + 1)])
    changed.add(("t",))
    assert changed.take() is None
    changed.add(("t",))
    assert changed.take() == {"t"}
