"""Requests that no client of ours would send: made from the OpenAPI document, and valid bodies with changed bytes."""

import json
import logging
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings

from tests.client.served import served
from tests.lazily import schemathesis, schemathesis_checks
from tests.server.calling import agent, by_name
from tests.server.test_authorisation import BODIES, QUERIES
from treadle.server import ServerLimits
from treadle.server.openapi import openapi
from treadle.verbs.table import OPERATIONS

MANY = ServerLimits(requests_per_second=1_000_000, unfinished_tasks=1_000_000)
HEADERS = {"Authorization": "Bearer operator"}
EXAMPLES = 6
"""How many requests are made for an operation and a mode; `make full` makes 200."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(agent(), auth=by_name, drive=False, limits=MANY) as address:
        task = {"agent": "shop", "input": "hello", "task_id": "0"}
        httpx2.post(f"{address}/v1/tasks", json=task, headers=HEADERS).raise_for_status()
        yield address


@pytest.fixture(autouse=True)
def _no_faults(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test after which the log tells of a fault of the server."""
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@cache
def described() -> dict[str, Any]:
    """Return the operations of the document by their names."""
    document = schemathesis.openapi.from_dict(json.loads(json.dumps(openapi())))
    return {each.ok().definition.raw["operationId"]: each.ok() for each in document.get_all_operations()}


def checks() -> list[Any]:
    return [
        schemathesis.checks.not_a_server_error,
        schemathesis_checks.status_code_conformance,
        schemathesis_checks.content_type_conformance,
        schemathesis_checks.response_schema_conformance,
    ]


BEYOND = re.compile(r"at most|of 1 to|must be 1 to|from [0-9]+ (up|to)|up to|one of (created|agent)")
"""What a refusal says of a value that is too long, too large or too many."""


def no_limit_is_left_out(ctx: Any, response: Any, case: Any) -> None:
    """Fail for a request as the document describes it that is refused beyond a limit."""
    if response.status_code in (400, 422):
        detail = response.json()["detail"]
        assert not BEYOND.search(detail), detail


def test_requests_are_made_for_every_operation():
    assert set(described()) == set(OPERATIONS)


CASES = [
    pytest.param(name, mode, id=f"{name}-{mode}")
    for name, row in OPERATIONS.items()
    for mode in ("POSITIVE", "NEGATIVE")
    if mode == "POSITIVE" or row.in_path or row.query or row.body  # else there is nothing to be wrong
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_request_made_from_the_document_is_served_as_it_says(
    name: str, mode: str, address: str, request: pytest.FixtureRequest
):
    is_full = request.config.option.markexpr != "not full"

    @settings(
        max_examples=200 if is_full else EXAMPLES,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(case=described()[name].as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    def serve(case: Any) -> None:
        checked = [*checks(), no_limit_is_left_out] if mode == "POSITIVE" else checks()
        case.call_and_validate(base_url=address, headers=HEADERS, checks=checked)

    serve()


def test_a_response_that_is_not_as_the_document_says_is_noticed(address: str):
    document = json.loads(json.dumps(openapi()))
    wrong = document["paths"]["/v1/me"]["get"]["responses"]["200"]["content"]["application/json"]
    wrong["schema"] = {"type": "array"}
    (operation,) = [
        each.ok()
        for each in schemathesis.openapi.from_dict(document).get_all_operations()
        if each.ok().path == "/v1/me"
    ]
    with pytest.raises(schemathesis.core.failures.FailureGroup):
        operation.Case().call_and_validate(base_url=address, headers=HEADERS, checks=checks())


def mutated(body: bytes, rng: random.Random) -> bytes:
    """Return a body in which some bytes were changed, doubled, moved or left out."""
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if changed:
                changed[at % len(changed)] = rng.randrange(256)
            case 1:
                changed[at:at] = rng.choice(INSERTED)
            case 2:
                del changed[at : at + rng.randint(1, 8)]
            case 3:
                changed[at:at] = changed[at : at + rng.randint(1, 40)] * rng.randint(1, 3)
            case 4:
                del changed[at:]
            case _:
                changed = changed.replace(b'"', rng.choice([b"", b"'", b'\\"']), 1)
    return bytes(changed)


INSERTED = (
    *(
        b"null",
        b"true",
        b"-1",
        b"1e400",
        b"NaN",
        b"[]",
        b"{}",
        b"[" * 500,
        b'"\\ud800"',
        b'"\\u0000"',
        b"\x00",
    ),
    *(b"\xff\xfe", b'"by":"eve",', b'"__class__":"os.system",', b'"type":"file",', b'"path":"/etc/passwd",'),
    b"9" * 400,
)

FULL = {
    **BODIES,
    "create_task": {
        "agent": "shop",
        "input": ["hi", {"type": "image", "data": "AAAA", "media_type": "image/png"}],
        "thread_id": "t",
        "extra_state": {"a": [1]},
        "labels": {"k": "v"},
        "run": False,
        "options": {"limits": {"steps": 3, "cost": "0.5"}, "break_on": [{"tool": "x"}], "labels": {"a": "b"}},
    },
    "approve": {"request_id": "s1-0-ask1", "arguments": {"a": 1}, "scope": "task"},
    "undo": {"to": 0, "force": True},
    "fork": {"at": 1, "input": "and?", "replace": {"s1-0": 1}, "options": {"max_parallel_tools": 2}},
    "run_step": {"input": "hi", "step": "s1"},
    "skip_step": {"step": "s1"},
}


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.full)])
def test_a_body_with_changed_bytes_is_served_or_refused(
    count: int, address: str, request: pytest.FixtureRequest
):
    rng = random.Random(request.config.option.hypothesis_seed)
    rows = [row for row in OPERATIONS.values() if row.method == "POST"]
    headers = {**HEADERS, "Content-Type": "application/json"}
    seen: set[int] = set()
    with httpx2.Client(base_url=address, headers=headers) as client:
        for _ in range(count):
            row = rng.choice(rows)
            body = mutated(json.dumps(FULL.get(row.name, {"reason": "x"})).encode(), rng)
            path = row.path.replace("{task}", "0").replace("{thread_id}", "t").replace("{grant_id}", "g")
            response = client.post(path + QUERIES.get(row.name, ""), content=body)
            seen.add(response.status_code)
            assert response.status_code < 500, (row.name, body, response.text)
            assert b"/etc/passwd" not in response.content.replace(body, b"") or response.status_code in (
                400,
                422,
            )
    assert ({400, 422} if count > 1_000 else {400}) <= seen  # few bodies may hold no wrong field that is JSON
