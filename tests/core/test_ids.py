"""Ids of steps and calls are places in the task: distinct, stable, and taken apart as they were made."""

import re
from pathlib import Path
from typing import Final

import pytest

import treadle
from treadle.core import ids

SOURCE: Final = Path(treadle.__file__).parent


def test_a_step_is_named_by_its_number_and_its_branch() -> None:
    assert [ids.step_id(branch, 3) for branch in (0, 1, 12)] == ["s3", "s3b1", "s3b12"]
    assert [ids.planned_step_id(branch, (2, 1, 1)) for branch in (0, 1)] == ["s2.1.1", "s2.1.1b1"]


def test_a_call_names_the_answer_that_asks_for_it() -> None:
    assert ids.call_id("s3", 0) == "s3-0"
    assert ids.asking_id("s3-0") == "s3"
    request = ids.request_id("s3b1", "model", 1)
    assert (request, ids.request_id("s3b1", "tool", 2)) == ("s3b1-m1", "s3b1-c2")
    assert ids.asking_id(ids.call_id(request, 4)) == request


@pytest.mark.parametrize("base", ["s1-0", "s2.1.1b3-m1-0", "s4-c2"])
def test_repeated_calls_count_attempts_and_keep_their_base(base: str) -> None:
    second = ids.repeated_call_id(base)
    third = ids.repeated_call_id(second)
    assert (second, third) == (f"{base}r2", f"{base}r3")
    assert [ids.attempt_of(call) for call in (base, second, third, ids.undo_id(third))] == [1, 2, 3, 3]
    assert {ids.base_call_id(call) for call in (base, second, third, ids.undo_id(second))} == {base}
    assert [ids.call_id_in_attempt(base, attempt) for attempt in (1, 2, 3)] == [base, second, third]


def test_the_id_of_a_compensation_differs_from_that_of_its_call() -> None:
    undo = ids.undo_id("s1-0r2")
    assert (undo, ids.is_undo(undo), ids.undone_call(undo)) == ("s1-0r2-undo", True, "s1-0r2")
    assert (ids.is_undo("s1-0"), ids.undone_call("s1-0")) == (False, "s1-0")
    assert ids.stop_id("s1-0") != undo


def test_ids_of_children_keys_and_calls_in_a_thread() -> None:
    assert ids.child_id("order", "s3-0") == "order.s3-0"
    assert ids.id_in_thread(4, "s3-0") == "t4-s3-0"
    assert ids.idempotency_key("order", "", "s3-0") == "order/s3-0"
    assert ids.idempotency_key("order", "x1", "s3-0") == "order/x1/s3-0"


def test_no_other_module_makes_or_takes_apart_such_ids() -> None:
    pattern = re.compile(
        r"""-undo["'}]|(?<!-)-stop["']|partition\(["']-["']\)|f"s\{(index|path|number)|RETRY_MARK|UNDO_SUFFIX"""
    )
    lines = [
        str(path.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "ids.py" and pattern.search(path.read_text())
    ]
    assert lines == []
