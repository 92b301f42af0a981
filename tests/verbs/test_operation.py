import pytest

from treadle.verbs.operation import Operation
from treadle.verbs.table import OPERATIONS


def test_an_operation_takes_the_types_and_the_demands_of_its_verb():
    send = OPERATIONS["send"]
    assert send.in_path == ("task",)
    assert send.is_required("task")
    assert send.is_required("message")
    assert not send.is_required("role")
    assert send.argument_type("task") is str
    assert send.brings_files


def test_an_operation_that_is_no_verb_needs_what_is_in_its_path_alone():
    operation = Operation(
        name="odd",
        method="GET",
        path="/v1/odd/{place}",
        access="any",
        summary="Odd.",
        query=("much",),
        types={"much": int},
    )
    assert operation.parameters == {}
    assert operation.is_required("place")
    assert not operation.is_required("much")
    assert operation.argument_type("much") is int
    assert not operation.checks_head


@pytest.mark.parametrize(("name", "turned_by"), [("list_tasks", "cursor"), ("get_events", "after")])
def test_a_page_begins_where_its_argument_says(name: str, turned_by: str):
    assert OPERATIONS[name].turned_by == turned_by
