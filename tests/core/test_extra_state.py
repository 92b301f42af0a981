"""The state kept with a task: what is read at which event, who wins, and what an undo takes back."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.events import StateChange
from treadle.core.extra_state import NOW, ExtraState, Overwritten, Writer

FIRST, SECOND, THIRD = (
    Writer(f"s1-{place}", "s1", ((1,), place), began) for place, began in enumerate((5, 6, 7))
)
"""Three calls of one answer, which began one after the other and ran beside each other."""


def after(call: Writer, *, began: int, step: str = "s2", place: int = 0) -> Writer:
    """Return a call of a later step, which began at an event."""
    return Writer(f"{step}-{place}", step, ((int(step[1:]),), place), began)


def test_a_state_is_what_the_task_began_with_until_something_is_written() -> None:
    state = ExtraState({"a": 1, "b": [2]})
    assert state.value() == {"a": 1, "b": [2]}
    assert ExtraState().value() == {}


def test_what_is_handed_out_is_a_copy() -> None:
    state = ExtraState({"b": [2]})
    state.write(StateChange({"c": {"d": []}}), FIRST, 8)
    state.value()["b"].append(3)
    state.value()["c"]["d"].append(3)
    assert state.value() == {"b": [2], "c": {"d": []}}


def test_a_change_sets_and_removes_keys_and_leaves_the_others() -> None:
    state = ExtraState({"a": 1, "b": 2, "c": 3})
    state.write(StateChange({"a": 4, "d": None}, ("b",)), FIRST, 8)
    assert state.value() == {"a": 4, "c": 3, "d": None}


def test_what_was_read_at_an_event_stays_what_it_was() -> None:
    state = ExtraState({"n": 0})
    for seq in (8, 10, 12):
        state.write(StateChange({"n": seq}), Writer("c", "s1", ((1,), 0), seq - 1), seq)
    state.write(StateChange(removed=("n",)), Writer("c", "s1", ((1,), 0), 13), 14)
    assert [state.read("n", upto) for upto in (7, 8, 9, 10, 11, 12, 13)] == [0, 8, 8, 10, 10, 12, 12]
    with pytest.raises(KeyError, match="n"):
        state.read("n", 14)
    assert list(state.keys(13)) == ["n"]
    assert list(state.keys(NOW)) == []


@pytest.mark.parametrize(
    ("ends", "value", "told"),
    [
        ([FIRST, SECOND], "s1-1", [("s1-1", "s1-0")]),
        ([SECOND, FIRST], "s1-1", [("s1-1", "s1-0")]),
        ([FIRST, SECOND, THIRD], "s1-2", [("s1-1", "s1-0"), ("s1-2", "s1-1")]),
        ([FIRST, THIRD, SECOND], "s1-2", [("s1-2", "s1-0"), ("s1-2", "s1-1")]),
        ([SECOND, FIRST, THIRD], "s1-2", [("s1-1", "s1-0"), ("s1-2", "s1-1")]),
        ([SECOND, THIRD, FIRST], "s1-2", [("s1-2", "s1-1"), ("s1-2", "s1-0")]),
        ([THIRD, FIRST, SECOND], "s1-2", [("s1-2", "s1-0"), ("s1-2", "s1-1")]),
        ([THIRD, SECOND, FIRST], "s1-2", [("s1-2", "s1-1"), ("s1-2", "s1-0")]),
    ],
)
def test_of_calls_beside_each_other_the_last_in_call_order_wins_whichever_ends_first(
    ends: list[Writer], value: str, told: list[tuple[str, str]]
) -> None:
    state, hidden = ExtraState(), list[Overwritten]()
    for seq, call in enumerate(ends, 8):
        hidden += state.write(StateChange({"n": call.by}), call, seq)
    assert state.value() == {"n": value}
    assert [(pair.kept, pair.lost, pair.keys) for pair in hidden] == [(*pair, ("n",)) for pair in told]


def test_calls_beside_each_other_that_change_other_keys_overwrite_nothing() -> None:
    state = ExtraState({"n": 0})
    assert state.write(StateChange({"a": 1}), SECOND, 8) == []
    assert state.write(StateChange({"b": 2}, ("n",)), FIRST, 9) == []
    assert state.value() == {"a": 1, "b": 2}


def test_a_removal_is_overwritten_like_a_value() -> None:
    state = ExtraState({"n": 0})
    state.write(StateChange(removed=("n",)), SECOND, 8)
    [pair] = state.write(StateChange({"n": 1, "m": 1}), FIRST, 9)
    assert pair == Overwritten("s1", "s1-1", "s1-0", ("n",))
    assert state.value() == {"m": 1}


def test_a_call_that_read_a_write_replaces_it_and_overwrites_nothing() -> None:
    state = ExtraState()
    state.write(StateChange({"n": 1}), SECOND, 8)
    assert state.write(StateChange({"n": 2}), Writer("s1-0", "s1", ((1,), 0), 8), 10) == []
    assert state.value() == {"n": 2}


def test_a_write_that_was_hidden_is_not_told_of_again_by_a_call_that_read_the_one_that_hid_it() -> None:
    state = ExtraState()
    state.write(StateChange({"n": 2}), SECOND, 8)
    assert len(state.write(StateChange({"n": 1}), FIRST, 10)) == 1
    assert state.write(StateChange({"n": 3}), after(FIRST, began=9), 12) == []
    assert state.value() == {"n": 3}


def test_a_steps_function_writes_over_its_own_calls_and_is_told_apart_from_other_steps() -> None:
    state = ExtraState()
    own = Writer("s1", "s1", ((1,), 1), 5, read_step=True)
    state.write(StateChange({"n": 1}), FIRST, 8)
    assert state.write(StateChange({"n": 2}), own, 10) == []
    other = Writer("s2", "s2", ((2,), 0), 6, read_step=True)
    assert state.write(StateChange({"n": 3}), other, 12) == [Overwritten("s2", "s2", "s1", ("n",))]
    assert state.value() == {"n": 3}


def test_a_function_that_ends_last_stays_behind_a_later_step_and_sees_its_own_calls() -> None:
    state = ExtraState({"n": "began"})
    later = Writer("s2", "s2", ((2,), 0), 5, read_step=True)
    function = Writer("s1", "s1", ((1,), 1), 5, read_step=True)
    state.write(StateChange({"n": "later"}), later, 7)
    state.write(StateChange({"n": "its call"}), Writer("s1-0", "s1", ((1,), 0), 6), 8)
    [pair] = state.write(StateChange({"n": "function"}), function, 9)
    assert (pair.kept, pair.lost) == ("s2", "s1")
    assert [(write.value, write.hidden) for write in state.writes["n"]] == [
        ("later", False),
        ("its call", True),
        ("function", True),
    ]
    assert state.read("n", 5) == "began"
    assert state.read("n", 5, {"s1-0"}) == "its call", (
        "the function saw its own call and not the step beside it"
    )


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([], {"n": 3, "a": 1, "b": 2}),
        (["s3"], {"n": 2, "a": 1, "b": 2}),
        (["s2"], {"n": 3, "a": 1}),
        (["s2", "s3"], {"n": 1, "a": 1}),
        (["s1", "s2", "s3"], {"n": 0}),
        (["s9"], {"n": 3, "a": 1, "b": 2}),
    ],
)
def test_an_undo_takes_back_what_its_steps_wrote(steps: list[str], left: dict[str, Any]) -> None:
    state = ExtraState({"n": 0})
    for seq, (step, values) in enumerate(
        [("s1", {"n": 1, "a": 1}), ("s2", {"n": 2, "b": 2}), ("s3", {"n": 3})]
    ):
        state.write(StateChange(values), Writer(step, step, ((seq,), 0), 10 * seq), 10 * seq + 5)
    state.take_back(steps)
    assert state.value() == left


def test_a_write_that_was_hidden_stands_again_when_the_one_that_hid_it_is_undone() -> None:
    state = ExtraState({"n": 0})
    first, second = Writer("s1", "s1", ((1,), 0), 5), Writer("s2", "s2", ((2,), 0), 5)
    state.write(StateChange({"n": "second"}), second, 7)
    state.write(StateChange({"n": "first"}), first, 8)
    assert state.value() == {"n": "second"}
    state.take_back(["s2"])
    assert state.value() == {"n": "first"}
    assert state.write(StateChange({"n": "third"}), Writer("s3", "s3", ((3,), 0), 9), 10) == []
    assert state.value() == {"n": "third"}


def test_a_step_that_was_undone_twice_has_nothing_left_to_take_back() -> None:
    state = ExtraState()
    state.write(StateChange({"n": 1}), FIRST, 8)
    state.take_back(["s1"])
    state.take_back(["s1"])
    assert state == ExtraState()


def test_the_order_of_keys_outlasts_an_undo() -> None:
    state = ExtraState({"z": 0})
    names = [f"key {number}" for number in range(20)]
    state.write(StateChange(dict.fromkeys(names, 1)), Writer("s1", "s1", ((1,), 0), 5), 6)
    state.write(StateChange(dict.fromkeys([*names[::2], "gone"], 2)), Writer("s2", "s2", ((2,), 0), 7), 8)
    state.take_back(["s2"])
    assert list(state.value()) == ["z", *names]


def test_data_of_the_first_release_that_is_no_object_is_kept_as_it_is() -> None:
    state = ExtraState([1, 2])
    assert (state.is_object, state.value(), list(state.keys(NOW))) == (False, [1, 2], [])
