import inspect
from typing import Any

import pytest

from treadle.runner.runner import TaskRunner
from treadle.server.handlers import HANDLERS
from treadle.server.operations import OPERATIONS, Operation, argument_types

WITHHELD = {
    "by": "it is the name of the principal",
    "command_id": "the header Idempotency-Key",
    "expect": "the header If-Match",
    "task": "in the path of every operation on a task",
    "agent": "an object of this process; a fork names one by its name",
    "model": "what a request could name is an address to call",
    "context": "an object of this process, never stored",
    "observers": "functions of this process, never stored",
}
"""Arguments of verbs that no request brings under their own name, with the reason."""


def arguments(operation: Operation) -> set[str]:
    return {*operation.in_path, *operation.query, *(operation.body or ())}


BY_VERB = [operation for operation in OPERATIONS.values() if operation.verb]


@pytest.mark.parametrize("operation", BY_VERB, ids=lambda each: each.name)
def test_every_argument_of_a_verb_is_in_its_row_or_withheld_for_a_reason(operation: Operation):
    of_verb = set(argument_types(operation.verb))
    assert arguments(operation) <= of_verb | set(operation.types)
    pages = {"thread_id"} if operation.name == "list_pending_of_task" else set[str]()
    assert of_verb - arguments(operation) - set(WITHHELD) - pages == set()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda each: each.name)
def test_every_row_is_whole(operation: Operation):
    assert operation.verb or operation.name in HANDLERS, "nothing serves it"
    assert operation.summary.endswith(".")
    assert (operation.body is not None) == (operation.method == "POST")
    assert operation.access in ("any", "open") or operation.path.startswith(("/v1/", "/metrics"))
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


SERVED = {"create_task": "submit", "run_step": "run_step", "resume": "resume", "fork": "fork"}
"""The verbs of operations that have a handler, with the arguments that headers become."""


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda each: each.name)
def test_headers_and_rows_bring_all_that_verbs_take(operation: Operation):
    verb = operation.verb or SERVED.get(operation.name)
    if verb is None:
        return
    takes = argument_types(verb)
    if operation.name in SERVED:
        assert set(takes) - arguments(operation) - set(WITHHELD) - {"drive"} == set()
    if operation.repeats != "task":
        assert (operation.repeats == "command") == ("command_id" in takes)
    assert operation.checks_head == ("expect" in takes)


def test_no_two_rows_have_one_path_and_every_handler_has_a_row():
    paths = [(operation.method, operation.path) for operation in OPERATIONS.values()]
    assert len(set(paths)) == len(paths)
    assert set(HANDLERS) <= set(OPERATIONS)
    assert all(operation.name == name for name, operation in OPERATIONS.items())


def test_no_request_can_name_its_author_or_carry_an_object_of_the_process():
    for operation in OPERATIONS.values():
        assert arguments(operation).isdisjoint({"context", "observers", "expect", "command_id"})
        assert "by" not in arguments(operation) or operation.name == "usage"  # by agent, day or label
        for name in arguments(operation) & {"agent", "model"}:
            hint = operation.argument_type(name)
            assert hint in (str, str | None), operation.name


NOT_OVER_HTTP = {
    "abandoned": "of this process",
    "observers": "of this process",
    "log_filter": "of this process",
    "middleware_of": "takes an agent as an object",
    "store": "of this process",
    "sync": "of this process",
    "scoped": "the principal of a request is the scope",
    "get_completed_steps": "all at once: get_steps returns them page by page",
    "begin_adopting": "the server adopts",
    "set_policy": "the server's policy is its operator's",
    "drain": "the server drains at its end",
    "aclose": "the server closes it at its end",
    "handle": "made by the client",
    "run": "made by the client: create_task with run, then get_result",
    "run_sync": "made by the client",
    "run_stream": "made by the client",
    "start": "made by the client",
    "stream_step": "made by the client",
    "import_tasks": "reads a file of this process",
}
"""Members of the runner that no operation serves, with the reason."""

SERVED_BY_HANDLERS = {
    "changes",
    "get_events",
    "create_task",
    "submit",
    "run_step",
    "run_ready_steps",
    "resume",
    "fork",
    "export_tasks",
    "verify",
}


def test_every_verb_of_the_runner_has_an_operation_or_a_reason():
    members = {
        name
        for name in dir(TaskRunner)
        if not name.startswith("_") and inspect.getattr_static(TaskRunner, name) is not None
    }
    served = {operation.verb for operation in BY_VERB} | SERVED_BY_HANDLERS
    assert members - served - set(NOT_OVER_HTTP) == set()


def test_a_row_requires_the_arguments_that_its_verb_requires():
    row: Any = OPERATIONS["settle"]
    assert [name for name in row.body if row.is_required(name)] == ["request_id", "verdict"]
    assert not OPERATIONS["pause"].is_required("reason")
