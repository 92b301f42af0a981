from typing import Any

import pytest

from treadle.cli.main import _COMMANDS as COMMANDS  # pyright: ignore[reportPrivateUsage]
from treadle.client.client import _OWN as OF_THE_CLIENT  # pyright: ignore[reportPrivateUsage]
from treadle.client.client import COMPOSED
from treadle.runner.runner import TaskRunner
from treadle.server.handlers import HANDLERS
from treadle.verbs.operation import Operation
from treadle.verbs.table import ELSEWHERE, OPERATIONS, operation_of

WITHHELD = {
    "by": "it is the name of the principal",
    "command_id": "the header Idempotency-Key",
    "expect": "the header If-Match",
    "task": "in the path of every operation on a task",
    "agent": "an object of this process; a fork names one by its name",
    "model": "what a request could name is an address to call",
    "context": "an object of this process, never stored",
    "observers": "functions of this process, never stored",
    "drive": "the header Prefer",
}
"""Arguments of verbs that no request brings under their own name, with the reason."""


def arguments(operation: Operation) -> set[str]:
    return {*operation.in_path, *operation.query, *(operation.body or ())}


OF_VERBS = [operation for operation in OPERATIONS.values() if operation.verb]


@pytest.mark.parametrize("operation", OF_VERBS, ids=lambda each: each.name)
def test_every_argument_of_a_verb_is_in_its_row_or_withheld_for_a_reason(operation: Operation):
    of_verb = set(operation.parameters)
    assert arguments(operation) <= of_verb | set(operation.types)
    pages = {"thread_id"} if operation.name == "list_pending_of_task" else set[str]()
    assert of_verb - arguments(operation) - set(WITHHELD) - pages == set()
    if operation.repeats != "task":
        assert (operation.repeats == "command") == ("command_id" in of_verb)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda each: each.name)
def test_every_row_is_whole(operation: Operation):
    assert operation.verb or operation.name in HANDLERS, "nothing serves it"
    assert operation.summary.endswith(".")
    assert (operation.body is not None) == (operation.method == "POST")
    assert operation.access in ("any", "open") or operation.path.startswith(
        ("/v1/", "/metrics", f"/{operation.protocol or 'v1'}/")
    )
    for name in arguments(operation):
        operation.argument_type(name)  # raises for an argument without a type
    assert (operation.status == 204) == (operation.result is None)
    if operation.waits is not None:
        assert "task" in operation.in_path or operation.name in HANDLERS, (
            "no 202 could name where its result is"
        )
    if operation.method == "GET":
        assert operation.access in ("read", "any", "open", "admin", "operator")
        assert (operation.repeats, operation.checks_head) == (None, False)


def test_no_two_rows_have_one_path_and_every_handler_has_a_row():
    paths = [(operation.method, operation.path) for operation in OPERATIONS.values()]
    assert len(set(paths)) == len(paths)
    assert set(HANDLERS) <= set(OPERATIONS)
    assert all(operation.name == name for name, operation in OPERATIONS.items())


def test_no_request_can_name_its_author_or_carry_an_object_of_the_process():
    for operation in OPERATIONS.values():
        given = arguments(operation) - ({"context"} if operation.protocol == "agui" else set())  # texts of it
        assert given.isdisjoint({"context", "observers", "expect", "command_id"})
        assert "by" not in arguments(operation) or operation.name == "usage"  # by agent, day or label
        for name in arguments(operation) & {"agent", "model"}:
            hint = operation.argument_type(name)
            assert hint in (str, str | None), operation.name


def test_every_member_of_the_runner_has_a_row_or_is_made_of_rows_or_is_elsewhere():
    members = {name for name in dir(TaskRunner) if not name.startswith("_")}
    rows = {operation.verb for operation in OF_VERBS}
    assert members - rows - {*COMPOSED, *OF_THE_CLIENT} - set(ELSEWHERE) == {"aclose"}
    assert set(ELSEWHERE) <= members - rows


def test_a_verb_with_two_rows_is_called_by_that_of_the_task_if_a_task_is_given():
    assert operation_of("list_pending", {"task": None, "limit": 3}).path == "/v1/pending"
    assert operation_of("list_pending", {"task": "t"}).path == "/v1/tasks/{task}/pending"
    several = {
        verb for verb in {row.verb for row in OF_VERBS} if sum(row.verb == verb for row in OF_VERBS) > 1
    }
    assert several == {"list_pending"}


def test_a_row_requires_the_arguments_that_its_verb_requires():
    row: Any = OPERATIONS["settle"]
    assert [name for name in row.body if row.is_required(name)] == ["request_id", "verdict"]
    assert not OPERATIONS["pause"].is_required("reason")
    assert OPERATIONS["diff"].is_required("a"), "though over HTTP it is of another type"


def test_a_command_that_sends_one_request_has_the_name_of_its_row():
    homes = {name: str(home).partition(".")[0] for name, home in COMMANDS.items()}
    plain = {
        name for name, home in homes.items() if home in ("control", "approvals", "background", "undo_fork")
    }
    assert plain - set(OPERATIONS) == {"edit", "pending"}, (
        "an edit is one of two rows, and so is a list of requests"
    )
