"""Refusals in the form of the OpenAI API."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.server.openai_errors import is_openai, openai_error, openai_status


def document(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"urn:treadle:error:{name}", "title": "A title", "instance": "i1", **fields}


def test_only_the_paths_of_the_protocol_refuse_in_this_form():
    assert is_openai("/v1/responses")
    assert is_openai("/v1/responses/x/cancel")
    assert not is_openai("/v1/responses_of")
    assert not is_openai("/v1/tasks")


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("InvalidField", 422, 400),
        ("TaskConflict", 409, 400),
        ("TaskBusy", 409, 409),
        ("ThreadBusy", 409, 409),
        ("TaskNotFound", 404, 404),
        ("TooManyRequests", 429, 429),
    ],
)
def test_a_status_is_one_that_clients_repeat_only_if_that_helps(name: str, status: int, expected: int):
    assert openai_status(document(name), status) == expected


@pytest.mark.parametrize(
    ("problem", "status", "expected"),
    [
        (
            document("InvalidField", detail="top_p: no", field="top_p"),
            400,
            {
                "message": "top_p: no",
                "type": "invalid_request_error",
                "param": "top_p",
                "code": "invalid_field",
            },
        ),
        (
            document("AgentUnknown", detail="none"),
            404,
            {"message": "none", "type": "invalid_request_error", "param": "model", "code": "model_not_found"},
        ),
        (
            document("Unauthenticated"),
            401,
            {"message": "A title", "type": "authentication_error", "param": None, "code": "invalid_api_key"},
        ),
        (
            document("ServerFault", detail="failed"),
            500,
            {"message": "failed", "type": "server_error", "param": None, "code": "server_fault"},
        ),
        (
            document("TooManyRequests", detail="slow"),
            429,
            {"message": "slow", "type": "too_many_requests", "param": None, "code": "too_many_requests"},
        ),
    ],
)
def test_a_problem_is_an_error_of_the_api(problem: dict[str, Any], status: int, expected: dict[str, Any]):
    assert openai_error(problem, status) == {"error": expected, "request_id": "i1"}


def test_further_fields_of_a_problem_stay():
    refused = openai_error(document("ScopeMissing", detail="no", scope="run"), 403)
    assert (refused["error"]["type"], refused["scope"]) == ("permission_error", "run")
