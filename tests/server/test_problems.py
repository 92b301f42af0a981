import json
import logging
from typing import Any

import pytest

from tests.server.calling import Client, agent, serving
from treadle import Runner, errors
from treadle.errors import (
    StoreUnavailable,
    TaskBusy,
    TaskConflict,
    TaskMoved,
    TaskNotFound,
    ToolsetUnavailable,
    TreadleError,
)
from treadle.results.problem_documents import error_from_wire
from treadle.server.problems import MEDIA, Problem, problem_of, status_of
from treadle.stores.memory import MemoryStore

FAULTS = {
    "TreadleError": "the base of all",
    "MisusedVerb": "a mistake in the code of the server",
    "UnknownAttribute": "a mistake in the code of the server",
    "ContextFailed": "the function of the application raised",
    "TaskEndedBadly": "raised by raise_for_state() alone",
    "StoredTraceback": "the cause of another error, and never raised alone",
    "ModelError": "a task records it",
    "WorkerError": "a task records it",
    "ToolError": "a task records it",
    "RequestRefused": "raised by clients",
    "ServerUnavailable": "raised by clients",
}
"""Errors that no verb of a request raises, or that are none of its business, with the reason; with those below them."""


def classes() -> dict[str, type[TreadleError]]:
    named = {name: cls for name, cls in vars(errors).items() if isinstance(cls, type)}
    return {name: cls for name, cls in named.items() if issubclass(cls, TreadleError)}


def test_every_error_has_a_status_or_is_a_fault_for_a_reason():
    for name, cls in classes().items():
        bases = {base.__name__ for base in cls.__mro__}
        is_fault = name in FAULTS or bases & (FAULTS.keys() - {"TreadleError", "StoreError"})
        assert is_fault or status_of(cls.__new__(cls)) is not None, name


def told(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    response = problem_of(error, "0123", lambda text: text.replace("/srv/journal.db", "this store"))
    assert response.media_type == MEDIA
    return response.status_code, json.loads(bytes(response.body)), dict(response.headers)


@pytest.mark.parametrize(
    ("error", "status", "fields"),
    [
        (TaskNotFound("no task 'x' in /srv/journal.db"), 404, {"detail": "no task 'x' in this store"}),
        (TaskConflict("another input", task_id="t", field="input"), 409, {"task_id": "t", "field": "input"}),
        (TaskMoved("it went on", task_id="t", head=7), 412, {"task_id": "t", "head": 7}),
        (TaskBusy("another driver has it", task_id="t"), 409, {"task_id": "t"}),
        (Problem(429, "TooManyRequests", "slowly", {"Retry-After": "1"}, left=0), 429, {"left": 0}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_holds_its_class_its_message_and_its_fields(
    error: Exception, status: int, fields: dict[str, Any]
):
    code, document, headers = told(error)
    assert (code, document["status"], document["instance"]) == (status, status, "0123")
    assert fields.items() <= document.items()
    assert ("retry-after" in headers) == isinstance(error, (TaskBusy, Problem))
    if isinstance(error, TreadleError):
        assert type(error_from_wire(document)) is type(error)


def test_a_fault_tells_the_log_all_and_the_client_nothing(caplog: pytest.LogCaptureFixture):
    code, document, _ = told(ValueError("the password is hunter2"))
    assert (code, "hunter2" in json.dumps(document)) == (500, False)
    (record,) = caplog.records
    assert (record.levelno, "0123" in record.getMessage(), record.exc_info is not None) == (
        logging.ERROR,
        True,
        True,
    )


def test_the_error_of_a_database_told_where_it_is(caplog: pytest.LogCaptureFixture):
    error = StoreUnavailable("/srv/journal.db: disk I/O error; postgresql://ann:pw@db/x")
    code, document, _ = told(error)
    assert (code, document["type"]) == (503, "urn:treadle:error:StoreUnavailable")
    assert "srv" not in document["detail"]
    assert "pw" not in document["detail"]
    assert "disk I/O error" in caplog.text


def test_the_error_of_a_toolset_told_where_it_is_and_with_which_key(caplog: pytest.LogCaptureFixture):
    error = ToolsetUnavailable("https://10.0.0.7/mcp?key=hunter2 refused", toolset="stock")
    code, document, _ = told(error)
    assert (code, document["type"]) == (503, "urn:treadle:error:ToolsetUnavailable")
    assert "stock" in document["detail"]
    assert "hunter2" not in json.dumps(document)
    assert "hunter2" in caplog.text


@pytest.mark.anyio
async def test_a_task_of_an_agent_that_the_server_lacks_is_refused_without_advice_for_python():
    store = MemoryStore()
    async with Runner(store) as elsewhere:
        await elsewhere.create_task(agent(name="other"), "hi", task_id="theirs")
    async with serving(store) as api, Client(api) as client:
        refused = await client.json("POST", "/v1/tasks/theirs/steps", {}, status=404, Prefer="wait=5")
        assert refused["type"] == "urn:treadle:error:AgentUnknown"
        assert refused["detail"] == (
            "task theirs belongs to agent 'other', which this server was not given: "
            "`treadle agents --url` and GET /v1/agents list those it has"
        )
